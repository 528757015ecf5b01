//! What is counted of one limit, for as long as its name is known.
//!
//! Everything that a request touches is in one padded piece of memory for each stripe.

use std::array;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollgate::Timestamp;

use crate::histogram::{Histogram, SHARE, Spread};
use crate::history::{LimitHistory, LimitSeries, LimitWindow};
use crate::stripes::Striped;

/// How many decisions one limit took part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// It had room.
    pub allowed: u64,
    /// It refused.
    pub limited: u64,
    /// It would have refused, in shadow mode.
    pub shadow_limited: u64,
    /// It refused without counting: override, plan, missing key, or no answer of the store.
    pub blocked: u64,
    /// A key spent the last unit it had.
    pub exhausted: u64,
    /// Its `soft` threshold was reached.
    pub soft: u64,
    /// Counted without the store.
    pub degraded: u64,
    /// Of a limit that is tried beside another: both allowed, only it allowed, only the
    /// other allowed, neither.
    pub agreement: [u64; 4],
}

/// What a limit is counted by; its place among the cells.
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

/// All numbers of a limit in a row: the fields, then the agreement.
pub(crate) const NUMBERS: usize = FIELDS + 4;

impl LimitCounts {
    pub(crate) fn of(numbers: [u64; NUMBERS]) -> Self {
        let [allowed, limited, shadow_limited, blocked, exhausted, soft, degraded, agreement @ ..] = numbers;
        Self { allowed, limited, shadow_limited, blocked, exhausted, soft, degraded, agreement }
    }
}

/// What is counted of one limit.
pub(crate) struct LimitCounter {
    pub(crate) name: Arc<str>,
    cells: Striped<Cells>,
    /// Only of limits that are tried beside another, or once were.
    agreement: OnceLock<Striped<[AtomicU64; 4]>>,
    /// When that was first counted, in microseconds; zero: not yet.
    agreement_since: AtomicU64,
    /// What both are by.
    compared: Mutex<Option<u64>>,
    past: Mutex<LimitHistory>,
}

struct Cells {
    counts: [AtomicU64; FIELDS],
    remaining: Histogram<7>,
    /// The least share that a key had left in this step, in per mille.
    least: AtomicU16,
}

/// Nobody has asked.
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

// One padded piece, or a thousand limits cost twice the memory.
const _: () = assert!(size_of::<Cells>() <= 128);

impl LimitCounter {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            cells: Striped::new(),
            agreement: OnceLock::new(),
            agreement_since: AtomicU64::new(0),
            compared: Mutex::default(),
            past: Mutex::new(LimitHistory::default()),
        }
    }

    /// It is tried beside another from now on. `rules` stands for what both are by: how two
    /// others would have agreed says nothing about these.
    pub(crate) fn is_candidate(&self, rules: u64) {
        let agreement = self.agreement.get_or_init(Striped::new);
        let before = self.compared.lock().unwrap_or_else(PoisonError::into_inner).replace(rules);
        if before.is_some_and(|before| before != rules) {
            agreement.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
            self.agreement_since.store(0, Ordering::Relaxed);
        }
    }

    /// When it was first compared, as it is.
    pub(crate) fn agreement_since(&self) -> Option<Timestamp> {
        let since = self.agreement_since.load(Ordering::Relaxed);
        (since > 0).then(|| Timestamp::from_micros(since))
    }

    #[inline]
    pub(crate) fn count(&self, field: Field) {
        self.cells.mine().counts[field as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How much of an allowance was left, in per mille.
    #[inline]
    pub(crate) fn left(&self, share: u16) {
        let mine = self.cells.mine();
        mine.remaining.put(&SHARE, share.into());
        // Nearly always there was less before, and reading is cheaper than writing.
        if share < mine.least.load(Ordering::Relaxed) {
            mine.least.fetch_min(share, Ordering::Relaxed);
        }
    }

    /// How a limit and the one it is tried beside answered.
    pub(crate) fn agree(&self, live_allows: bool, allows: bool, at: Timestamp) {
        let kind = match (live_allows, allows) {
            (true, true) => 0,
            (false, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
        };
        if let Some(agreement) = self.agreement.get() {
            agreement.mine()[kind].fetch_add(1, Ordering::Relaxed);
            if self.agreement_since.load(Ordering::Relaxed) == 0 {
                let (since, now) = (&self.agreement_since, at.as_micros());
                // Of many at once, one is the first.
                let _first = since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// So far.
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

    /// So far.
    pub(crate) fn counts(&self) -> LimitCounts {
        LimitCounts::of(self.numbers())
    }

    /// Whether it is tried beside another, or once was.
    pub(crate) fn has_agreement(&self) -> bool {
        self.agreement.get().is_some()
    }

    pub(crate) fn remaining(&self) -> Spread<7> {
        Spread::of(self.cells.iter().map(|stripe| &stripe.remaining))
    }

    /// So many steps have passed.
    pub(crate) fn step(&self, steps: u64) {
        let taken = self.cells.iter().map(|stripe| stripe.least.swap(NO_SHARE, Ordering::Relaxed)).min();
        self.past().step(steps, self.numbers(), taken.unwrap_or(NO_SHARE));
    }

    /// The last so many steps that are over, and what has happened since.
    pub(crate) fn window(&self, steps: usize) -> LimitWindow {
        self.past().window(steps, self.numbers(), self.least())
    }

    /// The last minutes, step by step.
    pub(crate) fn series(&self, until: u64) -> LimitSeries {
        self.past().series(until, self.numbers(), self.least())
    }

    /// The least share that a key had left in the present step.
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
