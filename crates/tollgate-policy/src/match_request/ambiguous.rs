//! The amount for a request with several different credentials.
//!
//! Such a request gains nothing from any of them: of the limit's own numbers and those of every
//! plan and override that it names, the strictest apply. Naming a second key or plan therefore
//! does not evade a throttled one.

use std::cmp::Ordering;

use tollgate_core::Rule;

use super::{BlockReason, Grant, RequestMatcher};
use crate::identify::{OnAmbiguous, View};
use crate::key::Key;
use crate::limit::{Allowance, Limit, Missing};
use crate::policy::PlanName;
use crate::request::Request;

impl<'p: 'r, 'r> RequestMatcher<'p, 'r, '_> {
    /// Whether any value that the request gives for the key is blocked by an override.
    #[inline(never)]
    pub(super) fn shows_blocked_key<R: Request + ?Sized>(
        &self,
        limit: &'p Limit,
        view: &View<'r, R>,
    ) -> bool {
        let mut blocked = false;
        self.visit_overrides(limit, view, |allowance| blocked |= *allowance == Allowance::Blocked);
        blocked
    }

    /// Whether the limit refuses requests whose key has several different values. A limit that
    /// refuses requests without a key does, because a server may use an empty value among them.
    pub(super) fn refuses_ambiguous(&self, limit: &Limit) -> bool {
        self.policy.identify.ambiguous == OnAmbiguous::Refuse || limit.missing == Missing::Refuse
    }

    /// Whether the limit has plans and the request names several.
    pub(super) fn has_ambiguous_plan<R: Request + ?Sized>(&self, limit: &Limit, view: &View<'r, R>) -> bool {
        !limit.plans.is_empty()
            && matches!(self.plan.get_or_init(|| self.policy.plan_of(view)), PlanName::Ambiguous)
    }

    /// Returns the amount if the key or the plan has several different values.
    #[cold]
    pub(super) fn granted_to_ambiguous<R: Request + ?Sized>(
        &self,
        limit: &'p Limit,
        view: &View<'r, R>,
    ) -> Grant<'p> {
        let mut strictest = Strictest { rules: &limit.rules, blocked: None };
        if self.has_ambiguous_plan(limit, view) {
            if self.policy.identify.ambiguous == OnAmbiguous::Refuse {
                return Grant::Blocked(BlockReason::Ambiguous);
            }
            if let Some(from) = self.policy.plan_source(view.request) {
                self.policy.identify.visit_values(from, view, |name| {
                    if let Some(plan) = limit.plans.get(&*String::from_utf8_lossy(name)) {
                        strictest.add(plan, BlockReason::Plan);
                    }
                });
            }
        }
        if let Some(plan) = self.planned(limit, view) {
            strictest.add(plan, BlockReason::Plan);
        }
        self.visit_overrides(limit, view, |allowance| strictest.add(allowance, BlockReason::Override));
        strictest.blocked.map_or(Grant::Rules(strictest.rules), Grant::Blocked)
    }

    /// Visits the override of every value that the request gives for the key.
    fn visit_overrides<R: Request + ?Sized>(
        &self,
        limit: &'p Limit,
        view: &View<'r, R>,
        mut visit: impl FnMut(&'p Allowance),
    ) {
        // Only keys of one part have overrides.
        let ([source], false) = (&limit.by[..], limit.overrides.is_empty()) else { return };
        self.policy.identify.visit_values(source, view, |value| {
            let mut key = Key::default();
            key.push_value(source, value);
            limit.overrides.get(&key).into_iter().for_each(&mut visit);
        });
    }
}

/// The smallest of several allowances.
struct Strictest<'p> {
    rules: &'p [Rule],
    blocked: Option<BlockReason>,
}

impl<'p> Strictest<'p> {
    fn add(&mut self, allowance: &'p Allowance, reason: BlockReason) {
        match allowance {
            Allowance::Blocked => drop(self.blocked.get_or_insert(reason)),
            Allowance::Rules(rules) if is_stricter(rules, self.rules) => self.rules = rules,
            Allowance::Rules(_) | Allowance::Unlimited => {}
        }
    }
}

/// Whether the first window that differs has a smaller rate, or the same and a smaller capacity.
fn is_stricter(one: &[Rule], other: &[Rule]) -> bool {
    let compare = |(one, other): (&Rule, &Rule)| {
        let [one, other] = [one, other].map(|rule| {
            (u128::from(rule.quota.capacity()), u128::from(rule.quota.period().as_micros().max(1)))
        });
        (one.0 * other.1).cmp(&(other.0 * one.1)).then(one.0.cmp(&other.0))
    };
    one.iter().zip(other).map(compare).find(|order| order.is_ne()) == Some(Ordering::Less)
}
