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
use tollgate_policy::{Checks, Diagnostics, Mode, Policy, Request, Survey};
use tollgate_store::{Check, Clock, MemoryStore, Store, StoreError, SystemClock};

use crate::decision::Decision;
use crate::id::{DecisionId, DecisionIds};

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
        let wants_slot =
            |check: &tollgate_policy::Check<'_>| matches!(check.rule.quota, Quota::Concurrency(_));
        if decision.checks.iter().any(wants_slot) {
            decision.owner = Some(self.owners.next());
        }
        survey
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
        self.check_into(request, &mut decision);
        decision
    }

    /// Apart from [`check`](Self::check) so that a decision, which is large, is
    /// made where it is wanted and not copied there.
    #[inline(never)]
    fn check_into<'l, R: Request + ?Sized>(&'l self, request: &R, decision: &mut Decision<'l>) {
        match self.survey(request, decision) {
            Survey::Applies if decision.checks.is_empty() => {}
            Survey::Applies => {
                let now = self.store.now();
                let (owner, outcomes) = (decision.owner, &mut decision.outcomes);
                let admitted = match &decision.checks[..] {
                    [check] => self.store.decide_into(&[ask(check, owner)], now, outcomes),
                    _ => self.store.decide_into(&ask_all(&decision.checks, owner), now, outcomes),
                };
                decision.count(admitted, now);
            }
            survey => {
                let denied = ask_denied(&decision.checks);
                if !denied.is_empty() {
                    self.store.decide_now(&denied);
                }
                drop(denied);
                decision.settle_uncounted(survey);
            }
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Decides about a request.
    pub async fn decide<R: Request + ?Sized + Sync>(&self, request: &R) -> Result<Decision<'_>, StoreError> {
        let mut decision = Decision::undecided();
        match self.survey(request, &mut decision) {
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
        for (limit, taken_at) in charged(decision) {
            let units = limit.outcome().units();
            self.store
                .adjust(limit.rule(), limit.key().as_bytes(), Adjustment::Refund { units, taken_at })
                .await?;
        }
        self.release(decision).await
    }

    /// Charges what a request turned out to cost, instead of what was charged
    /// before it ran. What was too much is given back; what was too little is
    /// charged even if it is not there, and repaid before the next request passes.
    pub async fn settle(&self, decision: &Decision<'_>, cost: u64) -> Result<(), StoreError> {
        for (limit, taken_at) in charged(decision) {
            let charged = limit.outcome().units();
            let adjustment = if cost < charged {
                Adjustment::Refund { units: charged - cost, taken_at }
            } else {
                Adjustment::Charge { units: cost - charged, overdraft: Overdraft::OneCapacity }
            };
            self.store.adjust(limit.rule(), limit.key().as_bytes(), adjustment).await?;
        }
        Ok(())
    }

    /// Frees the slots that a decision took, once its request is done.
    pub async fn release(&self, decision: &Decision<'_>) -> Result<(), StoreError> {
        let Some(owner) = decision.owner() else { return Ok(()) };
        for limit in decision.limits().filter(|it| matches!(it.rule().quota, Quota::Concurrency(_))) {
            self.store.adjust(limit.rule(), limit.key().as_bytes(), Adjustment::Release { owner }).await?;
        }
        Ok(())
    }
}

/// The limits that admitted a decision's request for units, and when. One that
/// was charged nothing yet may be charged when the cost is known.
fn charged<'d>(
    decision: &'d Decision<'_>,
) -> impl Iterator<Item = (crate::LimitOutcome<'d>, tollgate_core::Timestamp)> {
    let at = decision.at().filter(|_| decision.is_allowed());
    let counts_units = |it: &crate::LimitOutcome<'_>| !matches!(it.rule().quota, Quota::Concurrency(_));
    let limits = decision.limits().filter(move |it| it.outcome().is_admitted() && counts_units(it));
    limits.filter_map(move |limit| at.map(|at| (limit, at)))
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
