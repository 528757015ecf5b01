//! Why a command ends with status 2: a text that says what to change.
//!
//! Whoever typed the command may see the file that it is about. Whoever reads the
//! log, or asks a server whether it is ready, may not: for them there is a brief
//! form, without a line of the file.

use std::fmt;

use tollgate::policy::Diagnostics;

/// A report for whoever typed the command, complete and ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    text: String,
    brief: String,
}

impl Failure {
    /// One sentence, in lower case.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self::same(format!("error: {message}\n"))
    }

    /// One sentence, and what to do about it.
    pub(crate) fn with_help(message: impl fmt::Display, help: impl fmt::Display) -> Self {
        Self::same(format!("error: {message}\n  = help: {help}\n"))
    }

    /// What is wrong with a file.
    pub(crate) fn about(diagnostics: &Diagnostics, file: &str) -> Self {
        Self { text: diagnostics.render(file), brief: diagnostics.brief(file) }
    }

    /// Several at once: one run names them all.
    pub(crate) fn all(failures: &[Self]) -> Self {
        let texts: Vec<_> = failures.iter().map(|it| it.text.as_str()).collect();
        Self { text: texts.join("\n"), brief: failures.iter().map(|it| it.brief.as_str()).collect() }
    }

    /// For readers who may not see the file.
    pub(crate) fn brief(&self) -> &str {
        self.brief.trim_end()
    }

    /// Nothing in it comes from a file.
    fn same(text: String) -> Self {
        Self { brief: text.clone(), text }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
