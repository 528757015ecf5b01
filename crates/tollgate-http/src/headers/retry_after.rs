//! The wait that a refused caller is told.
//!
//! `Retry-After` has whole seconds. It is rounded up and never zero, because some clients treat
//! zero as a missing header and retry immediately. Two SDK families read `retry-after-ms` first,
//! which has the same wait in milliseconds.
//!
//! The wait before jitter comes from [`Decision::advised_wait`], so that metrics and records use
//! the same value.
//!
//! Jitter only extends the wait: callers that were refused together retry at different times, and
//! never before they can pass. The random number is an argument.

use std::time::Duration;

use tollgate::policy::HeaderSettings;
use tollgate::{Decision, LimitOutcome, Quota, Span};

use super::header_sink::{FieldName, HeaderSink};

static RETRY_AFTER: FieldName = FieldName::new("retry-after: ");
static RETRY_AFTER_MS: FieldName = FieldName::new("retry-after-ms: ");

/// The wait if no limit can compute one.
const DEFAULT_RETRY_AFTER: Span = Span::from_secs(1);

/// The minimum jitter of a refusal by a shedder, in percent of the wait. Shed callers would otherwise
/// return together, when the overload is about to end.
const SHED_JITTER_PERCENT: u8 = 200;

/// The wait after which a refused caller may retry.
///
/// Refusals that waiting cannot resolve have no such wait.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::RetryAfter;
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]")?;
/// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
/// assert!(RetryAfter::of(&limiter.check(&call), 0, 0).is_none());
/// assert_eq!(RetryAfter::of(&limiter.check(&call), 0, 0).map(|it| it.seconds()), Some(60));
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(Span);

impl RetryAfter {
    /// Returns the wait of a refusal, extended by up to `jitter_percent`: not at all for the random
    /// number 0, by the full percentage for `u32::MAX`.
    pub fn of(decision: &Decision<'_>, jitter_percent: u8, rng: u32) -> Option<Self> {
        decision.advised_wait().map(|wait| Self::with_jitter(wait, jitter_percent, rng))
    }

    /// Returns the wait of a refusal, extended as the policy says, and by up to 200 percent for a
    /// refusal by a shedder. `rng` is called only if there is jitter.
    pub fn jittered(
        decision: &Decision<'_>,
        settings: &HeaderSettings,
        rng: impl FnOnce() -> u32,
    ) -> Option<Self> {
        let wait = decision.advised_wait()?;
        let written = settings.retry_after_jitter;
        let jitter = if decision.is_shed() { written.max(SHED_JITTER_PERCENT) } else { written };
        Some(Self::with_jitter(wait, jitter, if jitter > 0 { rng() } else { 0 }))
    }

    /// Returns this wait, extended as by [`of`](Self::of).
    pub fn with_jitter(wait: Duration, jitter_percent: u8, rng: u32) -> Self {
        Self(stretched(wait.into(), jitter_percent, rng))
    }

    /// Returns the advertised wait of one limit: `None` if the limit has room or if waiting does
    /// not help.
    pub fn of_limit(limit: &LimitOutcome<'_>) -> Option<Self> {
        limit.advised_wait().map(|wait| Self(wait.into()))
    }

    /// The default wait, for a refusal without a computable wait.
    pub(crate) const fn shortly() -> Self {
        Self(DEFAULT_RETRY_AFTER)
    }

    /// The exact wait, with jitter.
    pub fn wait(self) -> Duration {
        self.0.into()
    }

    /// The wait in whole seconds, rounded up, at least one.
    pub fn seconds(self) -> u64 {
        self.0.as_secs_ceil().max(1)
    }

    /// The wait in whole milliseconds, rounded up, at least one.
    pub fn millis(self) -> u64 {
        self.0.as_millis_ceil().max(1)
    }

    pub(super) fn write(self, sink: &mut impl HeaderSink) {
        sink.number_for(&RETRY_AFTER, self.seconds());
        sink.number_for(&RETRY_AFTER_MS, self.millis());
    }
}

/// The time for which the header values of a limit hold: until the limit admits the refused
/// request, or until it is nearly unused.
pub(super) fn until_change(limit: &LimitOutcome<'_>) -> Span {
    let unused = || if has_slots(limit) { DEFAULT_RETRY_AFTER } else { limit.outcome().reset_after };
    limit.advised_wait().map_or_else(unused, Span::from)
}

fn has_slots(limit: &LimitOutcome<'_>) -> bool {
    matches!(limit.rule().quota, Quota::Concurrency(_))
}

fn stretched(wait: Span, jitter_percent: u8, rng: u32) -> Span {
    let micros = u128::from(wait.as_micros());
    let more = micros * u128::from(jitter_percent) * u128::from(rng) / (100 * u128::from(u32::MAX));
    wait + Span::from_micros(u64::try_from(more).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_never_zero() {
        for (micros, seconds, millis) in
            [(0, 1, 1), (1, 1, 1), (1_000_000, 1, 1_000), (1_000_001, 2, 1_001), (2_999_999, 3, 3_000)]
        {
            let wait = RetryAfter(Span::from_micros(micros));
            assert_eq!((wait.seconds(), wait.millis()), (seconds, millis), "{micros} us");
        }
    }

    #[test]
    fn jitter_extends_the_wait_by_at_most_its_percentage() {
        let wait = Span::from_secs(100);
        for (percent, rng, expected) in [
            (0, u32::MAX, 100),
            (10, 0, 100),
            (10, u32::MAX, 110),
            (10, u32::MAX / 2, 105),
            (255, u32::MAX, 355),
        ] {
            assert_eq!(stretched(wait, percent, rng).as_secs_ceil(), expected, "{percent} % by {rng}");
        }
        assert_eq!(stretched(Span::from_micros(u64::MAX), 100, u32::MAX), Span::from_micros(u64::MAX));
    }
}
