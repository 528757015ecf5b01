//! The counters of one limit, which live as long as its name is known.
//!
//! Each stripe keeps the counters that a request touches in one padded block of memory.

use std::array;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollgate::Timestamp;

use crate::histogram::{Histogram, Spread};
use crate::history::{LimitHistory, LimitSeries, LimitWindow};
use crate::queue_counter::QueueCounter;
use crate::stripes::{Adder, Stripe, Striped};

/// Counts of the decisions in which one limit took part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// The limit had room.
    pub allowed: u64,
    /// The limit refused.
    pub limited: u64,
    /// The limit, in shadow mode, would have refused.
    pub shadow_limited: u64,
    /// The limit refused without counting: override, plan, missing key, or no answer from the store.
    pub blocked: u64,
    /// A key spent its last unit.
    pub exhausted: u64,
    /// The `soft` threshold was reached.
    pub soft: u64,
    /// The limit was counted without the store.
    pub degraded: u64,
    /// For a candidate: both limits allowed, only the candidate allowed, only the live limit allowed,
    /// both refused.
    pub agreement: [u64; 4],
}

/// The counts of a limit; the discriminant is the index of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    Allowed,
    Limited,
    ShadowLimited,
    Blocked,
    Exhausted,
    Soft,
    Degraded,
}

const FIELDS: usize = 7;

/// The count of all numbers of a limit: the fields, then the agreement.
pub(crate) const NUMBERS: usize = FIELDS + 4;

impl LimitCounts {
    pub(crate) fn of(numbers: [u64; NUMBERS]) -> Self {
        let [allowed, limited, shadow_limited, blocked, exhausted, soft, degraded, agreement @ ..] = numbers;
        Self { allowed, limited, shadow_limited, blocked, exhausted, soft, degraded, agreement }
    }
}

/// The counters of one limit.
pub(crate) struct LimitCounter {
    pub(crate) name: Arc<str>,
    cells: Striped<Cells>,
    /// Present only if the limit is or was a candidate.
    agreement: OnceLock<Striped<[AtomicU64; 4]>>,
    /// Present only if the limit has or had a queue.
    queue: OnceLock<QueueCounter>,
    /// The time of the first comparison, in microseconds; zero if there was none.
    agreement_since: AtomicU64,
    /// A hash of the rules of the candidate and of its live limit.
    compared: Mutex<Option<u64>>,
    past: Mutex<LimitHistory>,
}

struct Cells {
    counts: [AtomicU64; FIELDS],
    remaining: Histogram<7>,
    /// The smallest share that a key had left in this step, in per mille.
    least: AtomicU16,
}

/// The value of `least` while the limit has taken part in no decision.
pub(crate) const NO_SHARE: u16 = u16::MAX;

impl Default for Cells {
    fn default() -> Self {
        Self {
            counts: array::from_fn(|_| AtomicU64::new(0)),
            remaining: Histogram::default(),
            least: AtomicU16::new(NO_SHARE),
        }
    }
}

impl Cells {
    #[inline(always)]
    fn record(&self, adder: Adder, field: Field, share: u16) {
        adder.add(&self.counts[field as usize], 1);
        self.remaining.put_share(share, adder);
        // The stored share is almost always smaller, and a load is cheaper than a store.
        if share < self.least.load(Ordering::Relaxed) {
            self.least.fetch_min(share, Ordering::Relaxed);
        }
    }
}

// One padded block; two would double the memory of a policy with a thousand limits.
const _: () = assert!(size_of::<Cells>() <= 128);

impl LimitCounter {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            cells: Striped::new(),
            agreement: OnceLock::new(),
            queue: OnceLock::new(),
            agreement_since: AtomicU64::new(0),
            compared: Mutex::default(),
            past: Mutex::new(LimitHistory::default()),
        }
    }

    /// Marks the limit as a candidate. `rules` is a hash of the rules of both limits: when it changes,
    /// the comparison starts over.
    pub(crate) fn is_candidate(&self, rules: u64) {
        let agreement = self.agreement.get_or_init(Striped::new);
        let before = self.compared.lock().unwrap_or_else(PoisonError::into_inner).replace(rules);
        if before.is_some_and(|before| before != rules) {
            agreement.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
            self.agreement_since.store(0, Ordering::Relaxed);
        }
    }

    /// Marks the limit as one with a queue.
    pub(crate) fn has_queue(&self) {
        self.queue.get_or_init(QueueCounter::default);
    }

    /// Returns the counters of its queues, if it has or had any.
    pub(crate) fn queue(&self) -> Option<&QueueCounter> {
        self.queue.get()
    }

    /// Returns the time of the first comparison under the current rules.
    pub(crate) fn agreement_since(&self) -> Option<Timestamp> {
        let since = self.agreement_since.load(Ordering::Relaxed);
        (since > 0).then(|| Timestamp::from_micros(since))
    }

    pub(crate) fn count(&self, field: Field) {
        self.count_at(self.cells.current(), field);
    }

    /// Counts at the stripe of the current thread.
    #[inline]
    pub(crate) fn count_at(&self, stripe: Stripe, field: Field) {
        stripe.adder.add(&self.cells.at(stripe).counts[field as usize], 1);
    }

    /// Takes back one count, which may be that of another stripe: their sum is right.
    pub(crate) fn uncount(&self, field: Field) {
        let (cells, adder) = self.cells.mine();
        adder.take_back(&cells.counts[field as usize]);
    }

    /// Counts a decision at the stripe of the current thread, with the remaining share of the allowance in per mille.
    #[inline(always)]
    pub(crate) fn record(&self, stripe: Stripe, field: Field, share: u16) {
        let cells = self.cells.at(stripe);
        // Tested once, and not for each counter.
        if stripe.adder.is_owner() {
            cells.record(Adder::OWNER, field, share);
        } else {
            cells.record(Adder::SHARED, field, share);
        }
    }

    /// Records the answers of a live limit and its candidate.
    pub(crate) fn agree(&self, live_allows: bool, allows: bool, at: Timestamp) {
        let kind = match (live_allows, allows) {
            (true, true) => 0,
            (false, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
        };
        if let Some(agreement) = self.agreement.get() {
            // Other threads set these counts to zero, so no thread owns them.
            agreement.mine().0[kind].fetch_add(1, Ordering::Relaxed);
            if self.agreement_since.load(Ordering::Relaxed) == 0 {
                let (since, now) = (&self.agreement_since, at.as_micros());
                // If several threads race, the first one sets the time.
                let _first = since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Returns all numbers since the start.
    pub(crate) fn numbers(&self) -> [u64; NUMBERS] {
        let mut numbers = [0; NUMBERS];
        let (counts, agreement) = numbers.split_at_mut(FIELDS);
        for stripe in self.cells.iter() {
            add(counts, &stripe.counts);
        }
        for stripe in self.agreement.get().into_iter().flat_map(Striped::iter) {
            add(agreement, stripe);
        }
        numbers
    }

    /// Returns the counts since the start.
    pub(crate) fn counts(&self) -> LimitCounts {
        LimitCounts::of(self.numbers())
    }

    /// Whether the limit is or was a candidate.
    pub(crate) fn has_agreement(&self) -> bool {
        self.agreement.get().is_some()
    }

    pub(crate) fn remaining(&self) -> Spread<7> {
        Spread::of(self.cells.iter().map(|stripe| &stripe.remaining))
    }

    /// Ends `steps` steps.
    pub(crate) fn step(&self, steps: u64) {
        let taken = self.cells.iter().map(|stripe| stripe.least.swap(NO_SHARE, Ordering::Relaxed)).min();
        self.past().step(steps, self.numbers(), taken.unwrap_or(NO_SHARE));
        if let Some(queue) = self.queue() {
            queue.end_step(steps);
        }
    }

    /// Returns the counts of the last `steps` finished steps and of the current one.
    pub(crate) fn window(&self, steps: usize) -> LimitWindow {
        self.past().window(steps, self.numbers(), self.least())
    }

    /// Returns the recent history, step by step.
    pub(crate) fn series(&self, until: u64) -> LimitSeries {
        self.past().series(until, self.numbers(), self.least())
    }

    /// Returns the smallest share that a key had left in the current step.
    fn least(&self) -> u16 {
        let least = self.cells.iter().map(|stripe| stripe.least.load(Ordering::Relaxed)).min();
        least.unwrap_or(NO_SHARE)
    }

    pub(crate) fn past(&self) -> std::sync::MutexGuard<'_, LimitHistory> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(sums: &mut [u64], cells: &[AtomicU64]) {
    for (sum, cell) in sums.iter_mut().zip(cells) {
        *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
    }
}
