//! Counts of decisions, in total and for each limit.
//!
//! The counts of a limit outlive its policy: a limit that keeps its name keeps its counts. The number
//! of names is bounded: [`MAX_NAMED_LIMITS`] limits are counted separately, and all further ones
//! together as [`OTHER`]. When a new name needs room, the name that left the policy first is evicted.
//!
//! The classification of a decision is in `counting`.

use std::array;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::{HashMap, HashMapExt as _};
use tollgate::{Limit, Policy, Quota, Span};

use crate::class_counter::{ClassCounters, ClassCounts};
use crate::counting::PolicyCounters;
use crate::histogram::{Histogram, LATENCY, Spread};
use crate::latency_sampler::LatencySampler;
use crate::limit_counter::LimitCounter;
use crate::stripes::{Adder, Striped};

/// The number of limits that are counted separately.
pub const MAX_NAMED_LIMITS: usize = 2000;
/// The name that counts all limits beyond [`MAX_NAMED_LIMITS`].
pub(crate) const OTHER: &str = "_other";

/// Counts of decisions by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted, and at least one limit applied.
    pub allowed: u64,
    /// Admitted because no limit applied or an allow list matched.
    pub unlimited: u64,
    /// Refused because a limit had no room.
    pub limited: u64,
    /// Refused without counting: deny list, override, plan, missing key.
    pub blocked: u64,
    /// Refused because the store did not answer.
    pub uncountable: u64,
    /// Admitted, although a limit in shadow mode would have refused. Candidates do not count.
    pub shadow_limited: u64,
    /// Decided without the store.
    pub degraded: u64,
    /// Refused because of overload, by a shedder.
    pub shed: u64,
}

impl Counts {
    /// Returns the number of refused requests.
    pub const fn refused(&self) -> u64 {
        self.limited + self.blocked + self.uncountable + self.shed
    }
}

/// The kinds of decisions; the discriminant is the index of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Allowed,
    Unlimited,
    Limited,
    Blocked,
    Uncountable,
    ShadowLimited,
    Degraded,
    Shed,
}

const KINDS: usize = 8;

/// The counters of all decisions, one stripe.
pub(crate) struct Totals {
    counts: [AtomicU64; KINDS],
    pub(crate) latency: Histogram<20>,
    pub(crate) latency_sampler: LatencySampler,
    pub(crate) wait: Histogram<12>,
    answered: Histogram<20>,
    unanswered: Histogram<20>,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            counts: array::from_fn(|_| AtomicU64::new(0)),
            latency: Histogram::default(),
            latency_sampler: LatencySampler::default(),
            wait: Histogram::default(),
            answered: Histogram::default(),
            unanswered: Histogram::default(),
        }
    }
}

impl Totals {
    #[inline]
    pub(crate) fn count(&self, kind: Kind, adder: Adder) {
        adder.add(&self.counts[kind as usize], 1);
    }

    /// Takes back one count, which may be that of another stripe: their sum is right.
    pub(crate) fn uncount(&self, kind: Kind, adder: Adder) {
        adder.take_back(&self.counts[kind as usize]);
    }
}

/// All counters, for the lifetime of the process.
pub(crate) struct Counters {
    totals: Arc<Striped<Totals>>,
    names: Mutex<Names>,
    other: Arc<LimitCounter>,
    classes: ClassCounters,
    /// Hashes the rules of a candidate and its live limit, to notice a change.
    hasher: foldhash::quality::RandomState,
}

#[derive(Default)]
struct Names {
    known: HashMap<Arc<str>, KnownLimit>,
    /// The number of policies that have come into force.
    policies: u64,
}

struct KnownLimit {
    counter: Arc<LimitCounter>,
    /// The number of the last policy that had this name.
    last: u64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            totals: Arc::new(Striped::new()),
            names: Mutex::new(Names { known: HashMap::new(), policies: 0 }),
            other: Arc::new(LimitCounter::new(OTHER)),
            classes: ClassCounters::default(),
            hasher: foldhash::quality::RandomState::default(),
        }
    }

    /// Returns the counters for a policy that comes into force. Limits with a known name keep their
    /// counters.
    pub(crate) fn of(&self, policy: &Policy) -> Arc<PolicyCounters> {
        let mut names = self.names();
        names.make_room(policy);
        let named = named_limits(policy).len();
        let counters = policy.limits().iter().enumerate().map(|(place, limit)| {
            if place >= named {
                return Arc::clone(&self.other);
            }
            let counter = names.counter(limit.name()).unwrap_or_else(|| Arc::clone(&self.other));
            if let Some(live) = limit.candidate_of().and_then(|live| policy.limits().get(live)) {
                let ids = |limit: &Limit| {
                    let mut ids: Vec<_> = limit.every_rule().map(|rule| rule.id.0).collect();
                    ids.sort_unstable();
                    ids
                };
                counter.is_candidate(self.hasher.hash_one((ids(live), ids(limit))));
            }
            if limit.slot_queue().is_some() || limit.every_rule().any(|rule| is_queue(&rule.quota)) {
                counter.has_queue();
            }
            counter
        });
        let classes = self.classes.of(policy);
        Arc::new(PolicyCounters::new(Arc::clone(&self.totals), policy, counters.collect(), classes))
    }

    /// Returns the counts of all decisions since the start.
    pub(crate) fn total(&self) -> Counts {
        let mut sums = [0_u64; KINDS];
        for stripe in self.totals.iter() {
            for (sum, cell) in sums.iter_mut().zip(&stripe.counts) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        let [allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded, shed] = sums;
        Counts { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded, shed }
    }

    /// Returns the counts of each priority class since the start.
    pub(crate) fn classes(&self) -> Vec<ClassCounts> {
        self.classes.counts()
    }

    /// Returns the distribution of decision latencies.
    pub(crate) fn latency(&self) -> Spread<20> {
        Spread::of(self.totals.iter().map(|stripe| &stripe.latency))
    }

    /// Returns the distribution of the waits that refused callers were given.
    pub(crate) fn wait(&self) -> Spread<12> {
        Spread::of(self.totals.iter().map(|stripe| &stripe.wait))
    }

    /// Returns the distribution of the store's latencies, for answers or for failures.
    pub(crate) fn store(&self, answered: bool) -> Spread<20> {
        Spread::of(
            self.totals.iter().map(|stripe| if answered { &stripe.answered } else { &stripe.unanswered }),
        )
    }

    /// Returns the counter of one limit.
    pub(crate) fn limit(&self, name: &str) -> Option<Arc<LimitCounter>> {
        if name == OTHER {
            return Some(Arc::clone(&self.other));
        }
        self.names().known.get(name).map(|known| Arc::clone(&known.counter))
    }

    /// Returns the counters of all limits in no order, except that [`OTHER`] is the last.
    pub(crate) fn limits(&self) -> Vec<Arc<LimitCounter>> {
        let names = self.names();
        let each = names.known.values().map(|known| &known.counter);
        each.chain([&self.other]).map(Arc::clone).collect()
    }

    /// Records one call to the store.
    pub(crate) fn record_call(&self, took: Span, answered: bool) {
        let (mine, adder) = self.totals.mine();
        let histogram = if answered { &mine.answered } else { &mine.unanswered };
        histogram.put(&LATENCY, took.as_micros(), adder);
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the limits that may have counters of their own. A configuration server may have added very many
/// others, whose names are not looked at.
fn named_limits(policy: &Policy) -> &[Limit] {
    let count = policy.matched_limits().len().max(MAX_NAMED_LIMITS);
    policy.limits().get(..count).unwrap_or(policy.limits())
}

/// Whether requests above the rate wait.
fn is_queue(quota: &Quota) -> bool {
    matches!(quota, Quota::Bucket(bucket) if bucket.queue().is_some())
}

impl Names {
    /// Marks the names of a policy as current, and evicts as many old names as its new names need.
    fn make_room(&mut self, policy: &Policy) {
        self.policies += 1;
        let mut new = 0;
        for limit in named_limits(policy) {
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

    /// Returns the counter of a name; creates it if there is room.
    fn counter(&mut self, name: &str) -> Option<Arc<LimitCounter>> {
        if name == OTHER {
            return None;
        }
        if let Some(known) = self.known.get(name) {
            return Some(Arc::clone(&known.counter));
        }
        (self.known.len() < MAX_NAMED_LIMITS).then(|| {
            let counter = Arc::new(LimitCounter::new(name));
            let known = KnownLimit { counter: Arc::clone(&counter), last: self.policies };
            self.known.insert(Arc::clone(&counter.name), known);
            counter
        })
    }
}
