//! Groups of limits that several policies share.
//!
//! A configuration server may define hundreds of thousands of limits, and changes a few of them at a time. A
//! group is built once, and a policy that has it costs one reference for each of its limits. No request is
//! matched against these limits: the crate that builds a group also finds its limits.
//!
//! Invariant: the name of a limit is unique in its policy. The names of a group have a prefix, and no prefix of
//! a policy's groups is the beginning of another one, so that names of different groups are not compared.
//! Tested by `tests::names_are_unique_over_groups_and_other_limits`.

use std::sync::Arc;

use foldhash::HashMap;

use crate::builder::{BuildError, LimitBuilder};
use crate::limit::Limit;
use crate::policy::Policy;

/// Limits that were built together, for policies to share.
///
/// ```
/// # use tollgate_core::{Bucket, Rate};
/// # use tollgate_policy::{KeySource, LimitBuilder, LimitGroup, Policy};
/// let limit = |name: &str| -> Result<_, Box<dyn std::error::Error>> {
///     let limit = LimitBuilder::new(name).envoy_match("shop", [("user", None)]).by(KeySource::Descriptor);
///     Ok(limit.quota(Bucket::new(Rate::per_minute(600))?))
/// };
/// let shop = LimitGroup::build("shop.", [limit("shop.user")?])?;
/// let policy = Policy::default().with_groups([shop.clone()])?;
/// assert_eq!(policy.limit("shop.user").map(|limit| limit.place()), Some(0));
/// assert!(LimitGroup::build("shop.", [limit("house.user")?]).is_err());
/// assert!(Policy::default().with_groups([shop.clone(), shop]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimitGroup(Arc<Members>);

#[derive(Debug)]
struct Members {
    prefix: Box<str>,
    limits: Vec<Limit>,
    by_name: HashMap<Arc<str>, usize>,
}

impl LimitGroup {
    /// Builds limits whose names start with `prefix`. Each has an [`envoy_match`](LimitBuilder::envoy_match).
    pub fn build(prefix: &str, limits: impl IntoIterator<Item = LimitBuilder>) -> Result<Self, BuildError> {
        let limits: Vec<_> = limits.into_iter().map(LimitBuilder::build).collect::<Result<_, _>>()?;
        let mut by_name = HashMap::default();
        for (at, limit) in limits.iter().enumerate() {
            if limit.envoy_match.is_none() || !limit.name.starts_with(prefix) {
                return Err(BuildError::Group(limit.name.to_string()));
            }
            if by_name.insert(limit.shared_name(), at).is_some() {
                return Err(BuildError::SameName(limit.name.to_string()));
            }
        }
        Ok(Self(Arc::new(Members { prefix: prefix.into(), limits, by_name })))
    }

    /// Returns the beginning of the names of the limits.
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// Returns the number of limits.
    pub fn len(&self) -> usize {
        self.0.limits.len()
    }

    /// Whether the group has no limits.
    pub fn is_empty(&self) -> bool {
        self.0.limits.is_empty()
    }
}

/// The groups of a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitGroups {
    /// In the order of their limits.
    groups: Arc<Vec<LimitGroup>>,
    /// The groups by prefix, each with the place of its first limit.
    sorted: Arc<Vec<(LimitGroup, usize)>>,
}

impl LimitGroups {
    /// Returns the place of the limit with this name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let after = self.sorted.partition_point(|(group, _)| group.prefix() <= name);
        let (group, first) = self.sorted.get(after.checked_sub(1)?)?;
        Some(first + group.0.by_name.get(name)?)
    }
}

impl Policy {
    /// Replaces the groups of limits. An error names a limit that has the name of another one, or a group whose prefix
    /// is the beginning of another one; nothing is replaced.
    pub fn with_groups(self, groups: impl IntoIterator<Item = LimitGroup>) -> Result<Self, BuildError> {
        let policy = self.put_groups(groups.into_iter().collect());
        let sorted = &policy.groups.sorted;
        let is_beginning = |pair: &&[(LimitGroup, usize)]| pair[1].0.prefix().starts_with(pair[0].0.prefix());
        if let Some(pair) = sorted.windows(2).find(is_beginning) {
            return Err(BuildError::Group(pair[0].0.prefix().to_owned()));
        }
        match policy.matched_limits().iter().find(|limit| policy.groups.place(&limit.name).is_some()) {
            Some(limit) => Err(BuildError::SameName(limit.name.to_string())),
            None => Ok(policy),
        }
    }

    /// Returns the groups of this policy, in the order of their limits.
    pub fn groups(&self) -> &[LimitGroup] {
        &self.groups.groups
    }

    /// Replaces the groups, whose names were compared.
    pub(crate) fn put_groups(mut self, groups: Vec<LimitGroup>) -> Self {
        if groups.is_empty() && self.groups.groups.is_empty() {
            return self;
        }
        let own = self.matched_limits();
        let mut limits = Vec::with_capacity(own.len() + groups.iter().map(LimitGroup::len).sum::<usize>());
        limits.extend_from_slice(own);
        let mut sorted = Vec::with_capacity(groups.len());
        for group in &groups {
            sorted.push((group.clone(), limits.len()));
            let placed = group.0.limits.iter().zip(limits.len()..);
            limits.extend(placed.map(|(limit, place)| Limit { place, ..limit.clone() }));
        }
        sorted.sort_by(|(one, _), (other, _)| one.prefix().cmp(other.prefix()));
        self.limits = Arc::new(limits);
        self.groups = LimitGroups { groups: Arc::new(groups), sorted: Arc::new(sorted) };
        self
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Bucket, Rate};

    use super::*;
    use crate::source::KeySource;

    fn limit(name: &str) -> LimitBuilder {
        let bucket = Bucket::new(Rate::per_hour(5)).unwrap();
        LimitBuilder::new(name).envoy_match("d", [("k", None)]).by(KeySource::Descriptor).quota(bucket)
    }

    fn group(prefix: &str, names: &[&str]) -> LimitGroup {
        LimitGroup::build(prefix, names.iter().map(|name| limit(name))).unwrap()
    }

    #[test]
    fn limits_of_groups_follow_the_others_and_are_found_by_name() {
        let file = Policy::parse("limits: [{name: a, by: ip, bucket: 1/s}, {name: z, by: ip, bucket: 1/s}]");
        let groups = [group("d2.", &["d2.a", "d2.b"]), group("d1.", &["d1.a"]), group("e.", &[])];
        let policy = file.unwrap().with_groups(groups).unwrap();
        let names: Vec<_> = policy.limits().iter().map(Limit::name).collect();
        assert_eq!(names, ["a", "z", "d2.a", "d2.b", "d1.a"]);
        for (place, name) in names.iter().enumerate() {
            assert_eq!(policy.limit(name).map(Limit::place), Some(place), "{name}");
        }
        for unknown in ["", "d1.", "d1.b", "d2", "d3.a", "zz", "e.a"] {
            assert!(policy.limit(unknown).is_none(), "{unknown}");
        }
        assert_eq!(policy.matched_limits().len(), 2);
        // The groups stay when other limits are added.
        let more = policy.extended([limit("m")]).unwrap();
        assert_eq!(more.limits().iter().map(Limit::name).nth(2), Some("m"));
        assert_eq!(more.limit("d1.a").map(Limit::place), Some(5));
    }

    #[test]
    fn names_are_unique_over_groups_and_other_limits() {
        let policy = Policy::of([limit("d1.a")]).unwrap();
        let error = |groups: Vec<LimitGroup>| policy.clone().with_groups(groups).unwrap_err().to_string();
        assert_eq!(error(vec![group("d1.", &["d1.b", "d1.a"])]), "two limits are called `d1.a`");
        assert!(error(vec![group("d1.", &["d1.b"]), group("d1.x.", &[])]).contains("`d1.`"));
        let two = policy.clone().with_groups([group("d1.", &["d1.b"]), group("d10.", &["d10.a"])]).unwrap();
        assert_eq!(two.extended([limit("d10.a")]).unwrap_err().to_string(), "two limits are called `d10.a`");
        let twice = LimitGroup::build("d.", [limit("d.a"), limit("d.a")]).unwrap_err().to_string();
        assert_eq!(twice, "two limits are called `d.a`");
    }

    #[test]
    fn a_limit_of_an_unchanged_group_keeps_its_definition_and_its_usage() {
        let of = |groups: [LimitGroup; 2]| Policy::default().with_groups(groups).unwrap();
        let kept = group("kept.", &["kept.a", "kept.b"]);
        let before = of([group("c.", &["c.a"]), kept.clone()]);
        let after = of([group("c.", &["c.a", "c.b"]), kept]).carry_over_from(&before);
        for (name, is_shared) in [("c.a", false), ("kept.a", true), ("kept.b", true)] {
            let (old, new) = (before.limit(name).unwrap(), after.limit(name).unwrap());
            assert_eq!(old.shares_definition(new), is_shared, "{name}");
            assert_eq!(old.rules(), new.rules(), "{name}");
        }
    }
}
