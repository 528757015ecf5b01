//! The result of matching without its borrows, for a future that outlives the borrow of the policy.
//!
//! Limits, rules and list entries are stored as their places in the policy. [`Policy::attach`] finds
//! them again, so the request is not matched a second time. Requests that are decided without
//! waiting need none of this.
//!
//! Invariant: checks are attached to the policy that they were detached from. The places exist then;
//! a check is never dropped silently, because a request would pass without it.

use std::ptr;

use smallvec::SmallVec;
use tollgate_core::Rule;

use super::{Block, BlockReason, Check, Checks, FairNumbers, Matched};
use crate::key::Key;
use crate::limit::{Allowance, Limit};
use crate::lists::{List, ListEntry};
use crate::policy::Policy;

/// The result of matching a request, without borrows of the policy.
///
/// ```
/// # use tollgate_policy::{Call, Checks, Policy};
/// let policy = Policy::parse("limits: [{name: api, by: user, bucket: 10/minute}]")?;
/// let mut checks = Checks::new();
/// let matched = policy.match_request(&Call::new("GET", "/").user("ann"), &mut checks);
/// let detached = policy.detach(matched, checks);
/// let mut attached = Checks::new();
/// assert_eq!(policy.attach(&detached, &mut attached), matched);
/// assert_eq!(attached[0].limit.name(), "api");
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug)]
pub struct DetachedChecks {
    checks: SmallVec<[DetachedCheck; 2]>,
    shadowed: SmallVec<[(LimitPlace, BlockReason); 2]>,
    /// The rank of the priority class.
    priority: Option<u8>,
    part: u32,
    repeats_limits: bool,
    fair: FairNumbers,
    matched: DetachedMatch,
}

#[derive(Clone, Debug)]
struct DetachedCheck {
    limit: LimitPlace,
    rule: RulePlace,
    key: Key,
    cost: u64,
    part: u32,
    count_denied: bool,
}

/// The place of a limit in its policy.
#[derive(Clone, Copy, Debug)]
enum LimitPlace {
    Index(usize),
    /// The limit for ad-hoc rules.
    AdHoc,
}

/// The place of a rule in its limit, with the index of the window.
#[derive(Clone, Debug)]
enum RulePlace {
    Own(usize),
    /// In the override for the key of the check.
    Override(usize),
    Plan(Box<str>, usize),
    /// Of the priority class with this rank.
    Class(usize),
    /// The rule of a caller, which is in no policy.
    AdHoc(Box<Rule>),
}

#[derive(Clone, Copy, Debug)]
enum DetachedMatch {
    Applies,
    Allowed(usize),
    Denied(usize),
    Blocked(LimitPlace, BlockReason),
    AmbiguousPath,
}

impl Policy {
    /// Removes the borrows from the result of matching a request against this policy.
    pub fn detach(&self, matched: Matched<'_>, checks: Checks<'_>) -> DetachedChecks {
        let detached = |check: Check<'_>| DetachedCheck {
            limit: self.place_of(check.limit),
            rule: RulePlace::of(&check),
            key: check.key,
            cost: check.cost,
            part: check.part,
            count_denied: check.count_denied,
        };
        let shadowed = checks.shadowed.iter().map(|block| (self.place_of(block.limit), block.reason));
        DetachedChecks {
            shadowed: shadowed.collect(),
            priority: checks.priority.map(|class| class.rank),
            part: checks.part,
            repeats_limits: checks.repeats_limits,
            fair: checks.fair,
            matched: match matched {
                Matched::Applies => DetachedMatch::Applies,
                Matched::Allowed(entry) => DetachedMatch::Allowed(index_of(&self.allow, entry)),
                Matched::Denied(entry) => DetachedMatch::Denied(index_of(&self.deny, entry)),
                Matched::Blocked(block) => DetachedMatch::Blocked(self.place_of(block.limit), block.reason),
                Matched::AmbiguousPath => DetachedMatch::AmbiguousPath,
            },
            checks: checks.list.into_iter().map(detached).collect(),
        }
    }

    /// Restores the result of matching, for the policy that it was detached from. `out` is cleared
    /// first.
    pub fn attach<'p>(&'p self, detached: &'p DetachedChecks, out: &mut Checks<'p>) -> Matched<'p> {
        out.clear();
        (out.part, out.repeats_limits) = (detached.part, detached.repeats_limits);
        out.fair.clone_from(&detached.fair);
        out.priority = detached.priority.and_then(|rank| self.priorities.get(usize::from(rank)));
        let block = |(limit, reason)| Block { limit: self.limit_at(limit), reason };
        out.shadowed.extend(detached.shadowed.iter().copied().map(block));
        out.list.extend(detached.checks.iter().map(|check| {
            let limit = self.limit_at(check.limit);
            let rule = check.rule.find(limit, &check.key).expect(SAME_POLICY);
            let (key, cost, part, count_denied) =
                (check.key.clone(), check.cost, check.part, check.count_denied);
            Check { limit, rule, key, cost, part, count_denied }
        }));
        match detached.matched {
            DetachedMatch::Applies => Matched::Applies,
            DetachedMatch::Allowed(index) => Matched::Allowed(self.allow.entry(index).expect(SAME_POLICY)),
            DetachedMatch::Denied(index) => Matched::Denied(self.deny.entry(index).expect(SAME_POLICY)),
            DetachedMatch::Blocked(limit, reason) => Matched::Blocked(block((limit, reason))),
            DetachedMatch::AmbiguousPath => Matched::AmbiguousPath,
        }
    }

    fn place_of(&self, limit: &Limit) -> LimitPlace {
        if ptr::eq(limit, &raw const self.ad_hoc) {
            LimitPlace::AdHoc
        } else {
            LimitPlace::Index(limit.place)
        }
    }

    fn limit_at(&self, place: LimitPlace) -> &Limit {
        match place {
            LimitPlace::Index(index) => self.limits.get(index).expect(SAME_POLICY),
            LimitPlace::AdHoc => &self.ad_hoc,
        }
    }
}

const SAME_POLICY: &str = "checks are attached to the policy that they were detached from";

impl RulePlace {
    fn of(check: &Check<'_>) -> Self {
        let window = |rules: &[Rule]| rules.iter().position(|rule| ptr::eq(rule, check.rule));
        let of_key = || window(check.limit.override_for(&check.key)?.rules()).map(Self::Override);
        let of_plan = || {
            let mut plans = check.limit.plans.iter();
            plans.find_map(|(name, plan)| Some(Self::Plan(name.clone(), window(plan.rules())?)))
        };
        let of_class = || window(&check.limit.class_rules).map(Self::Class);
        let place = window(&check.limit.rules).map(Self::Own);
        let place = place.or_else(of_key).or_else(of_plan).or_else(of_class);
        place.unwrap_or_else(|| Self::AdHoc(Box::new(check.rule.clone())))
    }

    fn find<'p>(&'p self, limit: &'p Limit, key: &Key) -> Option<&'p Rule> {
        match self {
            Self::Own(window) => limit.rules.get(*window),
            Self::Override(window) => limit.override_for(key).map(Allowance::rules)?.get(*window),
            Self::Plan(name, window) => limit.plans.get(name).map(Allowance::rules)?.get(*window),
            Self::Class(rank) => limit.class_rules.get(*rank),
            Self::AdHoc(rule) => Some(rule),
        }
    }
}

fn index_of(list: &List, entry: &ListEntry) -> usize {
    list.position(entry).expect(SAME_POLICY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Call;

    #[cfg(feature = "yaml")]
    #[test]
    fn a_limit_that_is_charged_twice_is_known_as_such_after_it_is_attached() {
        let policy =
            Policy::parse("limits: [{by: path:name, endpoint: '/files/{name}', bucket: 5/minute}]").unwrap();
        let mut checks = Checks::new();
        let matched = policy.match_request(&Call::new("GET", "/files/a;b"), &mut checks);
        assert!(checks.len() > 1 && checks.repeats_limits());
        let detached = policy.detach(matched, checks);
        let mut attached = Checks::new();
        policy.attach(&detached, &mut attached);
        assert!(attached.repeats_limits());
    }
}
