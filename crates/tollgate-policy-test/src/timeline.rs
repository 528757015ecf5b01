//! The times of the steps.
//!
//! All times of a test are known before it runs: waits, and the distances between the requests of a step. A clock
//! that would go back is therefore a mistake in the file, reported with its line.

use tollgate::{Span, Timestamp};
use tollgate_document::Located;

use crate::expectation::Expectation;
use crate::request::TestRequest;

/// Default start of the clock: 2026-01-01T00:00:00Z, the start of a minute, hour, day, month and year.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The longest duration of a test. All charges have expired after it.
pub(crate) const MAX_DURATION: Span = Span::from_days(3_660);

/// A request, or several equal ones.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// First line of the step.
    pub(crate) line: u32,
    /// Time of the first request.
    pub(crate) at: Timestamp,
    /// Start of the test.
    pub(crate) start: Timestamp,
    /// The request.
    pub(crate) request: TestRequest,
    /// Number of requests.
    pub(crate) times: u64,
    /// Time between two requests.
    pub(crate) every: Span,
    /// Run time of each request, during which it holds its slots.
    pub(crate) takes: Span,
    /// Actual cost.
    pub(crate) settle: Option<Settle>,
    /// Expected outcome.
    pub(crate) expectation: Option<Expectation>,
}

/// The actual cost of a request.
#[derive(Clone, Debug)]
pub(crate) enum Settle {
    /// The cost of all limits that settle, or of all limits if none settles.
    All(u64),
    /// The cost of each of these limits.
    Limits(Vec<(Located<String>, u64)>),
}

/// The clock of a test during parsing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    pub(crate) start: Timestamp,
    pub(crate) now: Timestamp,
}

impl Timeline {
    pub(crate) const fn from(start: Timestamp) -> Self {
        Self { start, now: start }
    }

    /// Advances the clock. Returns `false` beyond the longest duration.
    pub(crate) fn wait(&mut self, span: Span) -> bool {
        self.set(self.now + span)
    }

    /// Sets the clock to a time. Returns `false` if that is in the past.
    pub(crate) fn set(&mut self, to: Timestamp) -> bool {
        let is_right = to >= self.now && to.since(self.start) <= MAX_DURATION;
        if is_right {
            self.now = to;
        }
        is_right
    }
}

impl Step {
    /// Returns the time of request number `index`.
    pub(crate) fn time_of(&self, index: u64) -> Timestamp {
        let micros = self.every.as_micros().saturating_mul(index);
        self.at + Span::from_micros(micros)
    }
}
