//! Checks requests against a policy.
//!
//! A limiter is a policy and a store, and neither changes: a new policy makes a
//! new limiter on the same store ([`Limiter::with_policy`]), so a request is
//! decided by one policy from start to end and what keys have spent is kept.
//!
//! Every request is decided: where the store gives no answer, by `outage`.
//!
//! Not here: questions that are no single request (`entry_points`), what comes after a request (`settle`) and after an outage (`reconcile`), and
//! questions that charge nothing (`consider`).

mod candidates;
mod consider;
mod entry_points;
mod reconcile;
mod settle;

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
///   - {name: everybody, by: global, bucket: 1/minute}
/// ")?;
/// assert!(limiter.check(&Call::new("GET", "/").user("ann")).is_allowed());
/// let refused = limiter.check(&Call::new("GET", "/").user("bob"));
/// assert_eq!(refused.limiting().map(|it| it.name()), Some("everybody"));
/// let of_bob = refused.limits().next().expect("his own limit applied too");
/// assert_eq!(of_bob.outcome().remaining, 10);         // and charged him nothing
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct Limiter<S = MemoryStore<SystemClock>> {
    policy: Arc<Policy>,
    store: Arc<S>,
    owners: Arc<Owners>,
    ids: Arc<DecisionIds>,
    outage: Arc<Outage>,
    /// How many policies came before, this one included.
    version: u64,
    watched: Option<ActiveObserver>,
}

impl Limiter {
    /// A limiter in this process, from the text of a policy.
    ///
    /// The error shows every mistake with its line, a caret and a way out.
    pub fn from_policy(text: &str) -> Result<Self, Diagnostics> {
        Policy::parse(text).map(Self::new)
    }

    /// A limiter in this process.
    pub fn new(policy: Policy) -> Self {
        let store = MemoryStore::new(usize::try_from(policy.max_keys()).unwrap_or(usize::MAX));
        Self::with_store(policy, store)
    }
}

impl<S> Limiter<S> {
    /// A limiter on a store of your choice.
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

    /// The same limiter with other rules for when the store gives no answer. What is
    /// known of outages so far is forgotten: this is for the start.
    #[must_use]
    pub fn with_outage(self, settings: &OutageSettings) -> Self {
        self.with_outage_on(settings, SystemClock::new())
    }

    /// As [`with_outage`](Self::with_outage), on a clock of your own.
    #[must_use]
    pub fn with_outage_on(self, settings: &OutageSettings, clock: impl Clock) -> Self {
        Self { outage: Arc::new(Outage::new(settings, clock)), ..self }
    }

    /// The same limiter, which tells an observer of every decision.
    #[must_use]
    pub fn with_observer(self, observer: impl Observer) -> Self {
        self.with_observer_on(Arc::new(observer), SystemClock::new())
    }

    /// As [`with_observer`](Self::with_observer), on a clock of your own.
    #[must_use]
    pub fn with_observer_on(self, observer: Arc<dyn Observer>, clock: impl Clock) -> Self {
        let watched = ActiveObserver::new(observer, Arc::new(clock), &self.policy, self.version);
        Self { watched: Some(watched), ..self }
    }

    /// How the store is doing, and what was decided without it.
    pub fn health(&self) -> Health {
        self.outage.health()
    }

    /// A limiter with a new policy on the same store. Limits that keep their
    /// name keep what was spent; where their numbers changed, it is carried over.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        let (policy, version) = (Arc::new(policy.carry_over_from(&self.policy)), self.version + 1);
        let watched = self.watched.as_ref().map(|watched| watched.on(&policy, version));
        Self { policy, version, watched, ..self.clone() }
    }

    /// The number of the policy in force: each that replaces another has the next.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The store underneath.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The name of a decision: the one that an observer was told, or a new one. Decisions
    /// are not named by themselves: whoever only asks yes or no need not pay for it.
    pub fn id_of(&self, decision: &Decision<'_>) -> DecisionId {
        decision.id.unwrap_or_else(|| self.ids.next())
    }

    /// When a decision is begun, where anybody wants to know.
    #[inline]
    fn started_at(&self) -> Timestamp {
        self.watched.as_ref().map_or(Timestamp::EPOCH, ActiveObserver::now)
    }

    /// Tells of a decision, where anybody wants to know.
    #[inline]
    fn notify(&self, request: Option<&dyn Request>, decision: &mut Decision<'_>, started_at: Timestamp) {
        if let Some(watched) = &self.watched {
            let id = self.ids.next();
            decision.id = Some(id);
            watched.decided(id, request, decision, started_at);
        }
    }

    /// Everything about a request that needs no store: what applies, and who
    /// would hold a slot. Fills the decision's own buffer, which is large and
    /// not moved about.
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

    /// Whoever may take a slot needs a name to hold it under.
    #[inline]
    fn name_owner(&self, decision: &mut Decision<'_>) {
        let wants_slot =
            |check: &tollgate_policy::Check<'_>| matches!(check.rule.quota, Quota::Concurrency(_));
        if decision.checks.iter().any(wants_slot) {
            decision.owner = Some(self.owners.next());
        }
    }
}

/// A batch as a store takes it.
type Batch<'b> = SmallVec<[Check<'b>; 8]>;

/// What to ask the store about one limit.
#[inline]
pub(crate) fn ask<'b>(check: &'b tollgate_policy::Check<'_>, owner: Option<Owner>) -> Check<'b> {
    Check {
        rule: check.rule,
        key: check.key.as_bytes(),
        amount: match (&check.rule.quota, owner) {
            (Quota::Concurrency(_), Some(owner)) if check.cost > 0 => Amount::Slot(owner),
            // Nobody to hold a slot: it is only looked at.
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

/// What a refusal that needs no counting still costs: limits that count refusals.
fn ask_denied<'b>(checks: &'b Checks<'_>) -> Batch<'b> {
    checks.iter().filter(|check| check.limit.count_denied()).map(|check| ask(check, None)).collect()
}

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Decides about a request at once: the store is in this process.
    pub fn check<R: Request + ?Sized>(&self, request: &R) -> Decision<'_> {
        let mut decision = Decision::undecided();
        self.decide_into(request, &mut decision);
        decision
    }
}

impl<S: Store> Limiter<S> {
    /// Decides about a request without waiting, if the store can or is left alone, and
    /// does something with the decision. `None`: nothing has happened, and
    /// [`decide`](Self::decide) is to be asked.
    ///
    /// The decision is lent and not given: it is kilobytes large, and moving it
    /// about costs more than making it.
    #[inline]
    pub fn try_decide<R: Request + ?Sized, T>(
        &self,
        request: &R,
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> Option<T> {
        let mut decision = Decision::undecided();
        self.decide_into(request, &mut decision).then(|| then(&decision))
    }

    /// Apart from its callers so that a decision, which is large, is made where
    /// it is wanted and not copied there. Whether it was made.
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

    /// Everything about a decision that needs the store, if that can answer at once.
    /// Whether it did.
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
                    if !self.outage.is_left_alone() {
                        return false;
                    }
                    self.outage.charge_denied(&decision.checks, ChargeStatus::No, self.store.nodes());
                }
                decision.settle_uncounted(matched);
            }
        }
        true
    }

    /// While the store is left alone there is nothing to wait for. Whether it is.
    #[cold]
    fn decide_alone(&self, decision: &mut Decision<'_>) -> bool {
        let is_left_alone = self.outage.is_left_alone();
        if is_left_alone {
            let nodes = self.store.nodes();
            let found = self.outage.decide(&decision.checks, decision.owner, ChargeStatus::No, nodes);
            decision.degrade(found, self.outage.wall_ahead());
        }
        is_left_alone
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

    /// Decides about a request whose end nobody here will see: slots are looked
    /// at and not taken, for they would be held until their leases end.
    pub async fn decide_without_slots<R: Request + ?Sized + Sync>(&self, request: &R) -> Decision<'_> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        let matched = self.policy.match_request(request, &mut decision.checks);
        let mut decision = self.conclude(matched, decision).await;
        self.notify(Some(&request), &mut decision, started_at);
        decision
    }

    /// Everything about a decision that needs the store, or has to do without.
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
                    Err(landed) => {
                        let nodes = self.store.nodes();
                        let found = self.outage.decide(&decision.checks, decision.owner, landed, nodes);
                        decision.degrade(found, self.outage.wall_ahead());
                    }
                }
            }
            matched => {
                let denied = ask_denied(&decision.checks);
                let counted =
                    if denied.is_empty() { Ok(()) } else { self.ask_store(&denied).await.map(drop) };
                drop(denied);
                if let Err(landed) = counted {
                    self.outage.charge_denied(&decision.checks, landed, self.store.nodes());
                }
                decision.settle_uncounted(matched);
            }
        }
        decision
    }

    /// Asks the store, unless it is left alone.
    async fn ask_store(&self, batch: &[Check<'_>]) -> Result<Answer, ChargeStatus> {
        // What a store knows without being asked says nothing about its health.
        let mut outcomes = Outcomes::new();
        if let Some((admitted, at)) = self.store.try_decide(batch, &mut outcomes) {
            return Ok(Answer { admitted, at, outcomes });
        }
        let Some(attempt) = self.outage.attempt() else { return Err(ChargeStatus::No) };
        let started_at = self.started_at();
        let answer = self.store.decide(batch).await;
        if let Some(watched) = &self.watched {
            watched.asked(started_at, answer.is_ok());
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

/// A policy and a store are shared; so is a limiter.
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

/// Names for holders of slots: a count, hashed with keys of this process. A caller that knows the names of its own
/// slots cannot guess those of others, and release them.
struct Owners {
    hashers: [RandomState; 2],
    next: AtomicU64,
}

impl Default for Owners {
    fn default() -> Self {
        Self { hashers: [RandomState::new(), RandomState::new()], next: AtomicU64::new(0) }
    }
}

impl Owners {
    fn next(&self) -> Owner {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let [high, low] = &self.hashers;
        // `RandomState::new` counts its keys up, so the two halves hash different values, too.
        Owner(u128::from(high.hash_one(count)) << 64 | u128::from(low.hash_one((1u8, count))))
    }
}
