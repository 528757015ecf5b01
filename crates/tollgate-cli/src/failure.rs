//! Why a command ends with status 2: a text that says what to change.
//!
//! Whoever typed the command may see the file that it is about. Whoever reads the
//! log, or asks a server whether it is ready, may not: for them there is a brief
//! form, without a line of the file.

use std::fmt;

use tollgate::policy::{DiagnosticView, Diagnostics, Severity};

use crate::io_error::without_numbers;

/// A report for whoever typed the command, complete and ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    text: String,
    brief: String,
    /// The same in parts, and how many were left out.
    told: Vec<DiagnosticView>,
    left_out: usize,
}

impl Failure {
    /// One sentence, in lower case.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self::same(&message, None)
    }

    /// One sentence, and what to do about it.
    pub(crate) fn with_help(message: impl fmt::Display, help: impl fmt::Display) -> Self {
        Self::same(&message, Some(&help))
    }

    /// What is wrong with a file.
    pub(crate) fn about(diagnostics: &Diagnostics, file: &str) -> Self {
        Self {
            text: diagnostics.render(file),
            brief: diagnostics.brief(file),
            told: diagnostics.views(file),
            left_out: diagnostics.left_out(),
        }
    }

    /// Several at once: one run names them all.
    pub(crate) fn all(failures: &[Self]) -> Self {
        let texts: Vec<_> = failures.iter().map(|it| it.text.as_str()).collect();
        Self {
            text: texts.join("\n"),
            brief: failures.iter().map(|it| it.brief.as_str()).collect(),
            told: failures.iter().flat_map(|it| it.told.clone()).collect(),
            left_out: failures.iter().map(|it| it.left_out).sum(),
        }
    }

    /// For readers who may not see the file.
    pub(crate) fn brief(&self) -> &str {
        self.brief.trim_end()
    }

    /// Each thing that is wrong, in parts, and how many more there are.
    pub(crate) fn views(&self) -> (&[DiagnosticView], usize) {
        (&self.told, self.left_out)
    }

    /// Nothing in it comes from a file.
    fn same(message: &dyn fmt::Display, help: Option<&dyn fmt::Display>) -> Self {
        let help: Vec<_> = help.iter().map(ToString::to_string).collect();
        let message = message.to_string();
        let message = without_numbers(&message);
        let mut text = format!("error: {message}\n");
        for help in &help {
            text.extend(["  = help: ", help, "\n"]);
        }
        let told = DiagnosticView {
            severity: Severity::Error,
            code: None,
            file: String::new(),
            at: None,
            message: message.into_owned(),
            label: String::new(),
            help,
            others: Vec::new(),
        };
        Self { brief: text.clone(), text, told: vec![told], left_out: 0 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
