//! The usage that a limit continues when its numbers change.
//!
//! The rules of a changed limit are compared with those of an earlier one: its own quota, its plans
//! and its overrides. The earlier limit is that of a policy in this process, or one that another process
//! has described (`rule_set`). The arithmetic on the states is in `tollgate_core`.

use foldhash::HashMap;
use tollgate_core::Rule;

use crate::key::Key;
use crate::limit::{Allowance, Limit, LimitDefinition, by_strictness};

/// The amounts of an earlier limit.
#[derive(Clone, Copy)]
pub(crate) struct Amounts<'a> {
    pub(crate) rules: &'a [Rule],
    pub(crate) plans: &'a HashMap<Box<str>, Allowance>,
    pub(crate) overrides: &'a HashMap<Key, Allowance>,
}

/// The amounts of a limit that continues the usage of an earlier one.
pub(crate) struct AmountsMut<'a> {
    pub(crate) rules: &'a mut [Rule],
    pub(crate) plans: &'a mut HashMap<Box<str>, Allowance>,
    pub(crate) overrides: &'a mut HashMap<Key, Allowance>,
}

impl Limit {
    pub(crate) fn amounts(&self) -> Amounts<'_> {
        Amounts { rules: &self.rules, plans: &self.plans, overrides: &self.overrides }
    }

    /// Makes the rules continue the usage of an earlier limit of the same name and key.
    pub(crate) fn carry_over(&mut self, old: Amounts<'_>) {
        let LimitDefinition { rules, plans, overrides, class_rules, .. } = self.definition_mut();
        AmountsMut { rules, plans, overrides }.carry_over(old);
        // The classes of a shedder count in the state of its own rule.
        let inherited = rules.first().and_then(|rule| rule.before.clone());
        class_rules.iter_mut().for_each(|rule| rule.before.clone_from(&inherited));
    }

    /// Whether [`carry_over`](Self::carry_over) would change nothing: the states are the same, and the
    /// earlier limit continues no usage.
    pub(crate) fn has_states_of(&self, old: &Self) -> bool {
        let amounts = [self.amounts(), old.amounts()];
        let is_same = |(new, old): (&Rule, &Rule)| {
            (new.id, &new.name) == (old.id, &old.name) && old.before.is_none() && new.far.is_none()
        };
        self.shares_definition(old)
            || (amounts.iter().all(|it| it.plans.is_empty() && it.overrides.is_empty())
                && self.class_rules.is_empty()
                && self.rules.len() == old.rules.len()
                && self.rules.iter().zip(&old.rules).all(is_same))
    }
}

impl AmountsMut<'_> {
    /// Makes the rules continue the usage of an earlier limit.
    pub(crate) fn carry_over(self, old: Amounts<'_>) {
        carry_over(self.rules, old.rules);
        for (name, allowance) in &mut *self.plans {
            carry_over_allowance(allowance, old.plans.get(name), old.rules);
        }
        for (key, allowance) in &mut *self.overrides {
            let counted = old.overrides.get(key);
            carry_over_allowance(allowance, counted, old.rules);
            if let (Allowance::Rules(rules), None) = (allowance, counted) {
                take_over(rules, old.plans.values().flat_map(Allowance::rules));
            }
        }
        let plans = old.plans.iter().filter(|(name, _)| !self.plans.contains_key(*name));
        let keys = old.overrides.iter().filter(|(key, _)| !self.overrides.contains_key(*key));
        let gone = plans.map(|(_, it)| it).chain(keys.map(|(_, it)| it));
        take_over(self.rules, gone.flat_map(Allowance::rules));
    }
}

/// Carries usage over to a plan or override. Each keeps its own usage; the callers of a new one
/// were counted by the limit's own rules.
fn carry_over_allowance(allowance: &mut Allowance, old: Option<&Allowance>, base: &[Rule]) {
    if let Allowance::Rules(rules) = allowance {
        match old {
            Some(Allowance::Rules(old)) => carry_over(rules, old),
            // Its callers were not counted.
            Some(Allowance::Unlimited | Allowance::Blocked) => {}
            None => carry_over(rules, base),
        }
    }
}

/// Makes rules continue the usage of removed plans and overrides, besides their own.
/// Overrides with equal numbers share one rule, so the list is short. The strictest come first,
/// because a rule continues a bounded number of others, and one of each id.
fn take_over<'r>(rules: &mut [Rule], gone: impl Iterator<Item = &'r Rule>) {
    let mut gone: Vec<_> = gone.collect();
    gone.sort_by(|one, other| by_strictness(one, other));
    for rule in rules {
        for old in &gone {
            if old.quota.period() == rule.quota.period() || gone.len() == 1 {
                *rule = rule.clone().continuing(old);
            }
        }
    }
}

/// Whether a window, with its index, is the successor of another.
type Alike = fn((usize, &Rule), (usize, &Rule)) -> bool;

/// Windows are identified by name, else by length, else by index.
const ALIKE: [Alike; 3] = [
    |new, old| new.1.name == old.1.name,
    |new, old| new.1.quota.period() == old.1.quota.period(),
    |new, old| new.0 == old.0,
];

fn carry_over(rules: &mut [Rule], old: &[Rule]) {
    let mut left: Vec<_> = old.iter().enumerate().collect();
    let mut waiting: Vec<_> = rules.iter_mut().enumerate().collect();
    for alike in ALIKE {
        waiting.retain_mut(|(at, rule)| {
            let Some(found) = left.iter().position(|&old| alike((*at, rule), old)) else { return true };
            **rule = rule.clone().replacing(left.swap_remove(found).1);
            false
        });
    }
}
