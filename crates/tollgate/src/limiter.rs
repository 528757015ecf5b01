//! Checks requests against a policy.
//!
//! A limiter is a policy and a store, both immutable: a new policy makes a new limiter on the same
//! store ([`Limiter::with_policy`]). A request is therefore decided by one policy from start to
//! end, and the usage of keys is kept.
//!
//! Every request is decided. If the store gives no answer, `outage` decides.
//!
//! Batches, limits by name and ad hoc rules are in `entry_points`; operations after a request are
//! in `settle`, after an outage in `reconcile`; decisions without a charge are in `consider`.

mod candidates;
mod consider;
mod entry_points;
mod reconcile;
mod settle;
mod try_settle;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tollgate_core::{Amount, Owner, Quota, Timestamp};
use tollgate_policy::{Checks, Diagnostics, Matched, Mode, Policy, Request};
use tollgate_store::{Answer, Check, Clock, MemoryStore, Outcomes, Store, SystemClock};

use crate::decision::Decision;
use crate::id::{DecisionId, DecisionIds};
use crate::observer::{ActiveObserver, Observer};
use crate::outage::{ChargeStatus, Health, Outage, OutageSettings};

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
    /// The number of policies so far, including this one.
    version: u64,
    watched: Option<ActiveObserver>,
}

impl Limiter {
    /// Creates a limiter in this process from the text of a policy.
    ///
    /// The error shows every mistake with its line, a caret and a suggestion.
    pub fn from_policy(text: &str) -> Result<Self, Diagnostics> {
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
        Self {
            policy: Arc::new(policy),
            store: Arc::new(store),
            owners: Arc::default(),
            ids: Arc::default(),
            outage: Arc::default(),
            version: 1,
            watched: None,
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
        Self { outage: Arc::new(Outage::new(settings, clock)), ..self }
    }

    /// Sets the observer, which is notified of every decision.
    #[must_use]
    pub fn with_observer(self, observer: impl Observer) -> Self {
        self.with_observer_on(Arc::new(observer), SystemClock::new())
    }

    /// Sets the observer as [`with_observer`](Self::with_observer) does, on the given clock.
    #[must_use]
    pub fn with_observer_on(self, observer: Arc<dyn Observer>, clock: impl Clock) -> Self {
        let watched = ActiveObserver::new(observer, Arc::new(clock), &self.policy, self.version);
        Self { watched: Some(watched), ..self }
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
        Self { policy, version, watched, ..self.clone() }
    }

    /// Returns the number of the policy in force, which increases by one with each replacement.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the id of a decision: the id that the observer saw, or a new one. Decisions get no
    /// id by default, so that callers that need only yes or no do not pay for it.
    pub fn id_of(&self, decision: &Decision<'_>) -> DecisionId {
        decision.id.unwrap_or_else(|| self.ids.next())
    }

    /// Returns the start time of a decision, if there is an observer.
    #[inline]
    fn started_at(&self) -> Timestamp {
        self.watched.as_ref().map_or(Timestamp::EPOCH, ActiveObserver::now)
    }

    /// Notifies the observer of a decision, if there is one.
    #[inline]
    fn notify(&self, request: Option<&dyn Request>, decision: &mut Decision<'_>, started_at: Timestamp) {
        if let Some(watched) = &self.watched {
            let id = self.ids.next();
            decision.id = Some(id);
            watched.decided(id, request, decision, started_at);
        }
    }

    /// Prepares the part of a decision that needs no store: the checks that apply and the owner of
    /// its slots. Fills the buffer of the decision, which is too large to move.
    #[inline]
    fn match_request<'l, R: Request + ?Sized>(
        &'l self,
        request: &R,
        decision: &mut Decision<'l>,
    ) -> Matched<'l> {
        let matched = self.policy.match_request(request, &mut decision.checks);
        self.name_owner(decision);
        matched
    }

    /// Creates the owner under which a request would hold slots.
    #[inline]
    fn name_owner(&self, decision: &mut Decision<'_>) {
        let wants_slot =
            |check: &tollgate_policy::Check<'_>| matches!(check.rule.quota, Quota::Concurrency(_));
        if decision.checks.iter().any(wants_slot) {
            decision.owner = Some(self.owners.next());
        }
    }
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

fn ask_all<'b>(checks: &'b Checks<'_>, owner: Option<Owner>) -> Batch<'b> {
    checks.iter().map(|check| ask(check, owner)).collect()
}

/// Returns the charges for a refusal that was decided without counting: limits that count refusals.
fn ask_denied<'b>(checks: &'b Checks<'_>) -> Batch<'b> {
    checks.iter().filter(|check| check.limit.count_denied()).map(|check| ask(check, None)).collect()
}

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Decides about a request synchronously, for a store in this process.
    pub fn check<R: Request + ?Sized>(&self, request: &R) -> Decision<'_> {
        let mut decision = Decision::undecided();
        self.decide_into(request, &mut decision);
        decision
    }
}

impl<S: Store> Limiter<S> {
    /// Decides about a request without waiting and passes the decision to `then`, if the store can
    /// answer at once or the breaker is open. Returns `None` if nothing was done and the caller
    /// must use [`decide`](Self::decide).
    ///
    /// The decision is borrowed, not returned: it has kilobytes, and moving it costs more than
    /// making it.
    #[inline]
    pub fn try_decide<R: Request + ?Sized, T>(
        &self,
        request: &R,
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> Option<T> {
        let mut decision = Decision::undecided();
        self.decide_into(request, &mut decision).then(|| then(&decision))
    }

    /// A separate function, so that the large decision is made in place and not copied. Returns
    /// whether it was made.
    #[inline(never)]
    fn decide_into<'l, R: Request + ?Sized>(&'l self, request: &R, decision: &mut Decision<'l>) -> bool {
        let started_at = self.started_at();
        let matched = self.match_request(request, decision);
        let decided = self.try_conclude(matched, decision);
        if decided {
            self.notify(Some(&request), decision, started_at);
        }
        decided
    }

    /// Runs the part of a decision that needs the store, if the store can answer at once. Returns
    /// whether it did.
    #[inline]
    fn try_conclude<'l>(&'l self, matched: Matched<'l>, decision: &mut Decision<'l>) -> bool {
        match matched {
            Matched::Applies if decision.checks.is_empty() => {}
            Matched::Applies => {
                let (owner, outcomes) = (decision.owner, &mut decision.outcomes);
                let answer = match &decision.checks[..] {
                    [check] => self.store.try_decide(&[ask(check, owner)], outcomes),
                    _ => self.store.try_decide(&ask_all(&decision.checks, owner), outcomes),
                };
                let Some((admitted, at)) = answer else { return self.decide_alone(decision) };
                if !self.try_compensate(decision, admitted, at) {
                    decision.outcomes.clear();
                    return false;
                }
                decision.count(admitted, at, self.store.wall_ahead(at));
            }
            matched => {
                let denied = ask_denied(&decision.checks);
                let counted =
                    denied.is_empty() || self.store.try_decide(&denied, &mut Outcomes::new()).is_some();
                drop(denied);
                if !counted {
                    if !self.outage.is_breaker_open() {
                        return false;
                    }
                    self.outage.charge_denied(&decision.checks, ChargeStatus::NotCharged, self.store.nodes());
                }
                decision.settle_uncounted(matched);
            }
        }
        true
    }

    /// Decides without the store if the breaker is open. Returns whether it did.
    #[cold]
    fn decide_alone(&self, decision: &mut Decision<'_>) -> bool {
        let is_breaker_open = self.outage.is_breaker_open();
        if is_breaker_open {
            let nodes = self.store.nodes();
            let found = self.outage.decide(&decision.checks, decision.owner, ChargeStatus::NotCharged, nodes);
            decision.degrade(found, self.outage.wall_ahead());
        }
        is_breaker_open
    }

    /// Decides about a request.
    pub async fn decide<R: Request + ?Sized + Sync>(&self, request: &R) -> Decision<'_> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        let matched = self.match_request(request, &mut decision);
        let mut decision = self.conclude(matched, decision).await;
        self.notify(Some(&request), &mut decision, started_at);
        decision
    }

    /// Decides about a request whose end is not observed: slots are read and not taken, because
    /// they would be held until their leases end.
    pub async fn decide_without_slots<R: Request + ?Sized + Sync>(&self, request: &R) -> Decision<'_> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        let matched = self.policy.match_request(request, &mut decision.checks);
        let mut decision = self.conclude(matched, decision).await;
        self.notify(Some(&request), &mut decision, started_at);
        decision
    }

    /// Runs the part of a decision that needs the store, or falls back without it.
    async fn conclude<'l>(&'l self, matched: Matched<'l>, mut decision: Decision<'l>) -> Decision<'l> {
        match matched {
            Matched::Applies if decision.checks.is_empty() => {}
            Matched::Applies => {
                let batch = ask_all(&decision.checks, decision.owner);
                let answer = self.ask_store(&batch).await;
                drop(batch);
                match answer {
                    Ok(answer) => {
                        decision.outcomes = answer.outcomes;
                        self.compensate(&mut decision, answer.admitted, answer.at).await;
                        decision.count(answer.admitted, answer.at, self.store.wall_ahead(answer.at));
                    }
                    Err(charge_status) => {
                        let nodes = self.store.nodes();
                        let found =
                            self.outage.decide(&decision.checks, decision.owner, charge_status, nodes);
                        decision.degrade(found, self.outage.wall_ahead());
                    }
                }
            }
            matched => {
                let denied = ask_denied(&decision.checks);
                let counted =
                    if denied.is_empty() { Ok(()) } else { self.ask_store(&denied).await.map(drop) };
                drop(denied);
                if let Err(charge_status) = counted {
                    self.outage.charge_denied(&decision.checks, charge_status, self.store.nodes());
                }
                decision.settle_uncounted(matched);
            }
        }
        decision
    }

    /// Asks the store, unless the breaker is open.
    async fn ask_store(&self, batch: &[Check<'_>]) -> Result<Answer, ChargeStatus> {
        // Answers from the store's cache carry no information about its health.
        let mut outcomes = Outcomes::new();
        if let Some((admitted, at)) = self.store.try_decide(batch, &mut outcomes) {
            return Ok(Answer { admitted, at, outcomes });
        }
        let Some(attempt) = self.outage.attempt() else { return Err(ChargeStatus::NotCharged) };
        let started_at = self.started_at();
        let answer = self.store.decide(batch).await;
        if let Some(watched) = &self.watched {
            watched.store_called(started_at, answer.is_ok());
        }
        match answer {
            Ok(answer) => {
                attempt.succeeded();
                Ok(answer)
            }
            Err(error) => Err(attempt.failed(&error)),
        }
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
            version: self.version,
            watched: self.watched.clone(),
        }
    }
}

/// Generates owners of slots: a counter, hashed with keys of this process. A caller that knows the
/// owners of its own slots cannot guess others and release their slots.
pub(crate) struct Owners {
    hashers: [RandomState; 2],
    next: AtomicU64,
}

impl Default for Owners {
    fn default() -> Self {
        Self { hashers: [RandomState::new(), RandomState::new()], next: AtomicU64::new(0) }
    }
}

impl Owners {
    pub(crate) fn next(&self) -> Owner {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let [high, low] = &self.hashers;
        // `RandomState::new` increments its keys, so the two halves also hash different values.
        Owner(u128::from(high.hash_one(count)) << 64 | u128::from(low.hash_one((1u8, count))))
    }
}
