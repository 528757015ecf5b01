//! Warnings about likely mistakes in a configuration.

use std::fmt::Write as _;

use tollgate::policy::{Lint, format_words};
use tollgate_document::{DiagnosticView, Diagnostics, Severity};

/// A warning about a likely mistake.
#[derive(Clone, Debug)]
pub enum ConfigWarning {
    /// Warnings with positions in a file.
    Found {
        /// The name of the file.
        file: String,
        /// The warnings.
        found: Diagnostics,
    },
    /// A warning without a position, about several files or a missing one.
    Plain {
        /// The lint.
        code: Lint,
        /// The messages. They contain no text of a file.
        messages: Vec<String>,
        /// The number of further messages that are omitted.
        more: usize,
        /// How to resolve it.
        help: String,
    },
}

impl ConfigWarning {
    /// Returns the warnings of a file, if there are any.
    pub(super) fn found(file: &str, found: Diagnostics) -> Option<Self> {
        (!found.is_empty()).then(|| Self::Found { file: file.to_owned(), found })
    }

    /// Removes the expected warnings; `None` if no warning remains.
    pub fn without(self, expected: impl Fn(Lint) -> bool) -> Option<Self> {
        match self {
            Self::Found { file, found } => {
                Self::found(&file, found.without(|code| Lint::find(code).is_some_and(&expected)))
            }
            Self::Plain { code, .. } if expected(code) => None,
            plain @ Self::Plain { .. } => Some(plain),
        }
    }

    /// Returns the warning as text.
    pub fn text(&self) -> String {
        match self {
            Self::Found { file, found } => found.render(file),
            Self::Plain { code, messages, more, help } => {
                let mut out = String::new();
                for message in messages {
                    let _ = writeln!(out, "warning[{code}]: {message}");
                }
                if *more > 0 {
                    let _ = writeln!(out, "  and {more} more");
                }
                let _ = writeln!(out, "  = help: {help}");
                out
            }
        }
    }

    /// Returns the warning as text without quotes of the file.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Found { file, found } => found.brief(file, format_words()),
            Self::Plain { .. } => self.text(),
        }
    }

    /// Returns the structured form of each warning.
    pub fn views(&self) -> Vec<DiagnosticView> {
        match self {
            Self::Found { file, found } => found.views(file),
            Self::Plain { code, messages, help, .. } => {
                let view = |message: &String| DiagnosticView {
                    severity: Severity::Warning,
                    code: Some(code.code()),
                    file: String::new(),
                    at: None,
                    message: message.clone(),
                    label: String::new(),
                    help: vec![help.clone()],
                    others: Vec::new(),
                };
                messages.iter().map(view).collect()
            }
        }
    }

    /// Returns the number of omitted warnings.
    pub fn left_out(&self) -> usize {
        match self {
            Self::Found { found, .. } => found.left_out(),
            Self::Plain { more, .. } => *more,
        }
    }
}
