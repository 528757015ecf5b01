//! Limit, remaining, reset: three headers about one limit.
//!
//! Most services write `X-RateLimit-*` and most clients read it. The IETF drafts up to 6 have the
//! same three headers without `X-`. The reset of `X-RateLimit-*` is a date in some dialects and a
//! delay in others; the reset of the IETF drafts is always a delay.

use tollgate::{LimitOutcome, Timestamp};

use super::header_sink::{FieldName, HeaderSink};
use super::until_change;

/// The names of three headers that belong together.
pub(super) struct Triple {
    limit: FieldName,
    remaining: FieldName,
    reset: FieldName,
}

/// The format of a reset.
#[derive(Clone, Copy)]
pub(super) enum Reset {
    /// Seconds since 1970, for a response at this time.
    Epoch(Timestamp),
    /// Seconds from now.
    Delta,
}

pub(super) static X_RATELIMIT: Triple = Triple {
    limit: FieldName::new("x-ratelimit-limit: "),
    remaining: FieldName::new("x-ratelimit-remaining: "),
    reset: FieldName::new("x-ratelimit-reset: "),
};

pub(super) static RATELIMIT: Triple = Triple {
    limit: FieldName::new("ratelimit-limit: "),
    remaining: FieldName::new("ratelimit-remaining: "),
    reset: FieldName::new("ratelimit-reset: "),
};

impl Triple {
    pub(super) fn write(&'static self, sink: &mut impl HeaderSink, limit: &LimitOutcome<'_>, reset: Reset) {
        let until = until_change(limit);
        let reset = match reset {
            // Rounds after the addition, so that all responses within a window state the same
            // second.
            Reset::Epoch(at) => (at + until).as_secs_ceil(),
            Reset::Delta => until.as_secs_ceil(),
        };
        sink.number_for(&self.limit, limit.outcome().limit);
        sink.number_for(&self.remaining, limit.outcome().remaining);
        sink.number_for(&self.reset, reset);
    }
}
