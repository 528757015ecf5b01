//! What works and is probably not meant, in a file or beside it.

use std::fmt::Write as _;

use tollgate::policy::{DiagnosticView, Diagnostics, Lint, Severity};

/// Something to warn of.
#[derive(Clone, Debug)]
pub(crate) enum ConfigWarning {
    /// In a file, each at its place.
    Found {
        /// How the file is called.
        file: String,
        /// What was found in it.
        found: Diagnostics,
    },
    /// Of no place: about several files, or what is not there.
    Plain {
        /// Which kind.
        code: Lint,
        /// What is the matter, once or several times. None of it quotes a file.
        messages: Vec<String>,
        /// How many more times.
        more: usize,
        /// What to do about it.
        help: String,
    },
}

impl ConfigWarning {
    /// What was found in a file, if anything.
    pub(super) fn found(file: &str, found: Diagnostics) -> Option<Self> {
        (!found.is_empty()).then(|| Self::Found { file: file.to_owned(), found })
    }

    /// The same without what is expected, if anything remains.
    pub(crate) fn without(self, expected: impl Fn(Lint) -> bool) -> Option<Self> {
        match self {
            Self::Found { file, found } => Self::found(&file, found.without(expected)),
            Self::Plain { code, .. } if expected(code) => None,
            plain @ Self::Plain { .. } => Some(plain),
        }
    }

    /// Ready to print.
    pub(crate) fn text(&self) -> String {
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

    /// The same, for readers who may not see the file.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Found { file, found } => found.brief(file),
            Self::Plain { .. } => self.text(),
        }
    }

    /// Each of them, in parts.
    pub(crate) fn views(&self) -> Vec<DiagnosticView> {
        match self {
            Self::Found { file, found } => found.views(file),
            Self::Plain { code, messages, help, .. } => {
                let told = |message: &String| DiagnosticView {
                    severity: Severity::Warning,
                    code: Some(*code),
                    file: String::new(),
                    at: None,
                    message: message.clone(),
                    label: String::new(),
                    help: vec![help.clone()],
                    others: Vec::new(),
                };
                messages.iter().map(told).collect()
            }
        }
    }

    /// How many more there are than are told.
    pub(crate) fn left_out(&self) -> usize {
        match self {
            Self::Found { found, .. } => found.left_out(),
            Self::Plain { more, .. } => *more,
        }
    }
}
