//! The usage that a limit continues when its numbers change.
//!
//! The rules of a changed limit are compared with those of an earlier one: its own quota, its plans
//! and its overrides. The earlier limit is that of a policy in this process, or one that another process
//! has described (`rule_set`). The arithmetic on the states is in `tollgate_core`.

use std::sync::Arc;

use foldhash::HashMap;
use tollgate_core::Rule;

use crate::key::Key;
use crate::limit::{Allowance, Limit, LimitDefinition, by_strictness};
use crate::policy::Policy;
use crate::rule_set::RuleSet;

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

impl Policy {
    /// Returns this policy with rules that continue the usage of the previous policy.
    ///
    /// A limit that keeps its name and its `by` keeps its usage, even if its numbers change. A
    /// different `by` yields different keys. A new plan or override continues the usage of the
    /// limit's own amount, which counted its callers before; the limit's own amount continues the
    /// usage of removed plans and overrides.
    #[must_use]
    pub fn carry_over_from(mut self, before: &Self) -> Self {
        let mut changed = Vec::new();
        // A change of one group moves the places of later limits by a constant number.
        let mut cursor = 0_usize;
        for (place, limit) in self.limits.iter().enumerate() {
            let at_cursor = before.limits.get(cursor);
            let old = match at_cursor.filter(|old| old.shares_definition(limit)) {
                Some(old) => Some(old),
                None => before.limit(&limit.name),
            };
            cursor = old.map_or(cursor, |old| old.place) + 1;
            let Some(old) = old.filter(|old| !limit.has_states_of(old) && old.by == limit.by) else {
                continue;
            };
            let mut carried = limit.clone();
            carried.carry_over(old.amounts());
            changed.push((place, carried));
        }
        self.replace_limits(changed);
        self
    }

    /// Returns this policy with rules that also continue the usage of the policies that `sets` are from,
    /// the oldest first.
    ///
    /// ```
    /// # use tollgate_policy::{Policy, RuleSet};
    /// let policy = |bucket: &str| Policy::parse(&format!("limits: [{{name: a, by: ip, bucket: {bucket}}}]"));
    /// let sets = [policy("1/day")?.rule_set(), policy("2/day")?.rule_set()];
    /// let policy = policy("3/day")?.carry_over_from_sets(&sets);
    /// assert_eq!(policy.limits()[0].rules()[0].predecessors().count(), 2);
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    #[must_use]
    pub fn carry_over_from_sets(mut self, sets: &[RuleSet]) -> Self {
        let mut changed = Vec::new();
        for (place, limit) in self.matched_limits().iter().enumerate() {
            if let Some(old) = RuleSet::latest(sets, &limit.name, &limit.by) {
                let mut carried = limit.clone();
                carried.carry_over(old.amounts());
                changed.push((place, carried));
            }
        }
        self.replace_limits(changed);
        self
    }

    /// Returns this policy with the amounts of `set`, for limits whose usage is counted elsewhere under
    /// other rules. A limit that `set` does not have keeps its amounts, as does a limit whose states are the
    /// same in both: its nodes share them whatever their numbers are.
    ///
    /// ```
    /// # use tollgate_policy::Policy;
    /// let policy = |bucket: &str| Policy::parse(&format!("limits: [{{name: a, by: ip, bucket: {bucket}}}]"));
    /// let (old, new) = (policy("1/day")?, policy("2/day")?);
    /// assert_eq!(new.with_amounts_of(&old.rule_set()).limits()[0].rules(), old.limits()[0].rules());
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    #[must_use]
    pub fn with_amounts_of(mut self, set: &RuleSet) -> Self {
        let given = self.matched_limits().iter().map(|limit| {
            let mut given = limit.clone();
            set.give_amounts_to(&mut given);
            given
        });
        let given = given.enumerate().collect();
        self.replace_limits(given);
        self
    }

    /// Returns the rules of the limits, for a process that continues their usage. Limits of groups are not part
    /// of it: there may be very many, and those of Envoy's files are windows, whose states do not depend on their
    /// numbers.
    pub fn rule_set(&self) -> RuleSet {
        RuleSet::of(self.matched_limits())
    }

    /// Puts changed limits in their places.
    fn replace_limits(&mut self, changed: Vec<(usize, Limit)>) {
        if changed.is_empty() {
            return;
        }
        let limits = Arc::make_mut(&mut self.limits);
        for (place, limit) in changed {
            limits[place] = limit;
        }
    }
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
        for rule in class_rules {
            rule.before.clone_from(&inherited);
        }
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
