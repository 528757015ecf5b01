//! Plans and overrides that share the id of a rule: the choice among them is defined.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate_core::Rule;
use tollgate_policy::{Allowance, Policy};

/// The number of policies: each has maps of its own, with orders of their own.
const POLICIES: usize = 50;

fn policy(limit: &str) -> Policy {
    let text = format!("limits: [{{name: api, by: user, algorithm: fixed-window, {limit}}}]");
    Policy::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Returns the capacity of the rule that holds a charge of `user` under the override of `ann`.
fn capacity_after(policy: &Policy, user: &str) -> Option<u64> {
    let limit = &policy.limits()[0];
    let key = |name| policy.key(limit, &[name]).unwrap();
    let Some(Allowance::Rules(rules)) = limit.override_for(&key("ann")) else { panic!("ann has rules") };
    limit.rule_after(rules[0].id, &key(user)).map(|rule| rule.quota.capacity())
}

#[test]
fn the_strictest_override_holds_the_charge_of_a_key_without_one() {
    for _ in 0..POLICIES {
        for overrides in [
            "{ann: 200/day, bob: 50/day, eve: 100/day, dan: 7/minute}",
            "{dan: 7/minute, eve: 100/day, bob: 50/day, ann: 200/day}",
        ] {
            let before = policy(&format!("rate: 10/minute, overrides: {overrides}"));
            let after = policy(&format!("rate: 20/minute, overrides: {overrides}")).carry_over_from(&before);
            for policy in [before, after] {
                assert_eq!(capacity_after(&policy, "carl"), Some(50), "{overrides}");
                assert_eq!(capacity_after(&policy, "eve"), Some(100), "a key's own override comes first");
            }
        }
    }
}

#[test]
fn a_limit_continues_removed_overrides_of_one_id_by_the_numbers_of_the_strictest() {
    for _ in 0..POLICIES {
        let before = policy("rate: 10/minute, overrides: {ann: 200/day, bob: 50/day, eve: 100/day}");
        let Some(Allowance::Rules(gone)) = before.limits()[0].overrides().next().map(|(_, it)| it) else {
            panic!("overrides with rules");
        };
        let after = policy("windows: [20/minute, 5/day]").carry_over_from(&before);
        let continued = after.limits()[0].rules().iter().flat_map(Rule::predecessors);
        let daily: Vec<_> = continued.filter(|it| it.id == gone[0].id).collect();
        assert!(daily.iter().all(|it| it.quota.capacity() == 50), "{daily:?}");
    }
}
