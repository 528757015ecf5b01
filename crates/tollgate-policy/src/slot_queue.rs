//! The queue of a concurrency limit: requests that wait for a slot.
//!
//! The queue of a leaky bucket is arithmetic on its state (`tollgate_core::Queue`). Requests that wait
//! for a slot have no state in the store: they wait on their node (`tollgate`), in the order of their
//! priority, then in turn by the `fair_by` key, then first come, first served.

use std::hash::BuildHasher as _;
use std::sync::OnceLock;

use foldhash::quality::RandomState;
use tollgate_core::Span;

use crate::key::Key;
use crate::source::KeySource;

/// The maximum number of requests that wait for a slot of one key on one node.
pub(crate) const MAX_LENGTH: u64 = 1_000_000;

/// The longest time that a request may wait for a slot.
pub(crate) const MAX_WAIT: Span = Span::from_minutes(60);

/// The default of `wait`.
pub(crate) const DEFAULT_WAIT: Span = Span::from_secs(1);

/// The queue of a limit with `slots`.
///
/// ```
/// # use tollgate_policy::Policy;
/// let policy = Policy::parse("
/// limits:
///   - {name: db, by: global, slots: 100, queue: {length: 200, wait: 1s}, fair_by: tenant}
/// ")?;
/// let queue = policy.limits()[0].slot_queue().expect("requests wait");
/// assert_eq!((queue.length(), queue.wait().as_micros()), (200, 1_000_000));
/// assert_eq!(queue.fair_sources()[0].to_string(), "tenant");
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotQueue {
    pub(crate) length: usize,
    pub(crate) wait: Span,
    pub(crate) fair_by: Vec<KeySource>,
}

impl SlotQueue {
    /// Creates a queue of `length` requests that wait for at most `wait`. Both are clamped to the
    /// bounds of the file format: 1 to 1,000,000 requests, 1 ms to 1 hour.
    pub fn new(length: usize, wait: impl Into<Span>) -> Self {
        let longest = usize::try_from(MAX_LENGTH).unwrap_or(usize::MAX);
        let wait = wait.into().clamp(Span::from_millis(1), MAX_WAIT);
        Self { length: length.clamp(1, longest), wait, fair_by: Vec::new() }
    }

    /// Serves the keys of these sources in turn. Repeated calls make a key of several parts.
    #[must_use]
    pub fn fair_by(mut self, source: KeySource) -> Self {
        self.fair_by.push(source);
        self
    }

    /// Returns the maximum number of requests that wait for a slot of one key on one node.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Returns the longest time that a request waits.
    pub const fn wait(&self) -> Span {
        self.wait
    }

    /// Returns the parts of the key that shares the slots fairly; empty: all requests have one key.
    pub fn fair_sources(&self) -> &[KeySource] {
        &self.fair_by
    }
}

/// Returns a number for a `fair_by` key, the same for equal keys of this process. Callers cannot
/// choose keys of equal numbers, because the hash has a random seed.
pub(crate) fn fair_number(key: &Key) -> u64 {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    SEED.get_or_init(RandomState::default).hash_one(key.as_bytes())
}
