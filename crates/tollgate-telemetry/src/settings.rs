//! How much is remembered.

use tollgate::Span;

/// How much is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// How many refusals can be explained: the last ones. A quarter more is kept for the
    /// first refusal of each key in a minute.
    ///
    /// A record takes about half a kilobyte and a quarter for each limit that applied.
    pub records: usize,
    /// How long a key must have nothing left to be an alert.
    pub at_zero_for: Span,
    /// Of admitted requests without a sampled trace, one in so many is remembered for
    /// traces; zero: none.
    pub trace_one_in: u32,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { records: 16_384, at_zero_for: Span::from_secs(300), trace_one_in: 0 }
    }
}
