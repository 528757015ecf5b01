//! The texts that one tree was read from.
//!
//! Usually a tree has one file. The binary joins a second file to it and sets values from
//! the command line and the environment. Each text is kept, so that a
//! mistake is shown where it was made.

use std::sync::{Arc, LazyLock};

/// One text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The name in messages; `None` if only the renderer knows it.
    pub(crate) name: Option<Arc<str>>,
    /// The text.
    pub(crate) text: Arc<str>,
    /// Whether line numbers help to find a place in it.
    pub(crate) is_file: bool,
}

/// The texts of a tree in the order of reading; the first is the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources(Arc<Vec<Source>>);

static EMPTY_SOURCE: LazyLock<Source> = LazyLock::new(|| Source { is_file: true, ..Source::default() });

impl Sources {
    /// Creates the sources of a single file.
    pub(crate) fn file(text: &str) -> Self {
        Self(Arc::new(vec![Source { name: None, text: text.into(), is_file: true }]))
    }

    /// Returns the text with this index.
    pub(crate) fn get(&self, number: u32) -> &Source {
        self.0.get(number as usize).unwrap_or(&EMPTY_SOURCE)
    }

    /// Returns the text of the file.
    pub(crate) fn first(&self) -> &Source {
        self.get(0)
    }

    /// Returns all texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|source| &*source.text)
    }

    /// Adds a text and returns its index.
    pub(crate) fn add(&mut self, source: Source) -> u32 {
        let sources = Arc::make_mut(&mut self.0);
        sources.push(source);
        u32::try_from(sources.len() - 1).unwrap_or(u32::MAX)
    }
}
