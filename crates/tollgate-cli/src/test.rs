//! `tollgate test`: runs the tests beside policies.
//!
//! - `files`: finds test files.
//! - `jobs`: reads them with their policies.
//! - `watch`: reruns on changes.
//!
//! All files are read before any test runs: a mistake in one file prevents all runs.
//!
//! Tests are evaluated by `tollgate_policy_test`.

mod files;
mod jobs;
mod watch;

use std::process::ExitCode;

use tollgate::{Clock, SystemClock};
use tollgate_daemon::Failure;
use tollgate_daemon::configuration::LoadPhase;
use tollgate_policy_test::report::{Detail, FileReport, Report, TestResult};

use crate::arguments::Test;
use crate::output;
use jobs::Jobs;

/// Runs the tests once, or at each change.
pub(crate) fn run(arguments: &Test) -> Result<ExitCode, Failure> {
    if arguments.watch {
        return watch::run(arguments);
    }
    let found = files::find(&arguments.paths)?;
    let jobs = Jobs::read(&found, LoadPhase::First, &mut Vec::new())?;
    finish(arguments, jobs)
}

/// Runs the tests that were read, and reports the results.
fn finish(arguments: &Test, jobs: Jobs) -> Result<ExitCode, Failure> {
    let report = Report { least: arguments.min_coverage, ..report(arguments.filter.as_deref(), jobs)? };
    if let Some(path) = &arguments.junit {
        output::file(path, &report.junit())?;
    }
    if arguments.json {
        output::line(&format!("{:#}", report.json()))?;
    } else {
        let detail = if arguments.coverage { Detail::Everything } else { Detail::Missing };
        output::text(&report.text(detail))?;
    }
    for (_, message) in report.uncovered() {
        output::complain(&format!("error: {message}\n"));
    }
    let is_covered = report.uncovered().next().is_none();
    Ok(if report.failed() == 0 && is_covered { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn report(filter: Option<&str>, jobs: Jobs) -> Result<Report, Failure> {
    let clock = SystemClock::new();
    let wanted = filter.map(str::to_lowercase);
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.to_lowercase().contains(wanted));
    let Jobs { list, mut policies, .. } = jobs;
    let mut report = Report::default();
    for job in &list {
        let policy = &mut policies[job.policy];
        let tests = job.suite.tests().iter().filter(|test| is_wanted(test.name()));
        let tests: Vec<_> = tests
            .map(|test| {
                let begun = clock.now();
                let verdict = test.run(&policy.policy, &mut policy.coverage);
                TestResult { verdict, took: clock.now().since(begun) }
            })
            .collect();
        if !tests.is_empty() {
            report.files.push(FileReport { file: job.file.clone(), policy: policy.name.clone(), tests });
        }
    }
    match filter {
        Some(filter) if report.files.is_empty() => Err(Failure::with_help(
            format_args!("no test has `{filter}` in its name"),
            "without `--filter` all of them are run, and listed",
        )),
        Some(_) => Ok(report),
        None => {
            report.coverage = policies.into_iter().map(|it| (it.name, it.coverage)).collect();
            Ok(report)
        }
    }
}
