//! The rules of a policy, as another process can read them.
//!
//! A process that continues the usage of another one needs to know which rules counted it: the ids of
//! the states and the quotas that give them a meaning, for each limit with its plans and overrides.
//! Endpoints, modes and other settings are not part of it, so policies that differ only in those have
//! equal rule sets.
//!
//! The bytes are in `encoding`. Stores keep them, and do not know their meaning.

mod encoding;

use foldhash::HashMap;
use sha2::{Digest as _, Sha256};
use tollgate_core::{Quota, Rule, RuleId, Span};

use crate::carry_over::{Amounts, AmountsMut};
use crate::key::Key;
use crate::limit::{Allowance, Limit};
use crate::source::KeySource;

pub use encoding::{MAX_RULE_SET_BYTES, RuleSetError};

/// The rules of a policy: for each limit its own rules and those of its plans and overrides.
///
/// ```
/// # use tollgate_policy::{Policy, RuleSet};
/// let set = Policy::parse("limits: [{name: a, by: ip, bucket: 1/day}]")?.rule_set();
/// assert_eq!(RuleSet::decode(&set.encode()), Ok(set));
/// assert!(RuleSet::decode(b"garbage").is_err());
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Sorted by name.
    limits: Vec<LimitRules>,
}

/// The rules of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitRules {
    name: Box<str>,
    /// The parts of its key, as text.
    by: Box<str>,
    rules: Vec<Rule>,
    plans: HashMap<Box<str>, Allowance>,
    overrides: HashMap<Key, Allowance>,
}

impl LimitRules {
    fn of(limit: &Limit) -> Self {
        let plans = limit.plans.iter().map(|(name, it)| (name.clone(), bare_allowance(it)));
        let overrides = limit.overrides.iter().map(|(key, it)| (key.clone(), bare_allowance(it)));
        Self {
            name: (*limit.name).into(),
            by: key_text(&limit.by),
            rules: limit.rules.iter().map(bare).collect(),
            plans: plans.collect(),
            overrides: overrides.collect(),
        }
    }

    /// Returns the amounts with only the ids of their rules, in an order that does not depend on the maps.
    fn ids(&self) -> impl Iterator<Item = (&[u8], Option<Vec<RuleId>>)> {
        let of = |it: &Allowance| match it {
            Allowance::Rules(rules) => Some(rules.iter().map(|rule| rule.id).collect()),
            Allowance::Unlimited | Allowance::Blocked => None,
        };
        let mut plans: Vec<_> = self.plans.iter().map(|(name, it)| (name.as_bytes(), of(it))).collect();
        plans.sort_unstable_by_key(|(name, _)| *name);
        let mut keys: Vec<_> = self.overrides.iter().map(|(key, it)| (key.as_bytes(), of(it))).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        let own = Some(self.rules.iter().map(|rule| rule.id).collect());
        std::iter::once((&[][..], own)).chain(plans).chain(keys)
    }

    pub(crate) fn amounts(&self) -> Amounts<'_> {
        Amounts { rules: &self.rules, plans: &self.plans, overrides: &self.overrides }
    }
}

/// Returns the parts of a key as text. Limits with different texts have different keys.
fn key_text(by: &[KeySource]) -> Box<str> {
    by.iter().map(ToString::to_string).collect::<Vec<_>>().join(",").into()
}

/// Returns the rule without its predecessors, its lease and its shares in other regions, which are not part
/// of its identity.
fn bare(rule: &Rule) -> Rule {
    Rule {
        name: rule.name.clone(),
        id: rule.id,
        quota: rule.quota.clone(),
        before: None,
        lease: None,
        far: None,
    }
}

fn bare_allowance(allowance: &Allowance) -> Allowance {
    match allowance {
        Allowance::Rules(rules) => Allowance::Rules(rules.iter().map(bare).collect()),
        other => other.clone(),
    }
}

impl RuleSet {
    pub(crate) fn of(limits: &[Limit]) -> Self {
        let counts = |limit: &&Limit| !limit.rules.is_empty();
        let mut limits: Vec<_> = limits.iter().filter(counts).map(LimitRules::of).collect();
        limits.sort_by(|one, other| one.name.cmp(&other.name));
        Self { limits }
    }

    /// Returns a number that is the same for equal rule sets, on every node.
    pub fn digest(&self) -> u64 {
        let digest = Sha256::digest(self.encode());
        digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// Returns how long usage that is charged now still counts at most, by any of the rules.
    pub fn longest_memory(&self) -> Span {
        // A sliding window counts its previous window, and a bucket may owe twice its fill time.
        let longest = self.every_rule().map(|rule| rule.quota.period()).max().unwrap_or(Span::ZERO);
        longest + longest
    }

    fn every_rule(&self) -> impl Iterator<Item = &Rule> {
        self.limits.iter().flat_map(|limit| {
            let others = limit.plans.values().chain(limit.overrides.values());
            limit.rules.iter().chain(others.flat_map(Allowance::rules))
        })
    }

    fn limit(&self, name: &str, by: &str) -> Option<&LimitRules> {
        let at = self.limits.binary_search_by(|limit| (*limit.name).cmp(name)).ok()?;
        self.limits.get(at).filter(|limit| *limit.by == *by)
    }

    /// Replaces the amounts of a limit by those of this set, if their states differ.
    pub(crate) fn give_amounts_to(&self, limit: &mut Limit) {
        let Some(ours) = self.limit(&limit.name, &key_text(&limit.by)) else { return };
        let kind = |rule: &Rule| matches!(rule.quota, Quota::Concurrency(_));
        let is_other_kind = ours.rules.first().map(kind) != limit.rules.first().map(kind);
        let same = LimitRules::of(limit);
        // The classes of a shedder share one state. A slot is no unit.
        if limit.sheds || is_other_kind || ours.ids().eq(same.ids()) {
            return;
        }
        let limit = limit.definition_mut();
        limit.blocks_keys = ours.overrides.values().any(|it| *it == Allowance::Blocked);
        limit.rules.clone_from(&ours.rules);
        limit.plans.clone_from(&ours.plans);
        limit.overrides.clone_from(&ours.overrides);
    }

    /// Returns the rules of a limit in the last set that has it, with those of earlier sets as their
    /// predecessors.
    pub(crate) fn latest(sets: &[Self], name: &str, by: &[KeySource]) -> Option<LimitRules> {
        let by = key_text(by);
        let mut known = sets.iter().filter_map(|set| set.limit(name, &by));
        let first = known.next()?.clone();
        Some(known.fold(first, |before, next| {
            let mut next = next.clone();
            let LimitRules { rules, plans, overrides, .. } = &mut next;
            AmountsMut { rules, plans, overrides }.carry_over(before.amounts());
            next
        }))
    }
}
