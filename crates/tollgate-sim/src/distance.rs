//! How far a limit is from an exact log of the same numbers.
//!
//! Closed loop: the limit and a log of its own decide about the same requests, each remembering what it admitted itself. Open loop:
//! both are shown every request, admitted or not, and are asked what they think of the next one.
//!
//! The face of this file is settled: `Distance::new(&quota)`, `request(key, cost, at, admitted)` in the order of time, then `closed()`, `open()`,
//! `is_sampled()`. `admitted` is what the limit itself said, which has charged it if it said yes.
//!
//! Not here: deciding. The limit's own answers come from whoever runs it; for the open loop its arithmetic is asked, with room for all.

mod exact_log;

use serde::Serialize;
use tollgate::{Amount, FixedWindow, Quota, Rate, SlidingWindow, State, Timestamp, Window};

use self::exact_log::ExactLog;
use crate::sample::{Sample, Weighs};

/// How many units logs remember at most, over all keys. Beyond that only a sample of the keys is compared.
const MAX_LOGGED_UNITS: usize = 1 << 20;
/// A limit of more units than this has no log to compare with.
const MAX_UNITS: u64 = 1 << 17;
/// Room for everything that a log brings, within what a sliding window can count.
const UNLIMITED_UNITS: u64 = 1 << 30;

/// How often two ways of counting disagree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// Requests about which both were asked.
    pub requests: u64,
    /// Of those, refused by the exact log.
    pub refused_by_log: u64,
    /// Admitted, though the log refuses.
    pub too_lax: u64,
    /// Refused, though the log admits.
    pub too_strict: u64,
}

impl Disagreement {
    /// The share of decisions that differ, from 0 to 1.
    #[allow(clippy::cast_precision_loss)] // for people: counts beyond 2^53 are rounded
    pub fn share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { (self.too_lax + self.too_strict) as f64 / self.requests as f64 }
    }

    /// Refused by the limit itself. Beside `refused_by_log` this is the net: a key at its limit is let through by both as often, at
    /// other moments, and then `too_lax` and `too_strict` say how these differ and not by how much.
    pub const fn refused(&self) -> u64 {
        (self.refused_by_log + self.too_strict).saturating_sub(self.too_lax)
    }

    /// Both together.
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

/// A limit beside an exact log.
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
    /// The same limit with room for everything; `None` for buckets.
    shown: Option<Quota>,
    keys: Sample<TrackedKey>,
}

/// What is known of one key.
#[derive(Debug)]
struct TrackedKey {
    closed: ExactLog,
    closed_count: Disagreement,
    open: Option<ComparedKey>,
}

/// A key whose every request is shown to both.
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
    /// `None` where there is no log to compare with: slots, calendars, more than can be remembered.
    pub fn new(quota: &Quota) -> Option<Self> {
        Self::within(quota, MAX_LOGGED_UNITS)
    }

    /// As [`new`](Self::new), remembering at most so many units over all keys, where several are at work at once.
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
            // It is the log: nothing differs, and nothing need be estimated.
            Quota::SlidingLog(it) => (it.rate(), None),
            Quota::Concurrency(_) => return None,
        };
        let keys = Sample::new(most.min(MAX_LOGGED_UNITS));
        (limit.count <= MAX_UNITS).then_some(Self { limit, shown, keys })
    }

    /// A request of `key` (a hash of it), and whether the limit admitted it. What costs nothing is not compared.
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
                // A single cost beyond everything is not remembered; nobody has such.
                let _ = shown.acquire(&mut open.state, Amount::Exactly(cost), at);
            }
        });
    }

    /// Each remembering what it admitted itself.
    pub fn closed(&self) -> Disagreement {
        self.keys.values().map(|key| key.closed_count).fold(Disagreement::default(), Disagreement::and)
    }

    /// Each shown every request. `None` for buckets, which have no window to look at, and for the log itself.
    pub fn open(&self) -> Option<Disagreement> {
        self.shown.as_ref()?;
        let counts = self.keys.values().filter_map(|key| key.open.as_ref()).map(|open| open.count);
        Some(counts.fold(Disagreement::default(), Disagreement::and))
    }

    /// Whether there were more keys than could be followed, so that only a sample of them was compared.
    pub const fn is_sampled(&self) -> bool {
        self.keys.is_thinned()
    }
}
