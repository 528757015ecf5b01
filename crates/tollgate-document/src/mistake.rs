//! A mistake in a piece of text, before its place in the file is known.

use std::ops::Range;

use crate::diagnostic::Problems;
use crate::document::Node;

/// The reason why a text is invalid, before the place of the text in its file is known.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the text that are wrong; `None` for the whole text.
    at: Option<Range<usize>>,
    message: String,
    label: String,
    help: Option<String>,
}

impl Mistake {
    /// Creates a mistake of the whole text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { at: None, message: message.into(), label: String::new(), help: None }
    }

    /// Sets the bytes of the text that are wrong.
    #[must_use]
    pub fn at(mut self, bytes: Range<usize>) -> Self {
        self.at = Some(bytes);
        self
    }

    /// Shifts the mistake, for a text that is the end of a longer one.
    #[must_use]
    pub fn after(mut self, bytes: usize) -> Self {
        self.at = self.at.map(|at| at.start + bytes..at.end + bytes);
        self
    }

    /// Sets the text beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the label `` did you mean `this`? ``.
    #[must_use]
    pub fn meant(self, meant: impl AsRef<str>) -> Self {
        self.label(format!("did you mean `{}`?", meant.as_ref()))
    }

    /// Sets the suggestion for a fix.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the message without a place.
    pub fn into_message(self) -> String {
        self.message
    }

    /// Reports the mistake at its place. `node` holds the text that was parsed.
    pub fn report(self, node: &Node, problems: &mut Problems) {
        let place = match (self.at, node.text()) {
            (Some(bytes), Some(text)) => {
                let characters = |upto: usize| text.get(..upto).map_or(0, |head| head.chars().count());
                node.part(characters(bytes.start)..characters(bytes.end))
            }
            _ => node.place,
        };
        let problem = problems.error(place, self.message).label(self.label);
        if let Some(help) = self.help {
            problem.help(help);
        }
    }
}
