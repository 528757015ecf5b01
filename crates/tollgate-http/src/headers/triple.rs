//! Limit, remaining, reset: three numbers about the limit that matters most.
//!
//! `X-RateLimit-*` is what most services write and most clients read; the IETF
//! drafts up to 6 have the same three without the `X-`. The reset of the former
//! is a date for some and a delay for others, of the latter always a delay.

use http::HeaderName;
use tollgate::{LimitOutcome, Timestamp};

use super::HeaderWriter;
use super::until_change;

/// Three headers that go together.
pub(super) struct Triple {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

/// How a reset is written.
#[derive(Clone, Copy)]
pub(super) enum Reset {
    /// As seconds since 1970, for an answer given at this time.
    Epoch(Timestamp),
    /// As seconds from now.
    Delta,
}

pub(super) static X_RATELIMIT: Triple = Triple {
    limit: HeaderName::from_static("x-ratelimit-limit"),
    remaining: HeaderName::from_static("x-ratelimit-remaining"),
    reset: HeaderName::from_static("x-ratelimit-reset"),
};

pub(super) static RATELIMIT: Triple = Triple {
    limit: HeaderName::from_static("ratelimit-limit"),
    remaining: HeaderName::from_static("ratelimit-remaining"),
    reset: HeaderName::from_static("ratelimit-reset"),
};

impl Triple {
    pub(super) fn write(&'static self, writer: &mut HeaderWriter, limit: &LimitOutcome<'_>, reset: Reset) {
        let until = until_change(limit);
        let reset = match reset {
            // Added before rounding: the end of a window is then the same second
            // for every answer within it.
            Reset::Epoch(at) => (at + until).as_secs_ceil(),
            Reset::Delta => until.as_secs_ceil(),
        };
        writer.number_for(&self.limit, limit.outcome().limit);
        writer.number_for(&self.remaining, limit.outcome().remaining);
        writer.number_for(&self.reset, reset);
    }
}
