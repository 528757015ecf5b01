//! How many: of all decisions, and limit by limit.
//!
//! Counts of a limit outlive its policy: a limit that keeps its name counts on. Names are
//! bounded: [`MAX_NAMED_LIMITS`] limits are counted each on its own, and all further ones
//! together as [`OTHER`]. A name that has left the policy gives way when a new one needs
//! its room, the one that left first.
//!
//! Not here: what a decision counts as (`counting`).

use std::array;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::{HashMap, HashMapExt as _};
use tollgate::{Limit, Policy, Span};

use crate::counting::PolicyCounters;
use crate::histogram::{Histogram, LATENCY, Spread};
use crate::limit_counter::LimitCounter;
use crate::stripes::Striped;

/// How many limits are counted each on its own.
pub const MAX_NAMED_LIMITS: usize = 2000;
/// All limits that are not.
pub(crate) const OTHER: &str = "_other";

/// How many decisions, of every kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted, with at least one limit that applied.
    pub allowed: u64,
    /// No limit applied, or an allow list let it pass.
    pub unlimited: u64,
    /// A limit had no room.
    pub limited: u64,
    /// Refused without counting: deny list, override, plan, missing key.
    pub blocked: u64,
    /// Refused since the store gave no answer.
    pub uncountable: u64,
    /// Admitted, although a limit in shadow mode would have refused. Limits that are only
    /// tried beside another are not meant.
    pub shadow_limited: u64,
    /// Decided without the store.
    pub degraded: u64,
}

/// What decisions are counted by; its place among the cells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Allowed,
    Unlimited,
    Limited,
    Blocked,
    Uncountable,
    ShadowLimited,
    Degraded,
}

const KINDS: usize = 7;

/// All decisions, in one stripe.
pub(crate) struct Totals {
    counts: [AtomicU64; KINDS],
    pub(crate) latency: Histogram<20>,
    pub(crate) wait: Histogram<12>,
    answered: Histogram<20>,
    unanswered: Histogram<20>,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            counts: array::from_fn(|_| AtomicU64::new(0)),
            latency: Histogram::default(),
            wait: Histogram::default(),
            answered: Histogram::default(),
            unanswered: Histogram::default(),
        }
    }
}

impl Totals {
    #[inline]
    pub(crate) fn count(&self, kind: Kind) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The counters of everything, for as long as the process runs.
pub(crate) struct Counters {
    totals: Arc<Striped<Totals>>,
    names: Mutex<Names>,
    other: Arc<LimitCounter>,
    /// Tells rules from others.
    hasher: foldhash::quality::RandomState,
}

#[derive(Default)]
struct Names {
    known: HashMap<Arc<str>, Known>,
    /// How many policies there were.
    policies: u64,
}

struct Known {
    counter: Arc<LimitCounter>,
    /// The last policy that it was in.
    last: u64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            totals: Arc::new(Striped::new()),
            names: Mutex::new(Names { known: HashMap::new(), policies: 0 }),
            other: Arc::new(LimitCounter::new(OTHER)),
            hasher: foldhash::quality::RandomState::default(),
        }
    }

    /// For a policy that comes into force: its limits by place, known ones by name.
    pub(crate) fn of(&self, policy: &Policy) -> Arc<PolicyCounters> {
        let mut names = self.names();
        names.make_room(policy);
        let counters = policy.limits().iter().map(|limit| {
            let counter = names.counter(limit.name()).unwrap_or_else(|| Arc::clone(&self.other));
            if let Some(live) = limit.candidate_of().and_then(|live| policy.limits().get(live)) {
                let ids = |limit: &Limit| {
                    let mut ids: Vec<_> = limit.every_rule().map(|rule| rule.id.0).collect();
                    ids.sort_unstable();
                    ids
                };
                counter.is_candidate(self.hasher.hash_one((ids(live), ids(limit))));
            }
            counter
        });
        Arc::new(PolicyCounters::new(Arc::clone(&self.totals), policy, counters.collect()))
    }

    /// All decisions so far.
    pub(crate) fn total(&self) -> Counts {
        let mut sums = [0_u64; KINDS];
        for stripe in self.totals.iter() {
            for (sum, cell) in sums.iter_mut().zip(&stripe.counts) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        let [allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded] = sums;
        Counts { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded }
    }

    /// How long deciding took.
    pub(crate) fn latency(&self) -> Spread<20> {
        Spread::of(self.totals.iter().map(|stripe| &stripe.latency))
    }

    /// How long those that were refused were told to wait.
    pub(crate) fn wait(&self) -> Spread<12> {
        Spread::of(self.totals.iter().map(|stripe| &stripe.wait))
    }

    /// How long the store took, to answer or not to.
    pub(crate) fn store(&self, answered: bool) -> Spread<20> {
        Spread::of(
            self.totals.iter().map(|stripe| if answered { &stripe.answered } else { &stripe.unanswered }),
        )
    }

    /// One limit.
    pub(crate) fn limit(&self, name: &str) -> Option<Arc<LimitCounter>> {
        if name == OTHER {
            return Some(Arc::clone(&self.other));
        }
        self.names().known.get(name).map(|known| Arc::clone(&known.counter))
    }

    /// Every limit, in no order; the one that stands for all others last.
    pub(crate) fn limits(&self) -> Vec<Arc<LimitCounter>> {
        let names = self.names();
        let each = names.known.values().map(|known| &known.counter);
        each.chain([&self.other]).map(Arc::clone).collect()
    }

    /// The store was asked.
    pub(crate) fn asked(&self, took: Span, answered: bool) {
        let mine = self.totals.mine();
        let histogram = if answered { &mine.answered } else { &mine.unanswered };
        histogram.put(&LATENCY, took.as_micros());
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// Marks the names of a policy as its own, and lets go of as many that left as the new ones need.
    fn make_room(&mut self, policy: &Policy) {
        self.policies += 1;
        let mut new = 0;
        for limit in policy.limits() {
            match self.known.get_mut(limit.name()) {
                Some(known) => known.last = self.policies,
                None => new += 1,
            }
        }
        let needed = (self.known.len() + new).saturating_sub(MAX_NAMED_LIMITS);
        if needed == 0 {
            return;
        }
        let left = self.known.iter().filter(|(_, known)| known.last < self.policies);
        let mut left: Vec<_> = left.map(|(name, known)| (known.last, Arc::clone(name))).collect();
        left.sort_unstable();
        for (_, name) in left.iter().take(needed) {
            self.known.remove(name);
        }
    }

    /// The counter of a name, a new one if there is room.
    fn counter(&mut self, name: &str) -> Option<Arc<LimitCounter>> {
        if name == OTHER {
            return None;
        }
        if let Some(known) = self.known.get(name) {
            return Some(Arc::clone(&known.counter));
        }
        (self.known.len() < MAX_NAMED_LIMITS).then(|| {
            let counter = Arc::new(LimitCounter::new(name));
            let known = Known { counter: Arc::clone(&counter), last: self.policies };
            self.known.insert(Arc::clone(&counter.name), known);
            counter
        })
    }
}
