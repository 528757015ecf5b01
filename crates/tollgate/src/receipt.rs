//! The charge of a decision, for a later settlement.
//!
//! A decision borrows from its policy and is dropped with the request. A receipt owns its data and
//! outlives both: it finds limits by name, so that a charge from before a reload is settled under
//! the numbers in force.
//!
//! The caller stores receipts, bounds their lifetime, and settles each only once.

mod packed;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, ChargeTimes, Outcome, Owner, Quota, Rule, RuleId, Span, Timestamp};
use tollgate_policy::{Key, Limit, OnHangup, Policy};
use tollgate_store::AdjustmentId;

pub use self::packed::PackedReceipt;
use crate::decision::{Decision, LimitOutcome};
use crate::id::DecisionId;
use crate::outage::{Change, ChargeStatus, LocalDecision, Share};

/// The charge of an admitted request, for a later settlement.
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
    /// The decision that made the charge, if it has an id.
    pub(crate) id: Option<DecisionId>,
    /// The id of its settlement, if the decision has none: a repetition has the same.
    pub(crate) own_id: OnceLock<DecisionId>,
    pub(crate) at: Timestamp,
    pub(crate) owner: Option<Owner>,
    /// One fits inline: most receipts have one charge.
    charges: SmallVec<[Charge; 1]>,
}

/// The charge of one window of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    limit: Arc<str>,
    rule: RuleId,
    pub(crate) key: Key,
    pub(crate) units: u64,
    /// The end of the charge by the clock that counted it ([`ChargeTimes::until`]).
    until: Timestamp,
    /// The wait in the queue of the limit.
    wait: Span,
    pub(crate) is_slot: bool,
    /// The local charge, if the store gave no answer. Boxed, because it is rarely present.
    pub(crate) in_outage: Option<Box<OutageCharge>>,
}

/// A charge whose texts are borrowed.
struct ChargeRef<'c> {
    limit: &'c str,
    rule: RuleId,
    key: &'c Key,
    units: u64,
    until: Timestamp,
    wait: Span,
    is_slot: bool,
}

impl<'c> ChargeRef<'c> {
    /// Returns the charge that a limit made at `at`.
    #[inline]
    fn of(limit: &LimitOutcome<'c>, at: Timestamp) -> Self {
        let outcome = limit.outcome();
        Self {
            limit: limit.limit().name(),
            rule: limit.rule().id,
            key: limit.key(),
            units: outcome.units(),
            until: ChargeTimes::of(at, outcome).until,
            wait: outcome.wait(),
            is_slot: matches!(limit.rule().quota, Quota::Concurrency(_)),
        }
    }

    /// Returns the charge with texts of its own. `limit` is the name of the limit.
    fn to_charge(&self, limit: Arc<str>) -> Charge {
        let &Self { limit: _, rule, key, units, until, wait, is_slot } = self;
        Charge { limit, rule, key: key.clone(), units, until, wait, is_slot, in_outage: None }
    }
}

/// Returns the limits whose charges can be settled, of a decision that the store made.
#[inline]
fn charged_limits<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = LimitOutcome<'d>> {
    // A limit without a charge so far may be charged when the cost is known. If one window
    // would have refused, the whole limit was not charged.
    let refuses = |limit: &Limit| {
        decision.limits().any(|it| it.limit().place() == limit.place() && !it.outcome().is_admitted())
    };
    decision
        .limits()
        .filter(move |it| it.outcome().is_admitted() && (it.is_binding() || !refuses(it.limit())))
}

impl<'c> From<&'c Charge> for ChargeRef<'c> {
    fn from(charge: &'c Charge) -> Self {
        let Charge { limit, rule, key, units, until, wait, is_slot, in_outage: _ } = charge;
        Self { limit, rule: *rule, key, units: *units, until: *until, wait: *wait, is_slot: *is_slot }
    }
}

/// A charge made while the store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutageCharge {
    pub(crate) share: Arc<Share>,
    /// Whether this node counted it.
    pub(crate) counted: bool,
    /// The number of its record in the ledger.
    pub(crate) record_id: Option<u64>,
    /// Whether the store may have been charged as well.
    pub(crate) charge_status: ChargeStatus,
}

impl Receipt {
    /// Returns the receipt, or `None` if nothing was counted or admitted.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        if let Some(degraded) = &decision.degraded {
            return Self::without_store(decision, degraded);
        }
        let at = Self::admitted_at(decision)?;
        let charges =
            charged_limits(decision).map(|it| ChargeRef::of(&it, at).to_charge(it.limit().shared_name()));
        let (id, owner) = (decision.id, decision.owner());
        Some(Self { id, own_id: OnceLock::new(), at, owner, charges: charges.collect() })
    }

    /// Returns the time of the charges of a decision, or `None` if it has none.
    fn admitted_at(decision: &Decision<'_>) -> Option<Timestamp> {
        decision.at().filter(|_| decision.is_allowed())
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
                // Passed uncounted, or refused in shadow mode: no slot was taken.
                Some(_) => return None,
                None if is_slot => return None,
                None => check.cost,
            };
            let in_outage = OutageCharge {
                share: Arc::clone(&part.share),
                counted: outcome.is_some(),
                record_id: part.record_id,
                charge_status: degraded.charge_status,
            };
            Some(Charge {
                limit: check.limit.shared_name(),
                rule: check.rule.id,
                key: check.key.clone(),
                units,
                until: outcome
                    .map_or(ChargeTimes::without_end(degraded.at), |it| ChargeTimes::of(degraded.at, it))
                    .until,
                wait: outcome.map_or(Span::ZERO, Outcome::wait),
                is_slot,
                in_outage: Some(Box::new(in_outage)),
            })
        });
        let charges: SmallVec<_> = charges.collect();
        let (at, owner) = (degraded.at, decision.owner());
        (!charges.is_empty()).then_some(Self { id: decision.id, own_id: OnceLock::new(), at, owner, charges })
    }

    /// Returns the names of the charged limits, in the order of the policy.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        // Windows of one limit are adjacent.
        let mut last = None;
        self.charges
            .iter()
            .map(|charge| &*charge.limit)
            .filter(move |name| last.replace(*name).is_none_or(|before| before != *name))
    }

    /// Returns the number of slots that were taken. They may have been released since.
    pub fn slots(&self) -> usize {
        if self.owner.is_none() {
            0
        } else {
            self.charges.iter().filter(|it| it.is_slot && it.units > 0).count()
        }
    }

    /// Returns whether a charge was made without the store.
    pub(crate) fn is_degraded(&self) -> bool {
        self.charges.iter().any(|it| it.in_outage.is_some())
    }

    /// Returns the longest time that a slot may outlive its caller: the longest `ttl` of the slots,
    /// if the limit of any of them says `on_hangup: hold`. That limit decides for all, because it
    /// keeps the request to the service open.
    pub fn hold_on_hangup(&self, policy: &Policy) -> Option<Duration> {
        self.owner?;
        let mut longest = None;
        let mut holds = false;
        for (_, charge, rule) in self.slots_in(policy).filter(|(_, charge, _)| charge.units > 0) {
            let Quota::Concurrency(slots) = &rule.quota else { continue };
            longest = longest.max(Some(slots.ttl()));
            holds |= policy.limit(charge.limit()).is_some_and(|it| it.on_hangup() == OnHangup::Hold);
        }
        longest.filter(|_| holds).map(Duration::from)
    }

    /// Returns the shortest `ttl` of the slots.
    pub(crate) fn shortest_lease(&self, policy: &Policy) -> Option<Duration> {
        let leases = self.slots_in(policy).filter(|(_, charge, _)| charge.units > 0);
        let lease = |rule: &Rule| match &rule.quota {
            Quota::Concurrency(slots) => Some(slots.ttl()),
            _ => None,
        };
        leases.filter_map(|(_, _, rule)| lease(rule)).min().map(Duration::from)
    }

    /// Sets the id of the decision, for a caller that gave out an id of its own
    /// ([`Limiter::id_of`](crate::Limiter::id_of) without an observer). A store recognizes a repeated
    /// settlement by it.
    #[must_use]
    pub fn with_id(self, id: DecisionId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Returns the charges of units, with their indices and the rules in force.
    pub(crate) fn units_in<'r>(
        &'r self,
        policy: &'r Policy,
    ) -> impl DoubleEndedIterator<Item = (usize, &'r Charge, &'r Rule)> {
        self.charges_in(policy).filter(|(_, it, _)| !it.is_slot)
    }

    /// Returns the charges of slots, with their indices and the rules in force.
    pub(crate) fn slots_in<'r>(
        &'r self,
        policy: &'r Policy,
    ) -> impl Iterator<Item = (usize, &'r Charge, &'r Rule)> {
        self.charges_in(policy).filter(|(_, it, _)| it.is_slot)
    }

    fn charges_in<'r>(
        &'r self,
        policy: &'r Policy,
    ) -> impl DoubleEndedIterator<Item = (usize, &'r Charge, &'r Rule)> {
        self.charges.iter().enumerate().filter_map(|(at, it)| Some((at, it, it.rule_in(policy)?)))
    }
}

impl Charge {
    /// Returns the charged rule.
    pub(crate) const fn rule(&self) -> RuleId {
        self.rule
    }

    /// Returns the name of the charged limit.
    pub(crate) fn limit(&self) -> &str {
        &self.limit
    }

    /// Returns the times of this charge, which was made at this time.
    pub(crate) const fn times(&self, at: Timestamp) -> ChargeTimes {
        ChargeTimes { at, until: self.until }
    }

    /// Returns the time of this charge and its wait in a queue, if it had to wait.
    pub(crate) fn queued(&self, at: Timestamp) -> Option<(Timestamp, Span)> {
        (!self.wait.is_zero()).then_some((at, self.wait))
    }

    /// Returns a change of this charge, which was made at this time.
    pub(crate) fn change<'c>(
        &'c self,
        taken_at: Timestamp,
        rule: &'c Rule,
        (adjustment, id): (Adjustment, AdjustmentId),
    ) -> Change<'c> {
        Change { limit: &self.limit, rule, key: &self.key, adjustment, id, reserve: self.units, taken_at }
    }

    fn rule_in<'p>(&self, policy: &'p Policy) -> Option<&'p Rule> {
        policy.limit(&self.limit)?.rule_after(self.rule, &self.key)
    }
}
