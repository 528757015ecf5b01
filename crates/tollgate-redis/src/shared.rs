//! State that all threads of a store share.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_store::{Clock as _, SystemClock};

use crate::deny_cache::DenyCache;
use crate::script::Scripts;
use crate::settings::{RedisSettings, Topology};

pub(crate) struct Shared {
    pub(crate) settings: RedisSettings,
    pub(crate) scripts: &'static Scripts,
    pub(crate) deny_cache: DenyCache,
    pub(crate) counters: Counts,
    pub(crate) clock: SystemClock,
    /// How far the clock of Redis is ahead of the local clock, in microseconds, as last read.
    ahead: AtomicI64,
    /// The most precise recent reading of the clock of Redis.
    best: Mutex<Reading>,
    /// The last known number of nodes, including this one.
    pub(crate) nodes: AtomicUsize,
}

/// A reading of the clock of Redis, taken between two local times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    shown: Timestamp,
    asked: Timestamp,
    answered: Timestamp,
}

impl Reading {
    fn round_trip(self) -> Span {
        self.answered.since(self.asked)
    }

    /// Converts a time of Redis to the local clock, assuming that the reading was taken in the
    /// middle of the round trip.
    fn to_ours(self, time: Timestamp) -> Timestamp {
        let middle = self.asked + Span::from_micros(self.round_trip().as_micros() / 2);
        middle.shifted(time.ahead_of(self.shown))
    }
}

/// How long a reading is preferred to readings with a longer round trip; clocks drift.
const READING_LIFETIME: Span = Span::from_secs(10);

/// Counters of the work of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The decisions and changes made by Redis.
    pub decisions: u64,
    /// The calls to Redis for these decisions and changes.
    pub calls: u64,
    /// The refusals answered by the deny cache.
    pub remembered: u64,
    /// The calls without a reply.
    pub failures: u64,
    /// The connections made.
    pub connections: u64,
}

/// Atomic counters. They are independent, so relaxed ordering is sufficient.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) decisions: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) remembered: AtomicU64,
    pub(crate) failures: AtomicU64,
    connections: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, more: usize) {
        count.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Counts a connection and returns its number.
    pub(crate) fn connected(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            decisions: read(&self.decisions),
            calls: read(&self.calls),
            remembered: read(&self.remembered),
            failures: read(&self.failures),
            connections: read(&self.connections),
        }
    }
}

/// The lifetime of cached refusals on a cluster. It is short because other requests can briefly see
/// units that a request reserved and will release.
const CLUSTER_DENY_CACHE: Duration = Duration::from_millis(100);

fn remembered_for(settings: &RedisSettings) -> Duration {
    match settings.topology {
        Topology::Cluster(_) => settings.deny_cache.min(CLUSTER_DENY_CACHE),
        Topology::Standalone(_) | Topology::Sentinel { .. } => settings.deny_cache,
    }
}

impl Shared {
    pub(crate) fn new(settings: RedisSettings, scripts: &'static Scripts) -> Self {
        Self {
            deny_cache: DenyCache::new(remembered_for(&settings)),
            settings,
            scripts,
            counters: Counts::default(),
            clock: SystemClock::new(),
            ahead: AtomicI64::new(0),
            best: Mutex::default(),
            nodes: AtomicUsize::new(1),
        }
    }

    /// The estimated time of the clock of Redis.
    pub(crate) fn redis_now(&self) -> Timestamp {
        let (now, ahead) = (self.clock.now(), self.ahead.load(Ordering::Relaxed));
        let by = Span::from_micros(ahead.unsigned_abs());
        if ahead >= 0 { now + by } else { now.before(by) }
    }

    /// Records a reading of the clock of Redis from a call that was sent at `asked`.
    pub(crate) fn redis_showed(&self, shown: Timestamp, asked: Timestamp) {
        let answered = self.clock.now();
        self.ahead.store(shown.ahead_of(answered), Ordering::Relaxed);
        let reading = Reading { shown, asked, answered };
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = answered.since(best.answered) > READING_LIFETIME;
        // A reading that contradicts the best one was taken after a clock was set.
        let ours = best.to_ours(shown);
        let agrees = ours >= asked.before(best.round_trip()) && ours <= answered + best.round_trip();
        if is_old || !agrees || reading.round_trip() <= best.round_trip() {
            *best = reading;
        }
    }

    /// The local time at which the clock of Redis showed `shown`: between the call and its reply,
    /// as precise as the fastest recent reply permits. The delay of a slow link must not be added
    /// to a wait.
    pub(crate) fn executed_at(&self, shown: Timestamp, asked: Timestamp, answered: Timestamp) -> Timestamp {
        let best = *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        best.to_ours(shown).clamp(asked, answered.max(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let settings = RedisSettings::parse(&["redis://127.0.0.1:1"]).expect("a URL");
        Shared::new(settings, Scripts::on_server_clock())
    }

    #[test]
    fn the_fastest_recent_reply_dates_a_slow_one() {
        let shared = shared();
        let ours = shared.clock.now();
        let at = |millis| ours + Span::from_millis(millis);
        let redis = |millis| at(millis) + Span::from_hours(5);
        *shared.best.lock().unwrap() = Reading { shown: redis(1), asked: at(0), answered: at(2) };
        // Executed immediately with a reply that took a second, or the reverse.
        assert_eq!(shared.executed_at(redis(101), at(100), at(1_100)), at(101));
        assert_eq!(shared.executed_at(redis(1_099), at(100), at(1_100)), at(1_099));
        assert_eq!(shared.executed_at(redis(9_000), at(100), at(1_100)), at(1_100), "never after the answer");
    }

    #[test]
    fn without_a_better_reading_the_middle_of_the_round_trip_is_used() {
        let shared = shared();
        let ours = shared.clock.now().before(Span::from_millis(600));
        let redis = ours + Span::from_hours(5);
        shared.redis_showed(redis, ours);
        let executed = shared.executed_at(redis, ours, ours + Span::from_millis(600));
        let off = executed.ahead_of(ours + Span::from_millis(300));
        assert!((0..300_000).contains(&off), "{off} µs from the middle: time has passed since");
    }
}
