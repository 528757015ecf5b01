//! The link to the store of another region: its round trip, and when to leave it alone.

use tollgate_core::{Span, Timestamp};

/// The pause after the first failure, which doubles each time.
const FIRST_PAUSE: Span = Span::from_millis(500);

/// The longest pause.
const MAX_PAUSE: Span = Span::from_secs(30);

/// How long a measured round trip counts. A slow link is then measured again.
const MEASUREMENT_TTL: Span = Span::from_secs(10);

/// The state of the link to the store of another region.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The failures since the last answer.
    failures: u32,
    /// The time before which no call is made.
    not_before: Timestamp,
    /// The duration of the last answered call, and its time.
    round_trip: Option<(Span, Timestamp)>,
}

impl Link {
    pub(super) const fn is_reachable(&self) -> bool {
        self.failures == 0
    }

    pub(super) fn round_trip(&self) -> Option<Span> {
        self.round_trip.map(|(span, _)| span)
    }

    /// Returns whether units may be borrowed for `ttl`: the link is not left alone, and units live for at
    /// least two round trips, of which the answer takes one.
    pub(super) fn may_call(&self, now: Timestamp, ttl: Span) -> bool {
        let is_too_far = self.round_trip.is_some_and(|(span, at)| {
            ttl.as_micros() / 2 < span.as_micros() && now.since(at) < MEASUREMENT_TTL
        });
        now >= self.not_before && !is_too_far
    }

    /// Records the beginning of a call. After a failure, one call at a time tries whether the store
    /// answers again.
    pub(super) fn begin(&mut self, now: Timestamp) {
        if self.failures > 0 {
            self.not_before = now + self.pause();
        }
    }

    pub(super) fn succeed(&mut self, round_trip: Span, now: Timestamp) {
        *self = Self { failures: 0, not_before: Timestamp::EPOCH, round_trip: Some((round_trip, now)) };
    }

    pub(super) fn fail(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + self.pause();
    }

    fn pause(&self) -> Span {
        let doubled = FIRST_PAUSE.as_micros() << self.failures.saturating_sub(1).min(16);
        Span::from_micros(doubled).min(MAX_PAUSE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    #[test]
    fn a_store_that_fails_is_left_alone_for_longer_and_longer() {
        let mut link = Link::default();
        let (mut now, ttl) = (NOW, Span::from_secs(10));
        for pause in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            link.begin(now);
            link.fail(now);
            assert!(!link.is_reachable());
            now = now + Span::from_millis(pause - 1);
            assert!(!link.may_call(now, ttl), "{pause}");
            now = now + Span::from_millis(1);
            assert!(link.may_call(now, ttl), "{pause}");
        }
        link.begin(now);
        assert!(!link.may_call(now, ttl), "one call at a time");
        link.succeed(Span::from_millis(80), now);
        assert!(link.is_reachable() && link.may_call(now, ttl));
    }

    #[test]
    fn units_that_live_for_less_than_two_round_trips_are_not_borrowed() {
        let mut link = Link::default();
        assert!(link.may_call(NOW, Span::from_millis(10)), "not measured yet");
        link.succeed(Span::from_millis(80), NOW);
        assert!(link.may_call(NOW, Span::from_millis(160)));
        assert!(!link.may_call(NOW, Span::from_millis(159)));
        assert!(link.may_call(NOW + MEASUREMENT_TTL, Span::from_millis(159)), "measured again");
    }
}
