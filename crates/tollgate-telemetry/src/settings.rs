//! The settings of a watcher.

use tollgate::Span;

/// The settings of a [`Watcher`](crate::Watcher), which bound its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// The number of most recent refusals that can be explained. A quarter more is kept for the first
    /// refusal of each key in a minute.
    ///
    /// A record takes one kilobyte, and its memory is reserved at the start. Only a decision that does not fit,
    /// because of many limits or long texts, takes more.
    pub records: usize,
    /// The time for which a key must have nothing left to become an alert.
    pub at_zero_for: Span,
    /// Records one in this many admitted requests without a sampled trace, for traces; zero records
    /// none of them.
    pub trace_one_in: u32,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { records: 16_384, at_zero_for: Span::from_secs(300), trace_one_in: 0 }
    }
}
