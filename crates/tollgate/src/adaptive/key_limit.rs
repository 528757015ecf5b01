//! The requests in flight of one key, and its learned number of slots.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_overload::adaptive::{AdaptiveLimit, AdaptiveSettings, Admissions, Sample, Slots, class_limit};

/// The requests in flight of one key, and its learned number of slots.
#[derive(Debug)]
pub(super) struct KeyLimit {
    in_flight: AtomicU32,
    /// The number of the next request.
    next: AtomicU64,
    /// A copy of the limit in force, so that admission needs no lock.
    in_force: AtomicU32,
    /// When the key was used last, in microseconds.
    used_at: AtomicU64,
    learned: Mutex<AdaptiveLimit>,
    /// Whether requests are counted and teach nothing. Changed under the lock of `learned`.
    is_frozen: AtomicBool,
    /// Copies of the estimates, so that a decision needs no lock. Latencies are in microseconds; zero:
    /// not measured.
    slots: AtomicU32,
    /// The number of requests in flight that no class exceeds.
    max: AtomicU32,
    latency: AtomicU64,
    baseline: AtomicU64,
}

/// The place of an admitted request among those of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    pub(super) number: u64,
    /// The requests in flight, including this one.
    pub(super) in_flight: u32,
}

/// The numbers of a key when a request exceeds its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excess {
    pub(super) in_flight: u32,
    /// The limit for the class of the request.
    pub(super) class_slots: u32,
}

/// The learned numbers of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    pub(super) slots: u32,
    pub(super) latency: Option<Duration>,
    pub(super) baseline: Option<Duration>,
}

impl KeyLimit {
    pub(super) fn new(settings: AdaptiveSettings) -> Self {
        let learned = AdaptiveLimit::new(settings);
        Self {
            in_flight: AtomicU32::new(0),
            next: AtomicU64::new(0),
            in_force: AtomicU32::new(learned.in_force()),
            used_at: AtomicU64::new(0),
            slots: AtomicU32::new(learned.learned()),
            max: AtomicU32::new(learned.slots().max),
            learned: Mutex::new(learned),
            is_frozen: AtomicBool::new(false),
            latency: AtomicU64::new(0),
            baseline: AtomicU64::new(0),
        }
    }

    /// Counts a request in flight, if there is room for one of its class. A limit that is not enforced
    /// always has room, and the second value is the refusal that it would have returned.
    pub(super) fn enter(
        &self,
        (rank, classes): (u8, usize),
        is_enforced: bool,
        now: Timestamp,
    ) -> Result<(Admission, Option<Excess>), Excess> {
        self.touch(now);
        let slots = Slots {
            learned: self.slots.load(Ordering::Relaxed),
            in_force: self.in_force.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
        };
        let limit = class_limit(slots, rank, classes);
        // Relaxed: the count is the only value that threads agree on.
        let admit = |in_flight: u32| (in_flight < limit || !is_enforced).then(|| in_flight.saturating_add(1));
        let before = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit);
        let excess = |in_flight| Excess { in_flight, class_slots: limit };
        let before = before.map_err(excess)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok((Admission { number, in_flight: before + 1 }, (before >= limit).then(|| excess(before))))
    }

    /// Records that the key is used.
    pub(super) fn touch(&self, now: Timestamp) {
        self.used_at.store(now.as_micros().max(1), Ordering::Relaxed);
    }

    /// Records the measurement of a request. Each admitted request is recorded once.
    pub(super) fn record(&self, sample: Sample, now: Timestamp) {
        if self.is_frozen.load(Ordering::Relaxed) {
            return;
        }
        let mut learned = self.lock();
        let admissions = Admissions { next: self.next.load(Ordering::Relaxed), inflight: self.in_flight() };
        learned.record(sample, admissions, now.since(Timestamp::EPOCH).into());
        self.publish(&learned);
    }

    /// Keeps what was learned, without the dip of a measurement, or goes on learning from requests that start now.
    pub(super) fn freeze(&self, is_frozen: bool) {
        let mut learned = self.lock();
        if self.is_frozen.swap(is_frozen, Ordering::Relaxed) != is_frozen {
            // Requests that end while the limit is frozen are not recorded, so no measurement continues.
            learned.restart_measurement(self.next.load(Ordering::Relaxed));
            self.publish(&learned);
        }
    }

    fn publish(&self, learned: &AdaptiveLimit) {
        let micros =
            |it: Option<Duration>| it.map_or(0, |it| u64::try_from(it.as_micros()).unwrap_or(u64::MAX));
        self.in_force.store(learned.in_force(), Ordering::Relaxed);
        self.slots.store(learned.learned(), Ordering::Relaxed);
        self.max.store(learned.slots().max, Ordering::Relaxed);
        self.latency.store(micros(learned.latency()), Ordering::Relaxed);
        self.baseline.store(micros(learned.baseline()), Ordering::Relaxed);
    }

    /// Ends a request.
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn set_settings(&self, settings: AdaptiveSettings) {
        let mut learned = self.lock();
        learned.set_settings(settings);
        self.publish(&learned);
    }

    /// Whether no request is in flight and the key was last used before this time.
    pub(super) fn is_idle_since(&self, time: Timestamp) -> bool {
        self.in_flight() == 0 && self.used_at.load(Ordering::Relaxed) < time.as_micros()
    }

    pub(super) fn in_force(&self) -> u32 {
        self.in_force.load(Ordering::Relaxed)
    }

    pub(super) fn learned(&self) -> Learned {
        let time = |it: &AtomicU64| Some(it.load(Ordering::Relaxed)).filter(|it| *it > 0);
        Learned {
            slots: self.slots.load(Ordering::Relaxed),
            latency: time(&self.latency).map(Duration::from_micros),
            baseline: time(&self.baseline).map(Duration::from_micros),
        }
    }

    fn lock(&self) -> MutexGuard<'_, AdaptiveLimit> {
        // Numbers that a panic left behind are clamped like any other.
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
