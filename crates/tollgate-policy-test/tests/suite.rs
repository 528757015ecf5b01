//! Test files, from text to report.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "suite/covering.rs"]
mod covering;
#[path = "suite/mistakes.rs"]
mod mistakes;
#[path = "suite/reports.rs"]
mod reports;
#[path = "suite/running.rs"]
mod running;

use tollgate::{Policy, Span};
use tollgate_policy_test::report::{FileReport, Report, TestResult};
use tollgate_policy_test::{Coverage, Suite, UnexpectedStep, Verdict};

/// Runs all tests of a file against a policy.
#[track_caller]
fn run(policy: &str, tests: &str) -> (Vec<Verdict>, Coverage) {
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}"));
    let suite = Suite::parse(tests).unwrap_or_else(|wrong| panic!("{}", wrong.render("tests")));
    suite.check(&policy).unwrap_or_else(|wrong| panic!("{}", wrong.render("tests")));
    let mut coverage = Coverage::of(&policy);
    let verdicts = suite.tests().iter().map(|test| test.run(&policy, &mut coverage)).collect();
    (verdicts, coverage)
}

/// Returns a file with one test of these steps.
fn steps(steps: &str) -> String {
    format!("defaults: {{ip: 203.0.113.9}}\ntests:\n  - name: it\n    steps:\n{steps}")
}

/// Asserts that all steps pass.
#[track_caller]
fn passes(policy: &str, written: &str) {
    let (verdicts, _) = run(policy, &steps(written));
    assert_eq!(verdicts[0].surprise, None);
}

/// Returns the mismatches.
#[track_caller]
fn surprise(policy: &str, written: &str) -> UnexpectedStep {
    let (mut verdicts, _) = run(policy, &steps(written));
    verdicts.remove(0).surprise.expect("something is not as expected")
}

/// Returns the report of one file, with run times of zero.
fn report(policy: &str, tests: &str) -> Report {
    let (verdicts, coverage) = run(policy, tests);
    let tests = verdicts.into_iter().map(|verdict| TestResult { verdict, took: Span::ZERO }).collect();
    let file = FileReport { file: "policy.test.yaml".into(), policy: "policy.yaml".into(), tests };
    Report { files: vec![file], coverage: vec![("policy.yaml".into(), coverage)], least: None }
}
