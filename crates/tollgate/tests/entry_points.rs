//! Decisions other than about a single request.

use tollgate::policy::Key;
use tollgate::{Bucket, Call, Limiter, Mode, Policy, Rate, Rule, RuleId};

const POLICY: &str = "
limits:
  - {name: users, by: user, bucket: 2/day}
  - {name: everybody, by: global, bucket: 3/day}
";

fn of(limiter: &Limiter, users: &[&str]) -> (bool, Vec<(u32, String, u64)>) {
    let calls: Vec<_> = users.iter().map(|user| Call::new("GET", "/").user(user)).collect();
    let outcomes = limiter.try_decide_batch(&calls, |decision| {
        let of_limit =
            |it: tollgate::LimitOutcome<'_>| (it.part(), it.name().to_owned(), it.outcome().remaining);
        (decision.is_allowed(), decision.limits().map(of_limit).collect())
    });
    outcomes.expect("a store in memory answers at once")
}

#[test]
fn a_batch_of_requests_is_charged_as_a_whole_or_not_at_all() {
    let limiter = Limiter::from_policy(POLICY).unwrap();
    let (allowed, outcomes) = of(&limiter, &["ann", "bob"]);
    let expected = [(0, "users", 1), (0, "everybody", 2), (1, "users", 1), (1, "everybody", 1)];
    assert_eq!(outcomes, expected.map(|(part, name, left)| (part, name.to_owned(), left)));
    assert!(allowed);

    // One unit is left for all callers, and two are requested.
    assert!(!of(&limiter, &["ann", "cat"]).0);
    let (allowed, outcomes) = of(&limiter, &["cat"]);
    assert!(allowed, "the refused batch charged nothing");
    assert_eq!(outcomes, [(0, "users".to_owned(), 1), (0, "everybody".to_owned(), 0)]);
}

#[test]
fn an_empty_batch_is_admitted() {
    let limiter = Limiter::from_policy(POLICY).unwrap();
    assert_eq!(of(&limiter, &[]), (true, Vec::new()));
}

/// Returns an ad hoc rule that has one id for all numbers.
fn rule(capacity: u64) -> Rule {
    let bucket = Bucket::new(Rate::per_day(1)).and_then(|it| it.with_burst(capacity));
    let bucket = bucket.expect("a valid bucket");
    Rule { id: RuleId::of(["own"]), ..Rule::new("own", bucket) }
}

fn take(limiter: &Limiter, rule: &Rule, cost: u64) -> (bool, Option<u64>) {
    let outcomes = limiter.try_decide_rule(rule, Key::named(b"ann"), cost, |decision| {
        (decision.is_allowed(), decision.limiting().map(|it| it.outcome().remaining))
    });
    outcomes.expect("a store in memory answers at once")
}

#[test]
fn rules_with_one_id_share_usage() {
    let limiter = Limiter::from_policy("limits: []").unwrap();
    assert_eq!(take(&limiter, &rule(3), 3), (true, Some(0)));
    assert_eq!(take(&limiter, &rule(3), 1), (false, Some(0)));
    assert_eq!(take(&limiter, &rule(10), 1), (true, Some(6)));
}

#[test]
fn mode_overrides_apply_to_ad_hoc_rules_too() {
    let limiter = Limiter::from_policy("limits: []").unwrap();
    take(&limiter, &rule(1), 1);
    let off = limiter.with_policy(limiter.policy().with_modes(|_| Mode::Off));
    assert_eq!(take(&off, &rule(1), 1), (true, None));
    let shadow = limiter.with_policy(limiter.policy().with_modes(|_| Mode::Shadow));
    assert_eq!(take(&shadow, &rule(1), 1), (true, None));
    assert!(!take(&limiter, &rule(1), 1).0);
    assert!(Policy::parse("limits: []").unwrap().limits().is_empty());
}
