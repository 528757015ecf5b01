//! Measures how far the decisions of a limit are from those of an exact sliding log with the same numbers.
//!
//! Closed loop: the limit and the log decide the same requests, and each counts the requests that it admitted itself.
//! Open loop: both count every request, admitted or not, and the next decision of both is compared.
//!
//! Usage: `Distance::new(&quota)`, then `request(key, cost, at, admitted)` in the order of time, then `closed()`,
//! `open()` and `is_sampled()`. `admitted` is the verdict of the limit, which has charged the request if it admitted
//! it.
//!
//! Not here: deciding. The caller passes the verdicts of the limit. The open loop runs the limit's algorithm with a
//! capacity that admits everything.

mod exact_log;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate::{Amount, FixedWindow, Quota, Rate, SlidingWindow, State, Timestamp, Window};

use self::exact_log::ExactLog;
use crate::sample::{Sample, Weighs};

/// The most units that all logs together remember. Beyond it, only a sample of the keys is compared.
const MAX_LOGGED_UNITS: usize = 1 << 20;
/// The largest limit, in units, that is compared with a log.
const MAX_UNITS: u64 = 1 << 17;
/// A capacity that no log exhausts, within the range of a sliding window's counters.
const UNLIMITED_UNITS: u64 = 1 << 30;

/// Counts of the decisions in which a limit and an exact log differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Disagreement {
    /// Requests that both decided.
    pub requests: u64,
    /// Requests that the exact log refused.
    pub refused_by_log: u64,
    /// Requests that the limit admitted and the log refused.
    pub too_lax: u64,
    /// Requests that the limit refused and the log admitted.
    pub too_strict: u64,
}

impl Disagreement {
    /// The share of decisions that differ, from 0 to 1.
    #[allow(clippy::cast_precision_loss)] // for people: counts beyond 2^53 are rounded
    pub fn share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { (self.too_lax + self.too_strict) as f64 / self.requests as f64 }
    }

    /// Requests that the limit refused. Compare it with `refused_by_log` for the net difference: for a key at its
    /// limit, both may admit equally many requests at different moments, and then `too_lax` and `too_strict` are
    /// large although the totals agree.
    pub const fn refused(&self) -> u64 {
        (self.refused_by_log + self.too_strict).saturating_sub(self.too_lax)
    }

    /// Returns the sum of two counts.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            refused_by_log: self.refused_by_log + other.refused_by_log,
            too_lax: self.too_lax + other.too_lax,
            too_strict: self.too_strict + other.too_strict,
        }
    }

    fn note(&mut self, admitted: bool, by_log: bool) {
        self.requests += 1;
        self.refused_by_log += u64::from(!by_log);
        self.too_lax += u64::from(admitted && !by_log);
        self.too_strict += u64::from(!admitted && by_log);
    }
}

/// Compares a limit with an exact log, request by request.
///
/// ```
/// # use tollgate::{Amount, FixedWindow, Quota, QuotaError, Rate, Timestamp};
/// # use tollgate_sim::distance::Distance;
/// // Two at the end of a minute and two at the start of the next: no window of a minute holds four.
/// let quota = Quota::from(FixedWindow::epoch(Rate::per_minute(2))?);
/// let (mut distance, mut state) = (Distance::new(&quota).expect("it has a log"), quota.fresh());
/// for second in [118, 119, 120, 121] {
///     let at = Timestamp::from_secs(second);
///     let admitted = quota.step(&mut state, Amount::Exactly(1), at).is_admitted();
///     distance.request(7, 1, at, admitted);
/// }
/// assert_eq!((distance.closed().too_lax, distance.closed().too_strict), (2, 0));
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Debug)]
pub struct Distance {
    limit: Rate,
    /// The same limit with a capacity that admits everything; `None` for buckets.
    shown: Option<Quota>,
    keys: Sample<TrackedKey>,
}

/// The log and the counts of one key.
#[derive(Debug)]
struct TrackedKey {
    closed: ExactLog,
    closed_count: Disagreement,
    open: Option<ComparedKey>,
}

/// The open loop of one key: the log and the limit both count every request.
#[derive(Debug)]
struct ComparedKey {
    log: ExactLog,
    state: State,
    count: Disagreement,
}

impl Weighs for TrackedKey {
    fn weight(&self) -> usize {
        8 + self.closed.len() + self.open.as_ref().map_or(0, |open| open.log.len())
    }
}

impl Distance {
    /// Starts a comparison. Returns `None` for quotas without a comparable log: slots, calendar windows, and limits
    /// with too many units.
    pub fn new(quota: &Quota) -> Option<Self> {
        Self::within(quota, MAX_LOGGED_UNITS)
    }

    /// Starts a comparison that remembers at most `most` units over all keys, for callers that run several at once.
    pub fn within(quota: &Quota, most: usize) -> Option<Self> {
        let (limit, shown) = match quota {
            Quota::Bucket(it) => (it.rate(), None),
            Quota::FixedWindow(it) => {
                let (Window::Epoch(length) | Window::Anchored(length)) = it.window() else { return None };
                let shown = FixedWindow::new(UNLIMITED_UNITS, it.window().clone()).ok()?;
                (Rate::new(quota.capacity(), *length), Some(shown.into()))
            }
            Quota::SlidingWindow(it) => {
                let shown = SlidingWindow::new(Rate::new(UNLIMITED_UNITS, it.rate().period)).ok();
                (it.rate(), shown.map(Quota::from))
            }
            Quota::SlidingParts(it) => {
                let shown = it.with_rate(Rate::new(UNLIMITED_UNITS, it.rate().period)).ok();
                (it.rate(), shown.map(Quota::from))
            }
            // The limit is an exact log itself: no decision differs, and no estimate is needed.
            Quota::SlidingLog(it) => (it.rate(), None),
            Quota::Concurrency(_) => return None,
        };
        let keys = Sample::new(most.min(MAX_LOGGED_UNITS));
        (limit.count <= MAX_UNITS).then_some(Self { limit, shown, keys })
    }

    /// Records a request of the key with this hash, and whether the limit admitted it. Requests without a cost are
    /// not compared.
    pub fn request(&mut self, key: u64, cost: u64, at: Timestamp, admitted: bool) {
        if cost == 0 {
            return;
        }
        let (limit, shown) = (self.limit, &self.shown);
        let new = || TrackedKey {
            closed: ExactLog::default(),
            closed_count: Disagreement::default(),
            open: shown.as_ref().map(|shown| ComparedKey {
                log: ExactLog::default(),
                state: shown.fresh(),
                count: Disagreement::default(),
            }),
        };
        self.keys.with(key, new, |key| {
            let by_log = key.closed.has_room(limit, cost, at);
            if by_log {
                key.closed.add(limit, cost, at);
            }
            key.closed_count.note(admitted, by_log);
            if let (Some(open), Some(shown)) = (&mut key.open, shown) {
                let by_log = open.log.has_room(limit, cost, at);
                let by_limit = shown.used(&open.state, at).saturating_add(cost) <= limit.count;
                open.count.note(by_limit, by_log);
                open.log.add(limit, cost, at);
                // A single cost above the capacity is not counted; logs do not contain such costs.
                let _ = shown.acquire(&mut open.state, Amount::Exactly(cost), at);
            }
        });
    }

    /// Returns the counts of the closed loop, in which each side counts the requests that it admitted.
    pub fn closed(&self) -> Disagreement {
        self.keys.values().map(|key| key.closed_count).fold(Disagreement::default(), Disagreement::and)
    }

    /// Returns the counts of the open loop, in which both sides count every request. `None` for buckets, which have
    /// no window, and for the exact log.
    pub fn open(&self) -> Option<Disagreement> {
        self.shown.as_ref()?;
        let counts = self.keys.values().filter_map(|key| key.open.as_ref()).map(|open| open.count);
        Some(counts.fold(Disagreement::default(), Disagreement::and))
    }

    /// Whether there were more keys than fit into memory, so that only a sample of them was compared.
    pub const fn is_sampled(&self) -> bool {
        self.keys.is_thinned()
    }
}
