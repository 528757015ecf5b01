//! Errors that keep a service from starting or a command from running.
//!
//! The user of the command may see the file that the error is about. Readers of the log and of
//! `/readyz` may not: the brief form contains no text of the file.

use std::fmt;
use std::io;

use tollgate::policy::format_words;
use tollgate_document::{DiagnosticView, Diagnostics, Severity};

use crate::io_error::{Attempt, reason, without_numbers};

/// An error report, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    text: String,
    brief: String,
    /// The structured form, and the number of omitted entries.
    diagnostic_views: Vec<DiagnosticView>,
    left_out: usize,
}

impl Failure {
    /// Creates an error from one sentence in lower case.
    pub fn new(message: impl fmt::Display) -> Self {
        Self::same(&message, None)
    }

    /// Creates an error from one sentence and help.
    pub fn with_help(message: impl fmt::Display, help: impl fmt::Display) -> Self {
        Self::same(&message, Some(&help))
    }

    /// Creates an error from the operation that failed and an error of the operating system.
    pub fn io(failed: impl fmt::Display, error: &io::Error, attempt: Attempt) -> Self {
        Self::new(format_args!("{failed}: {}", reason(error, attempt)))
    }

    /// Creates an error from the diagnostics of a file.
    pub fn about(diagnostics: &Diagnostics, file: &str) -> Self {
        Self {
            text: diagnostics.render(file),
            brief: diagnostics.brief(file, format_words()),
            diagnostic_views: diagnostics.views(file),
            left_out: diagnostics.left_out(),
        }
    }

    /// Combines several errors into one.
    pub fn all(failures: &[Self]) -> Self {
        let texts: Vec<_> = failures.iter().map(|it| it.text.as_str()).collect();
        Self {
            text: texts.join("\n"),
            brief: failures.iter().map(|it| it.brief.as_str()).collect(),
            diagnostic_views: failures.iter().flat_map(|it| it.diagnostic_views.clone()).collect(),
            left_out: failures.iter().map(|it| it.left_out).sum(),
        }
    }

    /// Returns the report without text of the file.
    pub fn brief(&self) -> &str {
        self.brief.trim_end()
    }

    /// Returns the structured form and the number of omitted entries.
    pub fn views(&self) -> (&[DiagnosticView], usize) {
        (&self.diagnostic_views, self.left_out)
    }

    /// Creates an error whose brief form is the same, because it contains no text of a file.
    fn same(message: &dyn fmt::Display, help: Option<&dyn fmt::Display>) -> Self {
        let help: Vec<_> = help.iter().map(ToString::to_string).collect();
        let message = message.to_string();
        let message = without_numbers(&message);
        let mut text = format!("error: {message}\n");
        for help in &help {
            text.extend(["  = help: ", help, "\n"]);
        }
        let diagnostic_views = DiagnosticView {
            severity: Severity::Error,
            code: None,
            file: String::new(),
            at: None,
            message: message.into_owned(),
            label: String::new(),
            help,
            others: Vec::new(),
        };
        Self { brief: text.clone(), text, diagnostic_views: vec![diagnostic_views], left_out: 0 }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
