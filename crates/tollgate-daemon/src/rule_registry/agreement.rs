//! The agreement of all nodes on the version that is in force.
//!
//! Pure: readings of the registry go in, the policy to put into force comes out.
//!
//! Invariant: the version in force on this node is known to every node that was registered when it came
//! into force, and a node that registers later reads it.

use std::sync::Arc;

use tollgate::Policy;
use tollgate::policy::{MAX_RULE_SET_BYTES, RuleSet};
use tollgate::store::version_registry::{RegisteredNode, Registry, Version};

/// The rules of a version that this node has read.
pub(super) struct KnownVersion {
    pub(super) digest: u64,
    pub(super) revision: u64,
    /// `None`: they cannot be read.
    pub(super) rules: Option<RuleSet>,
}

/// The versions that this node has seen in the registry, and the policy that it wants in force.
pub(super) struct Agreement {
    /// The policy of the file.
    policy: Policy,
    wanted: Version,
    /// The version in force, if it is not the wanted one.
    held: Option<(u64, RuleSet)>,
    /// The versions of the registry, the oldest first.
    known: Vec<KnownVersion>,
    others: Vec<RegisteredNode>,
    /// The revision of the last reading.
    revision: u64,
    /// The revision up to which every request of this node is counted under all versions. `None` before
    /// the first reading.
    acknowledged: Option<u64>,
    is_agreed: bool,
}

fn version(policy: &Policy) -> Version {
    let rules = policy.rule_set();
    Version { digest: rules.digest(), memory: rules.longest_memory(), rules: Arc::from(rules.encode()) }
}

impl Agreement {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            wanted: version(&policy),
            policy,
            held: None,
            known: Vec::new(),
            others: Vec::new(),
            revision: 0,
            acknowledged: None,
            is_agreed: false,
        }
    }

    /// Returns the version of the file.
    pub(super) const fn wanted(&self) -> &Version {
        &self.wanted
    }

    /// Returns the digest of the version in force.
    pub(super) fn in_force(&self) -> u64 {
        self.held.as_ref().map_or(self.wanted.digest, |(digest, _)| *digest)
    }

    pub(super) const fn acknowledged(&self) -> Option<u64> {
        self.acknowledged
    }

    /// Returns the number of other nodes.
    pub(super) const fn others(&self) -> usize {
        self.others.len()
    }

    /// Returns whether the wanted version is not in force yet.
    pub(super) const fn is_pending(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the policy to put into force: with predecessors from all versions.
    pub(super) fn policy(&self) -> Policy {
        let policy = match &self.held {
            None => self.policy.clone(),
            Some((_, rules)) => self.policy.clone().with_amounts_of(rules),
        };
        let sets: Vec<_> = self.known.iter().filter_map(|it| it.rules.clone()).collect();
        policy.carry_over_from_sets(&sets)
    }

    /// Sets the policy of the file. In a store that other nodes may share, its version waits for an
    /// agreement, unless the last reading shows that there is one.
    pub(super) fn want(&mut self, policy: Policy, is_shared: bool) {
        if !is_shared {
            // No other node has to know the rules, and a large policy has many.
            self.policy = policy;
            self.held = None;
            return;
        }
        let in_force = self.held.take().unwrap_or_else(|| (self.wanted.digest, self.policy.rule_set()));
        self.wanted = version(&policy);
        self.policy = policy;
        let is_registered = is_shared && self.wanted.rules.len() <= MAX_RULE_SET_BYTES;
        let waits = is_registered && in_force.0 != self.wanted.digest;
        let is_agreed = self.known.iter().any(|it| it.digest == self.wanted.digest && self.all_know(it));
        self.held = (waits && !is_agreed).then_some(in_force);
    }

    /// Puts the wanted version into force although the registry cannot be read. The store must not be used
    /// until this node has joined again.
    pub(super) fn leave(&mut self) {
        self.held = None;
        self.acknowledged = None;
    }

    /// Returns the versions of a reading whose rules have to be read.
    pub(super) fn unknown(&self, registry: &Registry) -> Vec<u64> {
        let is_known = |digest| self.known.iter().any(|it| it.digest == digest && it.rules.is_some());
        let listed = registry.versions.iter().map(|it| it.digest);
        listed.filter(|&digest| digest != self.wanted.digest && !is_known(digest)).collect()
    }

    /// Takes in a reading of the registry, made while `wanted` was the wanted version, with the rules that
    /// were not known before. Returns whether the policy to put into force has changed.
    pub(super) fn observe(
        &mut self,
        wanted: &Version,
        registry: &Registry,
        mut learned: Vec<(u64, Option<RuleSet>)>,
    ) -> bool {
        let mut is_changed = false;
        let mut before = std::mem::take(&mut self.known);
        for listed in &registry.versions {
            let digest = listed.digest;
            let at = before.iter().position(|it| it.digest == digest);
            let rules = at.and_then(|at| before.swap_remove(at).rules).or_else(|| {
                if digest == self.wanted.digest {
                    return Some(self.policy.rule_set());
                }
                let at = learned.iter().position(|it| it.0 == digest)?;
                let rules = learned.swap_remove(at).1;
                is_changed |= rules.is_some();
                rules
            });
            self.known.push(KnownVersion { digest, revision: listed.revision, rules });
        }
        self.others.clone_from(&registry.nodes);
        self.revision = registry.revision;
        let is_first = self.acknowledged.is_none();
        if is_first && self.held.is_none() && !self.all_know_wanted() {
            self.held = self.common();
            is_changed |= self.held.is_some();
        }
        // A reading from before a reload does not tell whether the new version is known.
        if self.held.is_some() && wanted.digest == self.wanted.digest && self.all_know_wanted() {
            self.held = None;
            self.is_agreed = !self.others.is_empty();
            is_changed = true;
        }
        if is_first || !is_changed {
            // No request was counted under fewer versions.
            self.acknowledge();
        }
        is_changed
    }

    /// Returns whether the wanted version came into force since the last call, by an agreement.
    pub(super) const fn take_agreed(&mut self) -> bool {
        std::mem::replace(&mut self.is_agreed, false)
    }

    /// Requests that began before the last change have ended.
    pub(super) const fn acknowledge(&mut self) {
        self.acknowledged = Some(self.revision);
    }

    /// Returns whether all other nodes know the wanted version.
    fn all_know_wanted(&self) -> bool {
        let wanted = self.known.iter().find(|it| it.digest == self.wanted.digest);
        self.others.is_empty() || wanted.is_some_and(|it| self.all_know(it))
    }

    fn all_know(&self, version: &KnownVersion) -> bool {
        let knows = |node: &RegisteredNode| {
            node.known_revision >= version.revision || node.in_force == version.digest
        };
        self.others.iter().all(knows)
    }

    /// Returns the newest version in force on another node that all others know.
    fn common(&self) -> Option<(u64, RuleSet)> {
        let is_used = |digest| self.others.iter().any(|node| node.in_force == digest);
        let usable =
            |it: &&KnownVersion| it.digest != self.wanted.digest && is_used(it.digest) && self.all_know(it);
        self.known.iter().rev().filter(usable).find_map(|it| Some((it.digest, it.rules.clone()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::Span;
    use tollgate::store::version_registry::RegisteredVersion;

    fn policy(units: u32) -> Policy {
        Policy::parse(&format!("limits: [{{name: a, by: ip, bucket: {units}/day}}]")).unwrap()
    }

    fn digest(units: u32) -> u64 {
        version(&policy(units)).digest
    }

    /// A registry of versions with revisions 1, 2, …, and of nodes with a version in force and a revision.
    fn registry(versions: &[u32], nodes: &[(u32, u64)]) -> Registry {
        let listed = versions.iter().zip(1..).map(|(&units, revision)| RegisteredVersion {
            digest: digest(units),
            revision,
            expires_in: Span::from_days(1),
        });
        let nodes = nodes
            .iter()
            .map(|&(units, known_revision)| RegisteredNode { in_force: digest(units), known_revision });
        Registry { revision: versions.len() as u64, versions: listed.collect(), nodes: nodes.collect() }
    }

    /// Takes in a reading, with the rules of all versions that are not known.
    fn observe(agreement: &mut Agreement, registry: &Registry) -> bool {
        let all = (1..100).map(|units| (digest(units), policy(units).rule_set()));
        let unknown = agreement.unknown(registry);
        let learned = all.filter(|(digest, _)| unknown.contains(digest)).map(|(at, it)| (at, Some(it)));
        agreement.observe(&agreement.wanted().clone(), registry, learned.collect())
    }

    /// Returns the number of units in force and those of the predecessors.
    fn in_force(agreement: &Agreement) -> (u64, Vec<u64>) {
        let policy = agreement.policy();
        let rule = &policy.limits()[0].rules()[0];
        let mut before: Vec<_> = rule.predecessors().map(|it| it.quota.capacity()).collect();
        before.sort_unstable();
        (rule.quota.capacity(), before)
    }

    #[test]
    fn a_node_alone_starts_with_its_own_numbers_and_continues_earlier_ones() {
        let mut agreement = Agreement::new(policy(30));
        observe(&mut agreement, &registry(&[10, 20, 30], &[]));
        assert_eq!(in_force(&agreement), (30, vec![10, 20]));
        assert!(!agreement.is_pending() && agreement.acknowledged() == Some(3));
    }

    #[test]
    fn a_node_that_joins_uses_the_common_numbers_until_all_know_its_own() {
        let mut agreement = Agreement::new(policy(20));
        observe(&mut agreement, &registry(&[10, 20], &[(10, 1), (10, 1)]));
        assert_eq!((in_force(&agreement), agreement.in_force()), ((10, vec![20]), digest(10)));
        assert!(!observe(&mut agreement, &registry(&[10, 20], &[(10, 2), (10, 1)])));
        assert!(agreement.is_pending());
        assert!(observe(&mut agreement, &registry(&[10, 20], &[(10, 2), (10, 2)])));
        assert_eq!((in_force(&agreement), agreement.in_force()), ((20, vec![10]), digest(20)));
        assert!(agreement.take_agreed() && !agreement.take_agreed());
    }

    #[test]
    fn a_node_acknowledges_a_version_when_its_requests_count_under_it() {
        let mut agreement = Agreement::new(policy(10));
        observe(&mut agreement, &registry(&[10], &[]));
        assert!(observe(&mut agreement, &registry(&[10, 20], &[(10, 2)])));
        assert_eq!((in_force(&agreement), agreement.acknowledged()), ((10, vec![20]), Some(1)));
        agreement.acknowledge();
        assert_eq!(agreement.acknowledged(), Some(2));
    }

    #[test]
    fn a_reload_waits_for_a_reading_and_for_the_other_nodes() {
        let mut agreement = Agreement::new(policy(10));
        observe(&mut agreement, &registry(&[10], &[]));
        agreement.want(policy(20), true);
        assert_eq!((in_force(&agreement), agreement.is_pending()), ((10, vec![]), true));
        assert!(!observe(&mut agreement, &registry(&[10, 20], &[(10, 1)])), "a node has joined meanwhile");
        // A reading that was made for another version says nothing.
        let earlier = agreement.wanted().clone();
        agreement.want(policy(30), true);
        assert!(!agreement.observe(&earlier, &registry(&[10, 20], &[(10, 2)]), Vec::new()));
        assert!(observe(&mut agreement, &registry(&[10, 20, 30], &[(10, 3)])));
        assert_eq!(in_force(&agreement), (30, vec![10, 20]));
        // All know the first version already.
        agreement.want(policy(10), true);
        assert_eq!(in_force(&agreement), (10, vec![20, 30]));
        agreement.want(policy(40), false);
        assert_eq!(in_force(&agreement).0, 40, "a store in memory is not shared");
    }

    #[test]
    fn a_reload_in_an_outage_is_in_force_until_the_node_joins_again() {
        let mut agreement = Agreement::new(policy(10));
        observe(&mut agreement, &registry(&[10], &[(10, 1)]));
        agreement.want(policy(20), true);
        agreement.leave();
        assert_eq!((in_force(&agreement).0, agreement.acknowledged()), (20, None));
        assert!(observe(&mut agreement, &registry(&[10, 20], &[(10, 1)])));
        assert_eq!((in_force(&agreement), agreement.is_pending()), ((10, vec![20]), true));
    }

    #[test]
    fn a_version_that_cannot_be_read_is_counted_apart() {
        let mut agreement = Agreement::new(policy(20));
        let wanted = agreement.wanted().clone();
        let registry = registry(&[10, 20], &[(10, 2)]);
        agreement.observe(&wanted, &registry, vec![(digest(10), None)]);
        assert_eq!((in_force(&agreement), agreement.acknowledged()), ((20, vec![]), Some(2)));
    }
}
