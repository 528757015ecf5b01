//! When each step is taken.
//!
//! All times of a test are known before it runs: what is waited, and how far apart the requests of
//! a step are. So a clock that would go back is a mistake in the file, with its line, and not a
//! surprise of the run.

use tollgate::policy::Located;
use tollgate::{Span, Timestamp};

use crate::expectation::Expectation;
use crate::request::TestRequest;

/// Where the clock starts if a test does not say: 2026-01-01T00:00:00Z, the start of a minute, an
/// hour, a day, a month and a year.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The longest that a test may last. Beyond it no allowance is still spent.
pub(crate) const MAX_DURATION: Span = Span::from_days(3_660);

/// A request, or several of the same.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The line it begins in.
    pub(crate) line: u32,
    /// When the first is made, since the start.
    pub(crate) at: Timestamp,
    /// When the test began.
    pub(crate) start: Timestamp,
    /// What is asked.
    pub(crate) asked: TestRequest,
    /// How often.
    pub(crate) times: u64,
    /// How far apart.
    pub(crate) every: Span,
    /// How long each runs, holding its slots.
    pub(crate) takes: Span,
    /// What it turns out to cost.
    pub(crate) settle: Option<Settle>,
    /// What must come of it.
    pub(crate) expectation: Option<Expectation>,
}

/// What a request turns out to cost.
#[derive(Clone, Debug)]
pub(crate) enum Settle {
    /// This, of limits that settle, or of all if none does.
    All(u64),
    /// This, of each of these limits.
    Limits(Vec<(Located<String>, u64)>),
}

/// The clock of a test that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    pub(crate) start: Timestamp,
    pub(crate) now: Timestamp,
}

impl Timeline {
    pub(crate) const fn from(start: Timestamp) -> Self {
        Self { start, now: start }
    }

    /// Moves on. Whether it may: not for longer than anybody means.
    pub(crate) fn wait(&mut self, span: Span) -> bool {
        self.set(self.now + span)
    }

    /// Moves on to a time. Whether it may: not back.
    pub(crate) fn set(&mut self, to: Timestamp) -> bool {
        let is_right = to >= self.now && to.since(self.start) <= MAX_DURATION;
        if is_right {
            self.now = to;
        }
        is_right
    }
}

impl Step {
    /// When request number `index` is made.
    pub(crate) fn time_of(&self, index: u64) -> Timestamp {
        let micros = self.every.as_micros().saturating_mul(index);
        self.at + Span::from_micros(micros)
    }
}
