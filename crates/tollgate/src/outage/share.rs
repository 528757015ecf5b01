//! The share of a limit that one node grants while it cannot reach the store.
//!
//! Each node grants the same share, divided by the last known number of nodes: for a limit of `L`
//! units, `max(1, ⌊share·L/nodes⌋)` in one step. Rates are scaled exactly by the same fraction, so 1
//! per minute becomes 1 per five minutes and not
//! 0. All nodes together then grant at most `share·L`, except for the one unit that each grants of
//!    a limit too small to be divided.
//!
//! Shares are rules with their own states. They are created on first use and cached; when the
//! number of nodes or the policy changes, the usage of the old share is carried over.
//!
//! The arithmetic is `Quota::share`; counting is done by `MemoryStore`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tollgate_core::{Rule, RuleId};
use tollgate_policy::Check;

/// A rule of the policy, and the share of it that this node grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The limit that the rule belongs to.
    pub(crate) limit: Box<str>,
    /// The rule of the policy.
    pub(crate) whole: Rule,
    /// The rule of this node's share.
    pub(crate) local: Rule,
    nodes: usize,
}

/// The cached shares.
#[derive(Debug)]
pub(crate) struct Shares {
    percent: u8,
    /// The largest number of cached shares.
    max_entries: usize,
    made: RwLock<HashMap<RuleId, Arc<Share>>>,
}

impl Shares {
    pub(crate) fn new(percent: u8, max_entries: usize) -> Self {
        Self { percent: percent.clamp(1, 100), max_entries, made: RwLock::default() }
    }

    /// Returns the share of one of `nodes` nodes for the rule of a check.
    pub(crate) fn of(&self, check: &Check<'_>, nodes: usize) -> Arc<Share> {
        self.of_rule(check.limit.name(), check.rule, nodes)
    }

    /// Returns the share of one of `nodes` nodes for a rule of a limit.
    pub(crate) fn of_rule(&self, limit: &str, rule: &Rule, nodes: usize) -> Arc<Share> {
        let nodes = nodes.max(1);
        // Rules with one id can have different numbers, so the quota is compared too.
        let fits = |share: &Share| share.nodes == nodes && share.whole.quota == rule.quota;
        let made = self.made.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = made.get(&rule.id).filter(|share| fits(share)) {
            return Arc::clone(share);
        }
        drop(made);
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = made.get(&rule.id).filter(|share| fits(share)) {
            return Arc::clone(share);
        }
        let mut before = std::iter::once(rule.id).chain(rule.predecessors().map(|it| it.id));
        let before = before.find_map(|id| made.get(&id)).cloned();
        let local = local(rule, self.percent, nodes);
        let local = match &before {
            Some(before) => local.replacing(&before.local),
            None => local,
        };
        let (limit, whole) = (limit.into(), rule.clone());
        let share = Arc::new(Share { limit, whole, local, nodes });
        if made.len() >= self.max_entries {
            // States are found again under the same ids; only usage that a change of numbers would
            // have carried over is lost.
            made.clear();
        }
        made.insert(rule.id, Arc::clone(&share));
        share
    }
}

/// Returns the rule by which one of `nodes` nodes counts.
fn local(rule: &Rule, percent: u8, nodes: usize) -> Rule {
    // A quota of 2^48 over 2^32 nodes is still far above one unit each.
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX).min(1 << 32);
    let quota = rule.quota.share(percent.into(), 100 * nodes);
    let id = RuleId::of(["outage", &format!("{:016x}", rule.id.0), &quota.identity()]);
    Rule { name: rule.name.clone(), id, quota, before: None, lease: None, far: None }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Bucket, FixedWindow, Rate, Span};

    use super::*;

    fn bucket(count: u64, period: Span, burst: u64) -> Bucket {
        Bucket::new(Rate::new(count, period)).unwrap().with_burst(burst).unwrap()
    }

    #[test]
    fn shares_of_rules_with_shared_states_share_states() {
        let tally = |limit| {
            let window = tollgate_core::Window::Epoch(Span::from_minutes(1));
            Rule::new("tally", FixedWindow::tally(limit, window).unwrap())
        };
        let limits = [0, 1, 10, 1_000].map(|limit| local(&tally(limit), 20, 2));
        assert_eq!(limits.each_ref().map(|it| it.quota.capacity()), [0, 1, 1, 100]);
        assert!(limits.iter().all(|it| it.id == limits[0].id));
        let bucket = |burst| Rule::new("bucket", bucket(1, Span::from_secs(1), burst).shared());
        let [small, large] = [10, 1_000].map(|burst| local(&bucket(burst), 20, 2));
        assert_eq!((small.quota.capacity(), large.quota.capacity()), (1, 100));
        assert_eq!(small.id, large.id);
    }
}
