//! What a decision charged, for whoever settles it later.
//!
//! A decision borrows from the policy that made it and is gone with the request.
//! A receipt owns what it needs and outlives both: the limits are found again by
//! name, so that what was charged before a reload is settled after it under the
//! numbers that then count.
//!
//! Not here: keeping receipts, for how long, and that each is settled once.

use smallvec::SmallVec;
use tollgate_core::{Owner, Quota, Rule, RuleId, Timestamp};
use tollgate_policy::{Key, Policy};

use crate::decision::Decision;

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
}

impl Receipt {
    /// `None` where there is nothing to settle: nothing was counted, or nothing admitted.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        let at = decision.at().filter(|_| decision.is_allowed())?;
        // One that was charged nothing yet may be charged when the cost is known.
        let admitted = decision.limits().filter(|it| it.outcome().is_admitted());
        let charges = admitted.map(|it| Charge {
            limit: it.limit().name().into(),
            rule: it.rule().id,
            key: it.key().clone(),
            units: it.outcome().units(),
            is_slot: matches!(it.rule().quota, Quota::Concurrency(_)),
        });
        Some(Self { at, owner: decision.owner(), charges: charges.collect() })
    }

    /// How many slots were taken. They may have been given back since.
    pub fn slots(&self) -> usize {
        if self.owner.is_none() {
            0
        } else {
            self.charges.iter().filter(|it| it.is_slot && it.units > 0).count()
        }
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
    fn rule_in<'p>(&self, policy: &'p Policy) -> Option<&'p Rule> {
        policy.limit(&self.limit)?.rule_after(self.rule, &self.key)
    }
}
