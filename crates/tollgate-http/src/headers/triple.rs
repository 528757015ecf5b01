//! Limit, remaining, reset: three headers about one limit.
//!
//! Most services write `X-RateLimit-*` and most clients read it. The IETF drafts up to 6 have the
//! same three headers without `X-`. The reset of `X-RateLimit-*` is a date in some dialects and a
//! delay in others; the reset of the IETF drafts is always a delay.

use http::HeaderName;
use tollgate::{LimitOutcome, Timestamp};

use super::HeaderWriter;
use super::until_change;

/// The names of three headers that belong together.
pub(super) struct Triple {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
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
            // Rounds after the addition, so that all responses within a window state the same
            // second.
            Reset::Epoch(at) => (at + until).as_secs_ceil(),
            Reset::Delta => until.as_secs_ceil(),
        };
        writer.number_for(&self.limit, limit.outcome().limit);
        writer.number_for(&self.remaining, limit.outcome().remaining);
        writer.number_for(&self.reset, reset);
    }
}
