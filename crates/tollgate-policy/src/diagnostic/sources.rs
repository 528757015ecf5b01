//! The texts that one tree was read from.
//!
//! Mostly one file. The binary joins a second file to it and sets values from
//! the command line and the environment; each keeps its own text, so that a
//! mistake is shown where it was made.

use std::sync::{Arc, LazyLock};

/// One text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// How messages call it; `None` when only whoever shows them knows.
    pub(crate) name: Option<Arc<str>>,
    /// What was written.
    pub(crate) text: Arc<str>,
    /// Whether its lines have numbers that help to find them.
    pub(crate) is_file: bool,
}

/// The texts of a tree, in the order in which they came; the first is the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources(Arc<Vec<Source>>);

static EMPTY_SOURCE: LazyLock<Source> = LazyLock::new(|| Source { is_file: true, ..Source::default() });

impl Sources {
    /// A file alone.
    pub(crate) fn file(text: &str) -> Self {
        Self(Arc::new(vec![Source { name: None, text: text.into(), is_file: true }]))
    }

    /// The text with this number.
    pub(crate) fn get(&self, number: u32) -> &Source {
        self.0.get(number as usize).unwrap_or(&EMPTY_SOURCE)
    }

    /// The text of the file.
    pub(crate) fn first(&self) -> &Source {
        self.get(0)
    }

    /// All that was written.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|source| &*source.text)
    }

    /// Adds a text and says its number.
    pub(crate) fn add(&mut self, source: Source) -> u32 {
        let sources = Arc::make_mut(&mut self.0);
        sources.push(source);
        u32::try_from(sources.len() - 1).unwrap_or(u32::MAX)
    }
}
