//! Who is refused most and what is asked for most, lately.

use std::sync::Arc;

use tollgate::Timestamp;

/// A key that is refused often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// How many refusals at most.
    pub refused: u64,
    /// How many at least.
    pub refused_at_least: u64,
}

/// A route that is asked for often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRoute {
    /// `GET` and so on.
    pub method: Box<str>,
    /// The path, cut where it is long.
    pub path: Box<str>,
    /// How many requests at most, scaled up from the sample.
    pub requests: u64,
    /// Of these, refused: at most.
    pub refused: u64,
}

/// Who is refused most and what is asked for most, in the last minutes.
pub(crate) struct Top;

impl Top {
    pub(crate) fn new() -> Self {
        Self
    }

    /// A key was refused. `name` is asked only for keys that are new here.
    pub(crate) fn refused(&self, spot: u64, at: Timestamp, name: impl FnOnce() -> (Arc<str>, Box<str>)) {
        let _ = (spot, at, name);
    }

    /// A route was asked for: a refusal, or one of a sample that stands for `weight`.
    pub(crate) fn routed(&self, method: &str, path: &str, refused: bool, weight: u64, at: Timestamp) {
        let _ = (method, path, refused, weight, at);
    }

    /// The keys refused most in the window, the most first.
    pub(crate) fn keys(&self, now: Timestamp, most: usize) -> Vec<TopKey> {
        let _ = (now, most);
        Vec::new()
    }

    /// The routes asked for most in the window, the most first.
    pub(crate) fn routes(&self, now: Timestamp, most: usize) -> Vec<HotRoute> {
        let _ = (now, most);
        Vec::new()
    }
}
