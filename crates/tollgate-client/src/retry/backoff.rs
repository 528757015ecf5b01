//! Exponential backoff with full jitter.

use tollgate::Span;

/// The waits between attempts, if the server names none.
///
/// The wait before the nth retry is random between zero and `base` · 2ⁿ⁻¹, at most `max` ("full jitter"): callers that
/// failed together return at different times. A wait that the server names is extended by a small random part, and is
/// never shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The largest wait before the first retry.
    pub base: Span,
    /// The largest wait before any retry.
    pub max: Span,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Span::from_millis(100), max: Span::from_secs(20) }
    }
}

/// The part of a named wait by which it is extended at most, and the largest extension.
const WAIT_JITTER: (f64, Span) = (0.05, Span::from_millis(250));

impl Backoff {
    /// Returns the wait after `failures` failed attempts. `random` is in the range from 0 to 1.
    pub fn wait(&self, failures: u32, random: f64) -> Span {
        let doubled = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        part(Span::from_micros(self.base.as_micros().saturating_mul(doubled)).min(self.max), random)
    }

    /// Returns the wait after `refusals` refusals without a named wait: at least half of the largest, because a server
    /// that refuses needs fewer calls now.
    pub fn refusal_wait(&self, refusals: u32, random: f64) -> Span {
        let half = Backoff { base: Span::from_millis(500), ..*self };
        half.wait(refusals, 0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// Returns a named wait with its extension.
    pub fn extend_wait(wait: Span, random: f64) -> Span {
        wait + part(wait, random * WAIT_JITTER.0).min(WAIT_JITTER.1)
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // jitter is inexact
fn part(span: Span, share: f64) -> Span {
    Span::from_micros((span.as_micros() as f64 * share.clamp(0.0, 1.0)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum_and_are_spread_over_the_whole_range() {
        let backoff = Backoff { base: Span::from_millis(100), max: Span::from_secs(1) };
        for (failures, millis) in
            [(0, 100), (1, 100), (2, 200), (4, 800), (5, 1_000), (64, 1_000), (u32::MAX, 1_000)]
        {
            assert_eq!(backoff.wait(failures, 1.0), Span::from_millis(millis), "{failures}");
            assert_eq!(backoff.wait(failures, 0.0), Span::ZERO);
            assert_eq!(backoff.wait(failures, f64::NAN), Span::ZERO);
        }
    }

    #[test]
    fn a_named_wait_is_never_shortened() {
        for random in [0.0, 0.3, 1.0, -1.0, f64::NAN] {
            let named = Span::from_secs(2);
            let wait = Backoff::extend_wait(named, random);
            assert!(wait >= named && wait <= named + Span::from_millis(100), "{random}: {wait:?}");
        }
        assert_eq!(
            Backoff::extend_wait(Span::from_hours(1), 1.0),
            Span::from_hours(1) + Span::from_millis(250)
        );
    }
}
