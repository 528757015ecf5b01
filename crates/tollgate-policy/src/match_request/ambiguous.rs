//! The amount for a request with several different credentials.
//!
//! Such a request has the allowance of none of them. It is charged to the limit's own allowance, and
//! also, window by window, to the plan that applies and to the strictest plan or override that it
//! names, if these are stricter. Naming a second key or plan therefore neither evades a throttled one nor adds its
//! allowance to the limit's own.

use smallvec::SmallVec;
use tollgate_core::Rule;

use super::{BlockReason, RequestMatcher};
use crate::identify::OnAmbiguous;
use crate::key::Key;
use crate::limit::{Allowance, Limit, Missing, is_stricter};
use crate::policy::{PlanName, Policy};
use crate::properties::Properties;

impl Policy {
    /// Whether the limit refuses requests whose key has several different values. A limit that
    /// refuses requests without a key does, because a server may use an empty value among them.
    pub(super) fn refuses_ambiguous(&self, limit: &Limit) -> bool {
        self.identify.ambiguous == OnAmbiguous::Refuse || limit.missing == Missing::Refuse
    }
}

impl<'p: 'r, 'r> RequestMatcher<'p, 'r, '_> {
    /// Whether any value that the request gives for the key is blocked by an override.
    #[inline(never)]
    pub(super) fn shows_blocked_key(&self, limit: &'p Limit, view: &impl Properties<'r>) -> bool {
        let mut blocked = false;
        self.visit_overrides(limit, view, |allowance| blocked |= *allowance == Allowance::Blocked);
        blocked
    }

    /// Whether the limit has plans and the request names several.
    pub(super) fn has_ambiguous_plan(&self, limit: &Limit, view: &impl Properties<'r>) -> bool {
        !limit.plans.is_empty()
            && matches!(self.plan.get_or_init(|| self.policy.plan_of(view)), PlanName::Ambiguous)
    }

    /// Adds the checks of a limit if the key or the plan has several different values.
    #[cold]
    pub(super) fn take_ambiguous(&mut self, limit: &'p Limit, view: &impl Properties<'r>, key: &Key) {
        match self.ambiguous_rules(limit, view) {
            Ok(rules) => {
                let cost = view.cost(limit);
                if limit.adaptive.is_some() {
                    return self.out.push(limit, &[], key.clone(), cost);
                }
                self.out.repeats_limits |= rules.len() > limit.rules.len();
                for rule in rules {
                    self.out.push(limit, std::slice::from_ref(rule), key.clone(), cost);
                }
            }
            Err(reason) => self.block(limit, reason),
        }
    }

    /// Returns the rules that are charged if the key or the plan has several different values.
    fn ambiguous_rules(
        &self,
        limit: &'p Limit,
        view: &impl Properties<'r>,
    ) -> Result<Windows<'p>, BlockReason> {
        let has_ambiguous_plan = self.has_ambiguous_plan(limit, view);
        if has_ambiguous_plan && self.policy.identify.ambiguous == OnAmbiguous::Refuse {
            return Err(BlockReason::Ambiguous);
        }
        let own: Windows<'p> = limit.rules_of(self.class).iter().collect();
        let mut planned = Strictest { rules: own.clone(), blocked: None };
        if let Some(plan) = self.planned(limit, view) {
            planned.add(plan, BlockReason::Plan);
        }
        let planned = planned.finish()?;
        let mut named = Strictest { rules: planned.clone(), blocked: None };
        if has_ambiguous_plan && let Some(from) = self.policy.plan_source(view) {
            self.policy.identify.visit_values(from, view, |name| {
                if let Some(plan) = limit.plans.get(&*String::from_utf8_lossy(name)) {
                    named.add(plan, BlockReason::Plan);
                }
            });
        }
        self.visit_overrides(limit, view, |allowance| named.add(allowance, BlockReason::Override));
        let mut all = own;
        for rule in planned.into_iter().chain(named.finish()?) {
            if all.iter().all(|known| known.id != rule.id) {
                all.push(rule);
            }
        }
        Ok(all)
    }

    /// Visits the override of every value that the request gives for the key.
    fn visit_overrides(
        &self,
        limit: &'p Limit,
        view: &impl Properties<'r>,
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

/// The rules of an allowance, one per window.
type Windows<'p> = SmallVec<[&'p Rule; 4]>;

/// The strictest of several allowances, window by window.
struct Strictest<'p> {
    rules: Windows<'p>,
    blocked: Option<BlockReason>,
}

impl<'p> Strictest<'p> {
    fn add(&mut self, allowance: &'p Allowance, reason: BlockReason) {
        match allowance {
            Allowance::Blocked => drop(self.blocked.get_or_insert(reason)),
            Allowance::Rules(rules) => {
                for (known, rule) in self.rules.iter_mut().zip(rules) {
                    if is_stricter(rule, known) {
                        *known = rule;
                    }
                }
            }
            Allowance::Unlimited => {}
        }
    }

    fn finish(self) -> Result<Windows<'p>, BlockReason> {
        self.blocked.map_or(Ok(self.rules), Err)
    }
}
