//! What all threads of a store share.

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
    /// How far Redis' clock is ahead of ours, in microseconds, as last seen.
    ahead: AtomicI64,
    /// The reading of Redis' clock that says most.
    best: Mutex<Reading>,
    /// How many nodes were last known, this one included.
    pub(crate) nodes: AtomicUsize,
}

/// A reading of Redis' clock: it was taken between two times of ours.
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

    /// When our clock showed what Redis' showed at `time`: in the middle of the round trip,
    /// as far as anybody knows.
    fn to_ours(self, time: Timestamp) -> Timestamp {
        let middle = self.asked + Span::from_micros(self.round_trip().as_micros() / 2);
        middle.shifted(time.ahead_of(self.shown))
    }
}

/// A reading is preferred to others that took longer for so long: clocks drift.
const READING_LIFETIME: Span = Span::from_secs(10);

/// What a store has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Decisions and changes made by Redis.
    pub decisions: u64,
    /// Calls that these took.
    pub calls: u64,
    /// Decisions made by what was remembered of a refusal.
    pub remembered: u64,
    /// Calls that brought no answer.
    pub failures: u64,
    /// Connections made.
    pub connections: u64,
}

/// Counts, each by itself: nothing else is ordered by them.
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

    /// A connection was made; its number.
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

/// On a cluster, what one request reserved and will give back is seen by others for a
/// moment, so a refusal there is not worth remembering for long.
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

    /// What Redis' clock is believed to show.
    pub(crate) fn redis_now(&self) -> Timestamp {
        let (now, ahead) = (self.clock.now(), self.ahead.load(Ordering::Relaxed));
        let by = Span::from_micros(ahead.unsigned_abs());
        if ahead >= 0 { now + by } else { now.before(by) }
    }

    /// Redis' clock showed this a moment ago, after it was asked.
    pub(crate) fn redis_showed(&self, shown: Timestamp, asked: Timestamp) {
        let answered = self.clock.now();
        self.ahead.store(shown.ahead_of(answered), Ordering::Relaxed);
        let reading = Reading { shown, asked, answered };
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = answered.since(best.answered) > READING_LIFETIME;
        // One that contradicts the best was taken after a clock was set.
        let ours = best.to_ours(shown);
        let agrees = ours >= asked.before(best.round_trip()) && ours <= answered + best.round_trip();
        if is_old || !agrees || reading.round_trip() <= best.round_trip() {
            *best = reading;
        }
    }

    /// When Redis' clock showed `shown`, by ours: between the question and the answer, and
    /// as close to the truth as the fastest answer of late allows. A slow link is slow on
    /// the way there and back, and what it took must not be added to a wait.
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
    fn a_slow_answer_is_placed_by_the_fastest_of_late() {
        let shared = shared();
        let ours = shared.clock.now();
        let at = |millis| ours + Span::from_millis(millis);
        let redis = |millis| at(millis) + Span::from_hours(5);
        *shared.best.lock().unwrap() = Reading { shown: redis(1), asked: at(0), answered: at(2) };
        // It was executed right away and took a second to come back, or the other way around.
        assert_eq!(shared.executed_at(redis(101), at(100), at(1_100)), at(101));
        assert_eq!(shared.executed_at(redis(1_099), at(100), at(1_100)), at(1_099));
        assert_eq!(shared.executed_at(redis(9_000), at(100), at(1_100)), at(1_100), "never after the answer");
    }

    #[test]
    fn without_a_better_reading_the_middle_is_taken() {
        let shared = shared();
        let ours = shared.clock.now().before(Span::from_millis(600));
        let redis = ours + Span::from_hours(5);
        shared.redis_showed(redis, ours);
        let executed = shared.executed_at(redis, ours, ours + Span::from_millis(600));
        let off = executed.ahead_of(ours + Span::from_millis(300));
        assert!((0..300_000).contains(&off), "{off} µs from the middle: time has passed since");
    }
}
