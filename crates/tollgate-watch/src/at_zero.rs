//! Keys that have nothing left for minutes.

use std::sync::Arc;

use tollgate::{Span, Timestamp};

/// A key that has had nothing left for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtZero {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Tells the allowance from all others, in this process.
    pub spot: u64,
    /// Since when.
    pub since: Timestamp,
    /// When it was last seen so.
    pub last: Timestamp,
    /// How many requests were refused since.
    pub refused: u64,
}

/// Keys that have nothing left.
pub(crate) struct ZeroKeys;

impl ZeroKeys {
    /// After so long a key is an alert.
    pub(crate) fn new(after: Span) -> Self {
        let _ = after;
        Self
    }

    /// A key has nothing left. `name` is asked only for keys that are new here.
    pub(crate) fn empty(
        &self,
        spot: u64,
        refused: bool,
        at: Timestamp,
        name: impl FnOnce() -> (Arc<str>, Box<str>),
    ) {
        let _ = (spot, refused, at, name);
    }

    /// A key has something left.
    pub(crate) fn left(&self, spot: u64) {
        let _ = spot;
    }

    /// The keys that have had nothing left for long enough, the longest first.
    pub(crate) fn alerts(&self, now: Timestamp) -> Vec<AtZero> {
        let _ = now;
        Vec::new()
    }
}
