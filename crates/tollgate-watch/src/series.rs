//! How many, and when: the last minutes, second by second.

use tollgate::Timestamp;

/// All decisions, second by second, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The second that the last element is of, since 1970.
    pub until: u64,
    /// Admitted.
    pub allowed: Vec<u32>,
    /// Refused, for whatever reason.
    pub refused: Vec<u32>,
    /// Admitted, although a limit in shadow mode would have refused.
    pub shadow_limited: Vec<u32>,
    /// Decided without the store.
    pub degraded: Vec<u32>,
}

/// One limit, in steps of five seconds, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSeries {
    /// It had room.
    pub allowed: Vec<u32>,
    /// It refused, or would have in shadow mode.
    pub limited: Vec<u32>,
    /// The least share of an allowance that any key had left, in per mille; `None`: not asked.
    pub remaining: Vec<Option<u16>>,
}

/// The last minutes of everything.
pub(crate) struct History;

impl History {
    pub(crate) fn new() -> Self {
        Self
    }

    /// A second has passed.
    pub(crate) fn tick(&self, now: Timestamp) {
        let _ = now;
    }
}
