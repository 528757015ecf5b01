//! `tollgate doctor`: checks a set-up before it serves, and prints remedies.
//!
//! The checks are in `tollgate_daemon::doctor`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;
use tollgate_daemon::doctor::{Finding, Severity, examine};
use tollgate_daemon::io_error::Attempt;
use tollgate_daemon::{Environment, Failure, Inputs};

use crate::arguments::Doctor;
use crate::output;
use crate::serve::with_files;

/// Exit status 0 if it can serve, 1 if a problem was found.
pub(crate) fn run(arguments: &Doctor, environment: &Environment) -> Result<ExitCode, Failure> {
    let inputs = with_files(Inputs::from_environment(environment), &arguments.files)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start", &error, Attempt::Other))?;
    let findings = runtime.block_on(examine(inputs));
    if arguments.json {
        output::line(&json!({ "findings": findings }).to_string())?;
    } else {
        output::text(&words(&findings))?;
    }
    let has_problem = findings.iter().any(|it| it.severity == Severity::Problem);
    Ok(ExitCode::from(u8::from(has_problem)))
}

fn words(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { topic, severity, message, help } in findings {
        let severity = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Problem => "PROBLEM",
        };
        let message = message.replace('\n', "\n                   ");
        let _ = writeln!(out, "  {severity:8} {topic:7} {message}");
        if let Some(help) = help {
            let _ = writeln!(out, "                   = help: {help}");
        }
    }
    let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    let _ = match (problems, warnings) {
        (0, 0) => writeln!(out, "\nno problems"),
        (0, warnings) => writeln!(out, "\nno problems, {} to look at", counted(warnings, "warning")),
        (problems, warnings) => {
            writeln!(out, "\n{}, {}", counted(problems, "problem"), counted(warnings, "warning"))
        }
    };
    out
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
