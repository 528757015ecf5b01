//! Checks requests against a policy.
//!
//! A limiter is a policy and a store, and neither changes: a new policy makes a
//! new limiter on the same store ([`Limiter::with_policy`]), so a request is
//! decided by one policy from start to end and what keys have spent is kept.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Demand, Overdraft, Owner, Quota};
use tollgate_policy::{Checks, Diagnostics, Key, Limit, Mode, Policy, Request, Survey};
use tollgate_store::{Check, Clock, MemoryStore, Outcomes, Store, StoreError, SystemClock};

use crate::decision::Decision;
use crate::id::{DecisionId, DecisionIds};
use crate::receipt::Receipt;

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
/// assert_eq!(refused.decider().map(|it| it.name()), Some("everybody"));
/// let of_bob = refused.limits().next().expect("his own limit applied too");
/// assert_eq!(of_bob.outcome().remaining, 10);         // and charged him nothing
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct Limiter<S = MemoryStore<SystemClock>> {
    policy: Arc<Policy>,
    store: Arc<S>,
    owners: Arc<Owners>,
    ids: Arc<DecisionIds>,
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
        Self { policy: Arc::new(policy), store: Arc::new(store), owners: Arc::default(), ids: Arc::default() }
    }

    /// A limiter with a new policy on the same store. Limits that keep their
    /// name keep what was spent; where their numbers changed, it is carried over.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self {
            policy: Arc::new(policy.succeeding(&self.policy)),
            store: Arc::clone(&self.store),
            owners: Arc::clone(&self.owners),
            ids: Arc::clone(&self.ids),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The store underneath.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// A name for a decision. Decisions are not named by themselves: whoever
    /// only asks yes or no need not pay for it.
    pub fn next_id(&self) -> DecisionId {
        self.ids.next()
    }

    /// Everything about a request that needs no store: what applies, and who
    /// would hold a slot. Fills the decision's own buffer, which is large and
    /// not moved about.
    #[inline]
    fn survey<'l, R: Request + ?Sized>(&'l self, request: &R, decision: &mut Decision<'l>) -> Survey<'l> {
        let survey = self.policy.survey(request, &mut decision.checks);
        self.name_owner(decision);
        survey
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
fn ask<'b>(check: &'b tollgate_policy::Check<'_>, owner: Option<Owner>) -> Check<'b> {
    Check {
        rule: check.rule,
        key: check.key.as_bytes(),
        demand: match (&check.rule.quota, owner) {
            (Quota::Concurrency(_), Some(owner)) if check.cost > 0 => Demand::Slot(owner),
            // Nobody to hold a slot: it is only looked at.
            (Quota::Concurrency(_), _) => Demand::Exactly(0),
            _ => Demand::Exactly(check.cost),
        },
        binding: check.limit.mode() != Mode::Shadow,
        count_denied: check.limit.count_denied(),
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
    /// Decides about a request without waiting, if the store can, and does
    /// something with the decision. `None`: nothing has happened, and
    /// [`decide`](Self::decide) is to be asked.
    ///
    /// The decision is lent and not given: it is kilobytes large, and moving it
    /// about costs more than making it.
    #[inline]
    pub fn decide_at_once<R: Request + ?Sized, T>(
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
        match self.survey(request, decision) {
            Survey::Applies if decision.checks.is_empty() => {}
            Survey::Applies => {
                let (owner, outcomes) = (decision.owner, &mut decision.outcomes);
                let answer = match &decision.checks[..] {
                    [check] => self.store.decide_at_once(&[ask(check, owner)], outcomes),
                    _ => self.store.decide_at_once(&ask_all(&decision.checks, owner), outcomes),
                };
                let Some((admitted, at)) = answer else { return false };
                decision.count(admitted, at);
            }
            survey => {
                let denied = ask_denied(&decision.checks);
                let counted =
                    denied.is_empty() || self.store.decide_at_once(&denied, &mut Outcomes::new()).is_some();
                drop(denied);
                if !counted {
                    return false;
                }
                decision.settle_uncounted(survey);
            }
        }
        true
    }

    /// Decides about a request.
    pub async fn decide<R: Request + ?Sized + Sync>(&self, request: &R) -> Result<Decision<'_>, StoreError> {
        let mut decision = Decision::undecided();
        let survey = self.survey(request, &mut decision);
        self.conclude(survey, decision).await
    }

    /// Decides about a request whose end nobody here will see: slots are looked
    /// at and not taken, for they would be held until their leases end.
    pub async fn decide_in_passing<R: Request + ?Sized + Sync>(
        &self,
        request: &R,
    ) -> Result<Decision<'_>, StoreError> {
        let mut decision = Decision::undecided();
        let survey = self.policy.survey(request, &mut decision.checks);
        self.conclude(survey, decision).await
    }

    /// Decides by one limit about a key that is known, on this plan or the
    /// default one. A limit that is off admits, and counts nothing.
    pub async fn decide_by<'l>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
    ) -> Result<Decision<'l>, StoreError> {
        let mut decision = Decision::undecided();
        let survey = self.policy.survey_limit(limit, key, plan, cost, &mut decision.checks);
        self.name_owner(&mut decision);
        self.conclude(survey, decision).await
    }

    /// Everything about a decision that needs the store.
    async fn conclude<'l>(
        &'l self,
        survey: Survey<'l>,
        mut decision: Decision<'l>,
    ) -> Result<Decision<'l>, StoreError> {
        match survey {
            Survey::Applies if decision.checks.is_empty() => {}
            Survey::Applies => {
                let batch = ask_all(&decision.checks, decision.owner);
                let answer = self.store.decide(&batch).await?;
                drop(batch);
                decision.outcomes = answer.outcomes;
                decision.count(answer.admitted, answer.at);
            }
            survey => {
                let denied = ask_denied(&decision.checks);
                if !denied.is_empty() {
                    self.store.decide(&denied).await?;
                }
                drop(denied);
                decision.settle_uncounted(survey);
            }
        }
        Ok(decision)
    }

    /// Gives back all that a decision charged, as if the request had not been made.
    pub async fn refund(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.refund_receipt(&receipt).await,
            None => Ok(()),
        }
    }

    /// Charges what a request turned out to cost, instead of what was charged
    /// before it ran. What was too much is given back; what was too little is
    /// charged even if it is not there, and repaid before the next request passes.
    ///
    /// Once for each decision: the difference to what was charged before it ran is
    /// taken each time.
    pub async fn settle(&self, decision: &Decision<'_>, cost: u64) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.settle_receipt(&receipt, cost).await,
            None => Ok(()),
        }
    }

    /// Frees the slots that a decision took, once its request is done.
    pub async fn release(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        match decision.receipt() {
            Some(receipt) => self.release_receipt(&receipt).await,
            None => Ok(()),
        }
    }

    /// As [`refund`](Self::refund), of a decision that is gone.
    pub async fn refund_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        for (charge, rule) in receipt.units_in(&self.policy) {
            let adjustment = Adjustment::Refund { units: charge.units, taken_at: receipt.at };
            self.store.adjust(rule, charge.key.as_bytes(), adjustment).await?;
        }
        self.release_receipt(receipt).await
    }

    /// As [`settle`](Self::settle), of a decision that is gone. Once, too: whoever keeps
    /// receipts remembers which are settled. What came back later cannot be told apart
    /// from what others spent since, so a second cost could not be put right.
    pub async fn settle_receipt(&self, receipt: &Receipt, cost: u64) -> Result<(), StoreError> {
        for (charge, rule) in receipt.units_in(&self.policy) {
            let adjustment = if cost < charge.units {
                Adjustment::Refund { units: charge.units - cost, taken_at: receipt.at }
            } else {
                Adjustment::Charge { units: cost - charge.units, overdraft: Overdraft::OneCapacity }
            };
            self.store.adjust(rule, charge.key.as_bytes(), adjustment).await?;
        }
        Ok(())
    }

    /// As [`release`](Self::release), of a decision that is gone. Doing so twice does no harm.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), StoreError> {
        let Some(owner) = receipt.owner else { return Ok(()) };
        for (charge, rule) in receipt.slots_in(&self.policy) {
            self.store.adjust(rule, charge.key.as_bytes(), Adjustment::Release { owner }).await?;
        }
        Ok(())
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
        }
    }
}

/// Names for holders of slots: a random number for this process, then a count.
struct Owners {
    process: u64,
    next: AtomicU64,
}

impl Default for Owners {
    fn default() -> Self {
        Self { process: RandomState::new().hash_one(0u8), next: AtomicU64::new(0) }
    }
}

impl Owners {
    fn next(&self) -> Owner {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        Owner(u128::from(self.process) << 64 | u128::from(count))
    }
}
