//! The shedder of this node: measures its load, and refuses the least important requests while the
//! load exceeds a target.
//!
//! ```text
//! requests in flight ─┐
//! CPU utilization    ─┼─► sample, every 100 ms ─► controller ─► level ─► decisions
//! delay of requests  ─┘
//! ```
//!
//! Requests in flight are counted here. The other signals are reported ([`NodeShedder::report`]): by the
//! daemon, or by an application. A signal that is not reported is ignored.
//!
//! Decisions take the samples, so a limiter needs no timer. A timer that calls
//! [`Limiter::sample_load`](crate::Limiter::sample_load) lets the level fall also while no request
//! arrives.
//!
//! The controller is in `tollgate_overload`, the settings in `tollgate_policy`.

mod in_flight;
mod signals;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_overload::shedder::{Level, Shedder, ShedderRates};
use tollgate_policy::{Mode, NodeShedSettings, Policy, PriorityClass};
use tollgate_store::{Clock, SystemClock};

pub use in_flight::InFlightGuard;
use signals::Meters;
pub use signals::{Measurement, SignalReading, Signals};

use crate::shed::NodeShed;

/// The interval between two samples.
const SAMPLE_INTERVAL: Span = Span::from_millis(100);

/// The multiplier of a Weyl sequence: its numbers are spread evenly, so that of a class of which a
/// third is shed, every third request is refused.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// The number of classes with a counter of their own. Less important ones share the last counter.
const MAX_COUNTED_CLASSES: usize = 16;

/// The shedder of this node. Clones share their state.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Call, Fate, Limiter, ManualClock, Measurement, NodeShedder, Span, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_secs(1_000));
/// let shedder = NodeShedder::with_clock(clock.clone());
/// let limiter = Limiter::from_policy("shed: {node: {delay: 20ms}}")?.with_node_shedder(shedder.clone());
/// let call = Call::new("GET", "/");
/// assert!(limiter.check(&call).is_allowed());
/// for _ in 0..20 {
///     shedder.report(Measurement::Delay(Duration::from_millis(200)));
///     clock.advance(Span::from_millis(100));
///     limiter.sample_load();
/// }
/// assert_eq!(shedder.level().thousandths(), 1_000);
/// assert!(matches!(limiter.check(&call).fate(), Fate::Shed(_)));
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone)]
pub struct NodeShedder(Arc<Inner>);

struct Inner {
    clock: Box<dyn Clock>,
    meters: Meters,
    /// The level in force, in thousandths of a class.
    level: AtomicU32,
    /// The time of the next sample, in microseconds.
    next_sample: AtomicU64,
    /// The number of requests of partly shed classes.
    sequence: AtomicU32,
    /// The requests of each class, by rank, that were refused, and those that would have been.
    counts: [[AtomicU64; 2]; MAX_COUNTED_CLASSES],
    controller: Mutex<Shedder>,
}

impl Default for NodeShedder {
    fn default() -> Self {
        Self::with_clock(SystemClock::new())
    }
}

impl NodeShedder {
    /// Creates a shedder on the system clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a shedder on the given clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self(Arc::new(Inner {
            clock: Box::new(clock),
            meters: Meters::default(),
            level: AtomicU32::new(0),
            next_sample: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            counts: Default::default(),
            controller: Mutex::default(),
        }))
    }

    /// Counts a request as in flight until the returned value is dropped. The tower layer does this
    /// for every admitted request.
    pub fn enter(&self) -> InFlightGuard {
        InFlightGuard::new(self.clone())
    }

    /// Reports a measurement of this node.
    pub fn report(&self, measurement: Measurement) {
        self.0.meters.report(measurement, self.0.clock.now());
    }

    /// Returns the current level.
    pub fn level(&self) -> Level {
        // Relaxed, here and below: each value stands for itself, and a stale one is a sample old.
        Level::from_thousandths(self.0.level.load(Ordering::Relaxed))
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.0.meters.in_flight()
    }

    /// Returns the last sample of each signal that has a target.
    pub fn signals(&self) -> Signals {
        self.0.meters.signals()
    }

    /// Returns the number of requests of a class that were refused, and the number of those that
    /// would have been refused in shadow mode.
    pub fn shed_requests(&self, rank: u8) -> (u64, u64) {
        let [refused, shadowed] = self.counts(rank);
        (refused.load(Ordering::Relaxed), shadowed.load(Ordering::Relaxed))
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.0.meters
    }

    fn counts(&self, rank: u8) -> &[AtomicU64; 2] {
        &self.0.counts[usize::from(rank).min(MAX_COUNTED_CLASSES - 1)]
    }

    /// Adapts to a new policy. A policy without this shedder ends all shedding, and the counts of
    /// classes that the new policy does not have are dropped.
    pub(crate) fn follow(&self, before: &Policy, after: &Policy) {
        if after.node_shed().is_none_or(|it| it.mode == Mode::Off) {
            self.reset();
        }
        if before.priorities() != after.priorities() {
            self.0.counts.iter().flatten().for_each(|it| it.store(0, Ordering::Relaxed));
        }
    }

    fn reset(&self) {
        let mut controller = self.0.controller.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        controller.reset();
        self.0.level.store(0, Ordering::Relaxed);
    }

    /// Takes a sample if one is due.
    pub(crate) fn sample(&self, settings: &NodeShedSettings, classes: u8) {
        if settings.mode == Mode::Off {
            return;
        }
        let now = self.0.clock.now();
        if now.as_micros() >= self.0.next_sample.load(Ordering::Relaxed) {
            self.sample_at(now, settings, classes);
        }
    }

    #[cold]
    fn sample_at(&self, now: Timestamp, settings: &NodeShedSettings, classes: u8) {
        // If another thread samples, its sample is as good as ours.
        let Ok(mut controller) = self.0.controller.try_lock() else { return };
        if now.as_micros() < self.0.next_sample.load(Ordering::Relaxed) {
            return;
        }
        self.0.next_sample.store((now + SAMPLE_INTERVAL).as_micros(), Ordering::Relaxed);
        let utilization = self.0.meters.sample(now, settings);
        let now = Duration::from_micros(now.as_micros());
        let level = if settings.is_frozen {
            controller.skip(now)
        } else {
            let rates = ShedderRates {
                rise: settings.rise.into(),
                fall: settings.fall.into(),
                hold: settings.hold.into(),
            };
            controller.update(now, utilization, classes.saturating_sub(settings.kept_classes), &rates)
        };
        self.0.level.store(level.thousandths(), Ordering::Relaxed);
    }

    /// Returns the reason to refuse a request of a class, if it is to be refused.
    pub(crate) fn shed(
        &self,
        settings: &NodeShedSettings,
        priority: Option<&PriorityClass>,
        classes: u8,
    ) -> Option<NodeShed> {
        self.sample(settings, classes);
        let level = self.level();
        let rank = priority.map_or(0, PriorityClass::rank);
        let share = level.share(rank, classes);
        if share == 0 {
            return None;
        }
        let number = if share < 1_000 { self.next_number() } else { 0 };
        if !level.sheds(rank, classes, number) {
            return None;
        }
        let [refused, shadowed] = self.counts(rank);
        if settings.mode != Mode::Enforce {
            shadowed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        refused.fetch_add(1, Ordering::Relaxed);
        Some(NodeShed { level, share, signals: self.signals() })
    }

    fn next_number(&self) -> u32 {
        self.0.sequence.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN_RATIO)
    }
}

impl fmt::Debug for NodeShedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeShedder")
            .field("level", &self.level())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
