//! The clock of Redis, as estimated from its replies.
//!
//! In: the time of the server in each reply, with the local times around the call. Out: the time
//! that the server shows now, and the local time at which it executed a call.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use tollgate_core::{Span, Timestamp};

/// How long a reading is preferred to readings with a longer round trip; clocks drift.
const READING_LIFETIME: Span = Span::from_secs(10);

/// The clock of Redis.
#[derive(Default)]
pub(crate) struct RedisClock {
    /// How far the clock of Redis is ahead of the local clock, in microseconds, as last read.
    ahead: AtomicI64,
    /// The most precise recent reading.
    best: Mutex<Reading>,
}

/// The times of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    /// When Redis executed the call, by the clock of Redis.
    pub(crate) redis: Timestamp,
    /// When the call was sent, by the local clock.
    pub(crate) sent: Timestamp,
    /// When Redis most likely executed the call, by the local clock.
    pub(crate) executed: Timestamp,
    /// When the reply was received, by the local clock.
    pub(crate) received: Timestamp,
}

/// A reading of the clock of Redis, taken between two local times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    shown: Timestamp,
    sent: Timestamp,
    received: Timestamp,
}

impl Reading {
    fn round_trip(self) -> Span {
        self.received.since(self.sent)
    }

    /// Converts a time of Redis to the local clock, assuming that the reading was taken in the
    /// middle of the round trip.
    fn to_local(self, time: Timestamp) -> Timestamp {
        let middle = self.sent + Span::from_micros(self.round_trip().as_micros() / 2);
        middle.shifted(time.ahead_of(self.shown))
    }
}

impl RedisClock {
    /// The estimated time that the clock of Redis shows at a local time.
    pub(crate) fn estimate(&self, local: Timestamp) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let by = Span::from_micros(ahead.unsigned_abs());
        if ahead >= 0 { local + by } else { local.before(by) }
    }

    /// Records the time in a reply to a call that was sent and received at these local times.
    pub(crate) fn record(&self, shown: Timestamp, sent: Timestamp, received: Timestamp) {
        self.ahead.store(shown.ahead_of(received), Ordering::Relaxed);
        let reading = Reading { shown, sent, received };
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = received.since(best.received) > READING_LIFETIME;
        // A reading that contradicts the best one was taken after a clock was set.
        let local = best.to_local(shown);
        let agrees = local >= sent.before(best.round_trip()) && local <= received + best.round_trip();
        if is_old || !agrees || reading.round_trip() <= best.round_trip() {
            *best = reading;
        }
    }

    /// The times of a call that Redis executed when its clock showed `redis`. The local time of the
    /// execution is between the call and its reply, as precise as the fastest recent reply permits.
    /// The delay of a slow link must not be added to a wait.
    pub(crate) fn call_times(&self, redis: Timestamp, sent: Timestamp, received: Timestamp) -> CallTimes {
        let best = *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let executed = best.to_local(redis).clamp(sent, received.max(sent));
        CallTimes { redis, sent, executed, received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn at(millis: u64) -> Timestamp {
        LOCAL + Span::from_millis(millis)
    }

    fn redis(millis: u64) -> Timestamp {
        at(millis) + Span::from_hours(5)
    }

    #[test]
    fn the_fastest_recent_reply_dates_a_slow_one() {
        let clock = RedisClock::default();
        clock.record(redis(1), at(0), at(2));
        let executed = |shown| clock.call_times(shown, at(100), at(1_100)).executed;
        // Executed immediately with a reply that took a second, or the reverse.
        assert_eq!(executed(redis(101)), at(101));
        assert_eq!(executed(redis(1_099)), at(1_099));
        assert_eq!(executed(redis(9_000)), at(1_100), "never after the answer");
    }

    #[test]
    fn without_a_better_reading_the_middle_of_the_round_trip_is_used() {
        let clock = RedisClock::default();
        clock.record(redis(0), at(0), at(600));
        assert_eq!(clock.call_times(redis(0), at(0), at(600)).executed, at(300));
    }
}
