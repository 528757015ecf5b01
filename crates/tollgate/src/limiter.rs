//! Checks requests against a policy.
//!
//! A limiter is a policy and a store, both immutable: a new policy makes a new limiter on the same
//! store ([`Limiter::with_policy`]). A request is therefore decided by one policy from start to
//! end, and the usage of keys is kept.
//!
//! Every request is decided. If the store gives no answer, `outage` decides.
//!
//! The path of a decision is in `pending`. Batches, limits by name and ad hoc rules are in
//! `entry_points`; operations after a request are in `settle`, after an outage in `reconcile`;
//! refusals of this node without the store are in `local`, decisions without a charge in `consider`,
//! operations on one key in `keys`, late costs in `late_charge`, places of queues that callers left in
//! `left_places`, waiting in `wait`, deadlines of callers in `store_deadline`.

mod candidates;
mod consider;
mod entry_points;
mod keys;
mod late_charge;
mod left_places;
mod local;
mod pending;
mod reconcile;
mod renew;
mod reserve;
mod settle;
mod settle_now;
mod start;
mod store_deadline;
mod wait;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Amount, Owner, Quota, Rule, Timestamp};
use tollgate_policy::{Checks, Input, Key, Limit, Matched, Mode, Policy, RuleCheck, Subject};
use tollgate_store::memory::Usage;
use tollgate_store::{Check, Clock, Holding, MemoryStore, Outcomes, Store, SystemClock};

use crate::adaptive::AdaptiveLimits;
use crate::decision::Decision;
use crate::id::{DecisionId, DecisionIds};
use crate::line::Lines;
use crate::node_shedder::NodeShedder;
use crate::observer::{ActiveObserver, Observer, Timing};
use crate::outage::{Health, Outage, OutageSettings};
use crate::owners::Owners;
use crate::randomness::Randomness;
use crate::renewals::Renewals;
use crate::spawner::Spawner;
use crate::timer::Sleeper;

use self::left_places::LeftPlaces;
use self::pending::Patience;
pub use pending::{DetachedPending, HoldEnd, Pending, PendingBatch, SlotWait};

/// Checks requests against a policy, and charges all limits that apply or none.
///
/// ```
/// use tollgate::{Call, Limiter};
///
/// let limiter = Limiter::from_policy("
/// limits:
///   - {name: per-user, by: user, bucket: 10/minute}
///   - {name: all-users, by: global, bucket: 1/minute}
/// ")?;
/// assert!(limiter.check(&Call::new("GET", "/").user("ann")).is_allowed());
/// let refused = limiter.check(&Call::new("GET", "/").user("bob"));
/// assert_eq!(refused.limiting().map(|it| it.name()), Some("all-users"));
/// let per_user = refused.limits().next().expect("both limits applied");
/// assert_eq!(per_user.outcome().remaining, 10);       // the refusal charged nothing
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct Limiter<S = MemoryStore<SystemClock>> {
    policy: Arc<Policy>,
    store: Arc<S>,
    owners: Arc<Owners>,
    ids: Arc<DecisionIds>,
    outage: Arc<Outage>,
    /// The requests that wait for slots, under all policies.
    lines: Arc<Lines>,
    /// The places of queues that callers have left, under all policies.
    left_places: Arc<LeftPlaces>,
    /// The requests whose slots are renewed, under all policies.
    pub(crate) renewals: Arc<Renewals<S>>,
    /// The number of policies so far, including this one.
    version: u64,
    watched: Option<ActiveObserver>,
    /// The limits with a learned number of slots, if the policy has any.
    pub(crate) adaptive: Option<Arc<AdaptiveLimits>>,
    /// The function that sleeps; `None`: the timer thread.
    sleeper: Option<Sleeper>,
    /// Runs work in the background, if there is a runtime for it.
    spawner: Option<Spawner>,
    shedder: NodeShedder,
}

impl Limiter {
    /// Creates a limiter in this process from the text of a policy.
    ///
    /// The error shows every mistake with its line, a caret and a suggestion.
    #[cfg(feature = "yaml")]
    pub fn from_policy(text: &str) -> Result<Self, tollgate_policy::Diagnostics> {
        Policy::parse(text).map(Self::new)
    }

    /// Creates a limiter in this process.
    pub fn new(policy: Policy) -> Self {
        let store = MemoryStore::new(usize::try_from(policy.max_keys()).unwrap_or(usize::MAX));
        Self::with_store(policy, store)
    }
}

impl<S> Limiter<S> {
    /// Creates a limiter on the given store.
    pub fn with_store(policy: Policy, store: S) -> Self {
        Self::with_shared_store(policy, Arc::new(store))
    }

    /// Creates a limiter on a store that the caller keeps too, such as to read its counters.
    pub fn with_shared_store(policy: Policy, store: Arc<S>) -> Self {
        Self {
            adaptive: AdaptiveLimits::of(&policy, None, &system_clock),
            policy: Arc::new(policy),
            store,
            owners: Arc::default(),
            ids: Arc::default(),
            outage: Arc::default(),
            lines: Arc::default(),
            left_places: Arc::default(),
            renewals: Arc::default(),
            version: 1,
            watched: None,
            sleeper: None,
            spawner: None,
            shedder: NodeShedder::default(),
        }
    }

    /// Sets the rules for outages of the store. Any outage state so far is dropped, so call this at
    /// the start.
    #[must_use]
    pub fn with_outage(self, settings: &OutageSettings) -> Self {
        self.with_outage_on(settings, SystemClock::new())
    }

    /// Sets the rules for outages as [`with_outage`](Self::with_outage) does, on the given clock.
    #[must_use]
    pub fn with_outage_on(self, settings: &OutageSettings, clock: impl Clock) -> Self {
        Self { outage: Arc::new(Outage::new(settings, clock, Randomness::System)), ..self }
    }

    /// Sets the rules for outages as [`with_outage_on`](Self::with_outage_on) does, and draws every random
    /// number of the limiter from `seed`: ids, owners of slots, the jitter of probes, the order in which the
    /// ledger is replayed. The same calls at the same times then have the same results.
    ///
    /// For simulations and tests only: with a known seed, a caller can guess the owners of other slots.
    #[must_use]
    pub fn with_seeded_outage_on(self, settings: &OutageSettings, clock: impl Clock, seed: u64) -> Self {
        let randomness = Randomness::Seed(seed);
        Self {
            ids: Arc::new(DecisionIds::new(randomness, 0)),
            owners: Arc::new(Owners::new(randomness)),
            outage: Arc::new(Outage::new(settings, clock, randomness)),
            ..self
        }
    }

    /// Sets the clock that measures the latency of requests, for limits with a learned number of slots
    /// (`slots: adaptive`), instead of the system clock.
    #[must_use]
    pub fn with_latency_clock(self, clock: impl Clock) -> Self {
        let adaptive = self.adaptive.as_ref().map(|it| it.on(Arc::new(clock)));
        Self { adaptive, ..self }
    }

    /// Returns the health of the store and counters of decisions made without it.
    pub fn health(&self) -> Health {
        self.outage.health()
    }

    /// Returns a limiter with a new policy on the same store. Limits that keep their name keep
    /// their usage; if their numbers changed, it is carried over.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        let (policy, version) = (Arc::new(policy.carry_over_from(&self.policy)), self.version + 1);
        let watched = self.watched.as_ref().map(|watched| watched.on(&policy, version));
        self.shedder.follow(&self.policy, &policy);
        let before = self.adaptive.as_deref().map(|it| (it, &*self.policy));
        let adaptive = AdaptiveLimits::of(&policy, before, &system_clock);
        Self { policy, version, watched, adaptive, ..self.clone() }
    }

    /// Returns the number of the policy in force, which increases by one with each replacement.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of requests that wait in line for a slot on this node.
    pub fn waiting(&self) -> usize {
        self.lines.len()
    }

    /// Returns the limits whose slots have a queue, each with the number of requests that wait in its lines
    /// on this node. For metrics and operators, not for requests.
    pub fn slot_queues(&self) -> impl Iterator<Item = (&Limit, usize)> {
        let waiting = if self.policy.has_slot_queues() { self.lines.by_rule() } else { HashMap::new() };
        let limits = self.policy.matched_limits().iter().filter(|limit| limit.slot_queue().is_some());
        limits.map(move |limit| {
            let of_rule = |rule: &Rule| waiting.get(&rule.id).copied().unwrap_or(0);
            (limit, limit.every_rule().map(of_rule).sum())
        })
    }

    /// Decides the requests that wait in line with the slots of this policy, and without the limits that
    /// refuse no more under it.
    pub(crate) fn update_lines(&self) {
        self.lines.follow(self.version, &self.policy, |rule| {
            let limits = self.policy.matched_limits().iter();
            let mut limits = limits.filter(|limit| limit.mode() == Mode::Enforce);
            limits.any(|limit| limit.every_rule().any(|it| it.id == rule))
        });
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the id of a decision: the id that the observer saw, or a new one. Decisions get no
    /// id by default, so that callers that need only yes or no do not pay for it.
    pub fn id_of(&self, decision: &Decision<'_>) -> DecisionId {
        decision.id.unwrap_or_else(|| self.ids.next())
    }

    /// Returns the observer.
    pub(crate) const fn watched(&self) -> Option<&ActiveObserver> {
        self.watched.as_ref()
    }

    /// Returns the start time of a decision, if there is an observer.
    #[inline]
    fn started_at(&self) -> Timestamp {
        self.watched.as_ref().map_or(Timestamp::EPOCH, ActiveObserver::now)
    }

    /// Notifies the observer, if there is one, of a decision that was made without waiting.
    #[inline]
    fn notify_in_place(&self, input: Option<&dyn Input>, decision: &mut Decision<'_>, started_at: Timestamp) {
        self.notify_with(input, decision, |watched| watched.in_place(started_at));
    }

    /// Notifies the observer of a decision, if there is one.
    fn notify(&self, input: Option<&dyn Input>, decision: &mut Decision<'_>, started_at: Timestamp) {
        self.notify_with(input, decision, |watched| watched.since(started_at));
    }

    /// Notifies the observer, if there is one, of a decision. `time` tells when it was made.
    #[inline(always)]
    fn notify_with<'w>(
        &'w self,
        input: Option<&dyn Input>,
        decision: &mut Decision<'_>,
        time: impl FnOnce(&'w ActiveObserver) -> Timing<'w>,
    ) {
        if decision.is_start {
            return self.notify_start(input, decision);
        }
        if let Some(watched) = &self.watched {
            let id = self.ids.next();
            decision.id = Some(id);
            decision.find_refusing();
            watched.decided(id, input.map(Input::subject), decision, time(watched));
        }
    }

    /// Prepares the part of a decision that needs no store: the checks that apply and the owner of
    /// its slots. Fills the buffer of the decision, which is too large to move.
    #[inline]
    fn match_input<'l, I: Input>(&'l self, input: &I, decision: &mut Decision<'l>) -> Matched<'l> {
        let matched = input.add_checks(&self.policy, &mut decision.checks);
        self.name_owner(decision);
        matched
    }

    /// Prepares a batch as [`match_input`](Self::match_input) does. The end of a request is reported only for
    /// descriptors, so slots of other limits are read and not taken. All descriptors of a batch belong to
    /// one request, which owns the slots.
    fn match_inputs<'l, I: Input>(
        &'l self,
        inputs: &[I],
        rules: &'l [RuleCheck],
        decision: &mut Decision<'l>,
    ) -> Matched<'l> {
        let matched = self.policy.match_batch(inputs, rules, &mut decision.checks);
        let takes_slot = |check: &tollgate_policy::Check<'_>| {
            matches!(check.rule.quota, Quota::Concurrency(_)) && check.limit.descriptor().is_some()
        };
        if decision.checks.iter().any(takes_slot) {
            let named = inputs.iter().find_map(|input| match input.subject() {
                Subject::Descriptor(descriptor) => self.policy.slot_owner(&descriptor),
                Subject::Request(_) => None,
            });
            decision.owner = Some(named.unwrap_or_else(|| self.owners.next()));
        }
        matched
    }

    /// Creates the owner under which a request would hold slots.
    #[inline]
    fn name_owner(&self, decision: &mut Decision<'_>) {
        if decision.checks.iter().any(tollgate_policy::Check::is_slot) {
            decision.owner = Some(self.owners.next());
        }
    }
}

fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// A batch in the form that a store takes.
type Batch<'b> = SmallVec<[Check<'b>; 8]>;

/// Returns the check that the store runs for one limit.
#[inline]
pub(crate) fn ask<'b>(check: &'b tollgate_policy::Check<'_>, owner: Option<Owner>) -> Check<'b> {
    Check {
        rule: check.rule,
        key: check.key.as_bytes(),
        amount: match (&check.rule.quota, owner) {
            (Quota::Concurrency(_), Some(owner)) if check.cost > 0 => Amount::Slot(owner),
            // Without an owner, slots are only read.
            (Quota::Concurrency(_), _) => Amount::Exactly(0),
            _ => Amount::Exactly(check.cost),
        },
        binding: check.limit.mode() != Mode::Shadow,
        count_denied: check.count_denied,
    }
}

/// Adds the checks to a batch of the caller: returning a batch would copy it.
#[inline]
fn ask_all<'b>(checks: &'b [tollgate_policy::Check<'_>], owner: Option<Owner>, batch: &mut Batch<'b>) {
    batch.extend(checks.iter().map(|check| ask(check, owner)));
}

/// Returns the charges for a refusal that was decided without counting: limits that count refusals.
fn ask_denied<'b>(checks: &'b Checks<'_>) -> Batch<'b> {
    checks.iter().filter(|check| check.limit.count_denied()).map(|check| ask(check, None)).collect()
}

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Returns the memory use of the store. Scans its tables, so it is for metrics and not for
    /// requests.
    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// Returns the clock of the store.
    pub fn clock(&self) -> &C {
        self.store.clock()
    }

    /// Decides about a request or descriptor synchronously, for a store in this process.
    pub fn check<I: Input>(&self, input: &I) -> Decision<'_> {
        let mut decision = Decision::undecided();
        let matching = |it: &mut _| self.match_input(input, it);
        // A store in memory never waits.
        let _decided = self.decide_into(Some(input), matching, &mut decision, Patience::None);
        decision
    }
}

impl<S: Store> Limiter<S> {
    /// Sets the observer, which is notified of every decision.
    #[must_use]
    pub fn with_observer(self, observer: impl Observer) -> Self {
        self.with_observer_on(Arc::new(observer), SystemClock::new())
    }

    /// Sets the observer as [`with_observer`](Self::with_observer) does, on the given clock.
    #[must_use]
    pub fn with_observer_on(self, observer: Arc<dyn Observer>, clock: impl Clock) -> Self {
        let (clock, store_clock) = (Arc::new(clock), self.store.clock_id());
        let watched = ActiveObserver::new(observer, clock, store_clock, &self.policy, self.version);
        Self { watched: Some(watched), ..self }
    }

    /// Asks the store for a decision that started at `started_at`, without waiting.
    #[inline]
    fn try_store(
        &self,
        checks: &[Check<'_>],
        started_at: Timestamp,
        outcomes: &mut Outcomes,
    ) -> Option<(bool, Timestamp)> {
        match &self.watched {
            Some(watched) if watched.has_store_clock() => {
                self.store.try_decide_at(checks, started_at, outcomes)
            }
            _ => self.store.try_decide(checks, outcomes),
        }
    }

    /// Returns the last known number of nodes that share the store, including this one.
    pub fn nodes(&self) -> usize {
        self.store.nodes()
    }

    /// Returns whether other processes share the store.
    pub fn has_shared_store(&self) -> bool {
        self.store.is_shared()
    }

    /// Returns the units of a key that this node holds in leases, if its store decides from leases.
    pub fn holding(&self, rule: &Rule, key: &Key) -> Option<Holding> {
        self.store.holding(rule, key.as_bytes())
    }

    /// Returns the keys of which this node holds units in leases, those with the most units first, at
    /// most `max_keys` of them.
    pub fn holdings(&self, max_keys: usize) -> Vec<Holding> {
        self.store.holdings(max_keys)
    }

    /// Decides about an input without waiting and passes the decision to `then`, if the store can
    /// answer immediately or the breaker is open. Otherwise nothing was charged, and the error
    /// continues the decision.
    ///
    /// The decision is borrowed, not returned: it has kilobytes, and moving it costs more than
    /// making it.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 5/minute}]").unwrap();
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// let allowed = match limiter.try_decide(&call, |decision| decision.is_allowed()) {
    ///     Ok(allowed) => allowed,
    ///     Err(pending) => pending.finish(Some(&call)).await.is_allowed(),
    /// };
    /// assert!(allowed);
    /// # });
    /// ```
    #[inline]
    pub fn try_decide<'l, I: Input, T>(
        &'l self,
        input: &I,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        self.try_decide_matched(Some(input), |it| self.match_input(input, it), Patience::None, then)
    }

    /// Decides about an input as [`try_decide`](Self::try_decide) does, for a caller that can hold the
    /// request. A request that has to wait for a slot is not refused: the error continues the decision,
    /// and [`Pending::finish_waiting`] waits in line.
    #[inline]
    pub fn try_decide_or_wait<'l, I: Input, T>(
        &'l self,
        input: &I,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        self.try_decide_matched(Some(input), |it| self.match_input(input, it), Patience::InLine, then)
    }

    /// Decides about a request or descriptor.
    pub async fn decide<I: Input + Sync>(&self, input: &I) -> Decision<'_> {
        self.decide_matched(Some(input), |it| self.match_input(input, it)).await
    }

    /// Decides about an input whose end is not observed: slots are read and not taken, because
    /// they would be held until their leases end.
    pub async fn decide_without_slots<I: Input + Sync>(&self, input: &I) -> Decision<'_> {
        self.decide_matched(Some(input), |it| input.add_checks(&self.policy, &mut it.checks)).await
    }
}

impl<S> fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.policy.limits().len();
        f.debug_struct("Limiter")
            .field("limits", &limits)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Cheap: clones share the policy and the store.
impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            store: Arc::clone(&self.store),
            owners: Arc::clone(&self.owners),
            ids: Arc::clone(&self.ids),
            outage: Arc::clone(&self.outage),
            lines: Arc::clone(&self.lines),
            left_places: Arc::clone(&self.left_places),
            renewals: Arc::clone(&self.renewals),
            version: self.version,
            watched: self.watched.clone(),
            adaptive: self.adaptive.clone(),
            sleeper: self.sleeper.clone(),
            spawner: self.spawner.clone(),
            shedder: self.shedder.clone(),
        }
    }
}
