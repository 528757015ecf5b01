//! Why a command ends with status 2: a text that says what to change.

use std::fmt;

use tollgate::policy::Diagnostics;

/// A report for whoever typed the command, complete and ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(String);

impl Failure {
    /// One sentence, in lower case.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(format!("error: {message}\n"))
    }

    /// One sentence, and what to do about it.
    pub(crate) fn with_help(message: impl fmt::Display, help: impl fmt::Display) -> Self {
        Self(format!("error: {message}\n  = help: {help}\n"))
    }

    /// What is wrong with a file.
    pub(crate) fn about(diagnostics: &Diagnostics, file: &str) -> Self {
        Self(diagnostics.render(file))
    }

    /// Several at once: one run names them all.
    pub(crate) fn all(failures: &[Self]) -> Self {
        let texts: Vec<_> = failures.iter().map(|it| it.0.as_str()).collect();
        Self(texts.join("\n"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
