//! What a decision charged, for whoever settles it later.
//!
//! A decision borrows from the policy that made it and is gone with the request.
//! A receipt owns what it needs and outlives both: the limits are found again by
//! name, so that what was charged before a reload is settled after it under the
//! numbers that then count.
//!
//! Not here: keeping receipts, for how long, and that each is settled once.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Owner, Quota, Rule, RuleId, Span, Timestamp};
use tollgate_policy::{Key, Limit, OnHangup, Policy};

use crate::decision::Decision;
use crate::id::DecisionId;
use crate::outage::{ChargeStatus, LocalDecision, Share};

/// What an admitted request was charged.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 2/minute}]")?;
/// let call = Call::new("GET", "/").ip([203, 0, 113, 9]).cost(2);
/// assert!(limiter.check(&call).receipt().is_some());
/// assert!(limiter.check(&call).receipt().is_none());          // refused: nothing to settle
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The decision that charged, if an observer was told of it.
    pub(crate) id: Option<DecisionId>,
    pub(crate) at: Timestamp,
    pub(crate) owner: Option<Owner>,
    charges: SmallVec<[Charge; 2]>,
}

/// What one window of one limit was charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    limit: Box<str>,
    rule: RuleId,
    pub(crate) key: Key,
    pub(crate) units: u64,
    is_slot: bool,
    /// Where it was charged instead, if not in the store. Boxed, since nearly never there.
    pub(crate) synonyms: Option<Box<OutageCharge>>,
}

/// What was charged while the store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutageCharge {
    pub(crate) share: Arc<Share>,
    /// Whether this node counted it.
    pub(crate) counted: bool,
    /// Under which it was written down for the store.
    pub(crate) writing: Option<u64>,
    /// Whether the store may have been charged as well.
    pub(crate) landed: ChargeStatus,
}

impl Receipt {
    /// `None` where there is nothing to settle: nothing was counted, or nothing admitted.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        if let Some(degraded) = &decision.degraded {
            return Self::without_store(decision, degraded);
        }
        let at = decision.at().filter(|_| decision.is_allowed())?;
        // One that was charged nothing yet may be charged when the cost is known.
        // One window that would have refused is the whole limit: nothing was charged.
        let refuses = |limit: &Limit| {
            decision.limits().any(|it| it.limit().place() == limit.place() && !it.outcome().is_admitted())
        };
        let admitted = decision
            .limits()
            .filter(|it| it.outcome().is_admitted() && (it.is_binding() || !refuses(it.limit())));
        let charges = admitted.map(|it| Charge {
            limit: it.limit().name().into(),
            rule: it.rule().id,
            key: it.key().clone(),
            units: it.outcome().units(),
            is_slot: matches!(it.rule().quota, Quota::Concurrency(_)),
            synonyms: None,
        });
        Some(Self { id: decision.id, at, owner: decision.owner(), charges: charges.collect() })
    }

    fn without_store(decision: &Decision<'_>, degraded: &LocalDecision) -> Option<Self> {
        if !decision.is_allowed() {
            return None;
        }
        let charges = degraded.parts.iter().enumerate().filter_map(|(at, part)| {
            let check = &decision.checks[part.check];
            let (outcome, is_slot) =
                (decision.outcomes.get(at), matches!(check.rule.quota, Quota::Concurrency(_)));
            let units = match outcome {
                Some(outcome) if outcome.is_admitted() => outcome.units(),
                // Let pass, or not let pass in shadow mode: no slot was taken.
                Some(_) => return None,
                None if is_slot => return None,
                None => check.cost,
            };
            let synonyms = OutageCharge {
                share: Arc::clone(&part.share),
                counted: outcome.is_some(),
                writing: part.writing,
                landed: degraded.landed,
            };
            Some(Charge {
                limit: check.limit.name().into(),
                rule: check.rule.id,
                key: check.key.clone(),
                units,
                is_slot,
                synonyms: Some(Box::new(synonyms)),
            })
        });
        let charges: SmallVec<_> = charges.collect();
        let (at, owner) = (degraded.at, decision.owner());
        (!charges.is_empty()).then_some(Self { id: decision.id, at, owner, charges })
    }

    /// The names of the limits that were charged, in the order of the policy.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        // Windows of one limit are neighbours.
        let mut last = None;
        self.charges
            .iter()
            .map(|charge| &*charge.limit)
            .filter(move |name| last.replace(*name).is_none_or(|before| before != *name))
    }

    /// How many slots were taken. They may have been given back since.
    pub fn slots(&self) -> usize {
        if self.owner.is_none() {
            0
        } else {
            self.charges.iter().filter(|it| it.is_slot && it.units > 0).count()
        }
    }

    /// How long a slot lasts at most that outlives its caller: the longest `ttl` of the slots, if the limit of
    /// one of them says `on_hangup: hold`. That one decides for all: it keeps the request to the service open.
    pub fn hold_on_hangup(&self, policy: &Policy) -> Option<Span> {
        self.owner?;
        let mut longest = None;
        let mut holds = false;
        for (charge, rule) in self.slots_in(policy).filter(|(charge, _)| charge.units > 0) {
            let Quota::Concurrency(slots) = &rule.quota else { continue };
            longest = longest.max(Some(slots.ttl()));
            holds |= policy.limit(charge.limit()).is_some_and(|it| it.on_hangup() == OnHangup::Hold);
        }
        longest.filter(|_| holds)
    }

    /// What counts units, with the rules that now count them.
    pub(crate) fn units_in<'r>(&'r self, policy: &'r Policy) -> impl Iterator<Item = (&'r Charge, &'r Rule)> {
        self.charges.iter().filter(|it| !it.is_slot).filter_map(|it| Some((it, it.rule_in(policy)?)))
    }

    /// What counts slots, with the rules that now count them.
    pub(crate) fn slots_in<'r>(&'r self, policy: &'r Policy) -> impl Iterator<Item = (&'r Charge, &'r Rule)> {
        self.charges.iter().filter(|it| it.is_slot).filter_map(|it| Some((it, it.rule_in(policy)?)))
    }
}

impl Charge {
    /// The rule that was charged.
    pub(crate) const fn rule(&self) -> RuleId {
        self.rule
    }

    /// The limit that was charged.
    pub(crate) fn limit(&self) -> &str {
        &self.limit
    }

    fn rule_in<'p>(&self, policy: &'p Policy) -> Option<&'p Rule> {
        policy.limit(&self.limit)?.rule_after(self.rule, &self.key)
    }
}
