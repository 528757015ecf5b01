//! Questions that are no single request.

use tollgate::policy::Key;
use tollgate::{Bucket, Call, Limiter, Mode, Policy, Rate, Rule, RuleId};

const POLICY: &str = "
limits:
  - {name: users, by: user, bucket: 2/day}
  - {name: everybody, by: global, bucket: 3/day}
";

fn of(limiter: &Limiter, users: &[&str]) -> (bool, Vec<(u32, String, u64)>) {
    let calls: Vec<_> = users.iter().map(|user| Call::new("GET", "/").user(user)).collect();
    let told = limiter.try_decide_batch(&calls, |decision| {
        let of_limit =
            |it: tollgate::LimitOutcome<'_>| (it.part(), it.name().to_owned(), it.outcome().remaining);
        (decision.is_allowed(), decision.limits().map(of_limit).collect())
    });
    told.expect("a store in memory answers at once")
}

#[test]
fn requests_that_are_decided_together_are_all_charged_or_none_is() {
    let limiter = Limiter::from_policy(POLICY).unwrap();
    let (allowed, told) = of(&limiter, &["ann", "bob"]);
    let expected = [(0, "users", 1), (0, "everybody", 2), (1, "users", 1), (1, "everybody", 1)];
    assert_eq!(told, expected.map(|(part, name, left)| (part, name.to_owned(), left)));
    assert!(allowed);

    // One is left for everybody, and two want it.
    assert!(!of(&limiter, &["ann", "cat"]).0);
    let (allowed, told) = of(&limiter, &["cat"]);
    assert!(allowed, "what was refused has taken nothing");
    assert_eq!(told, [(0, "users".to_owned(), 1), (0, "everybody".to_owned(), 0)]);
}

#[test]
fn nothing_is_decided_about_no_requests() {
    let limiter = Limiter::from_policy(POLICY).unwrap();
    assert_eq!(of(&limiter, &[]), (true, Vec::new()));
}

/// A rule of the asker's own, of one id whatever its numbers.
fn rule(capacity: u64) -> Rule {
    let bucket = Bucket::new(Rate::per_day(1)).and_then(|it| it.with_burst(capacity));
    let bucket = bucket.expect("a bucket that can be served");
    Rule { id: RuleId::of(["own"]), ..Rule::new("own", bucket) }
}

fn take(limiter: &Limiter, rule: &Rule, cost: u64) -> (bool, Option<u64>) {
    let told = limiter.try_decide_rule(rule, Key::named(b"ann"), cost, |decision| {
        (decision.is_allowed(), decision.limiting().map(|it| it.outcome().remaining))
    });
    told.expect("a store in memory answers at once")
}

#[test]
fn rules_of_one_id_share_what_was_spent() {
    let limiter = Limiter::from_policy("limits: []").unwrap();
    assert_eq!(take(&limiter, &rule(3), 3), (true, Some(0)));
    assert_eq!(take(&limiter, &rule(3), 1), (false, Some(0)));
    assert_eq!(take(&limiter, &rule(10), 1), (true, Some(6)));
}

#[test]
fn everything_off_is_off_for_rules_of_the_askers_own_too() {
    let limiter = Limiter::from_policy("limits: []").unwrap();
    take(&limiter, &rule(1), 1);
    let off = limiter.with_policy(limiter.policy().with_modes(|_| Mode::Off));
    assert_eq!(take(&off, &rule(1), 1), (true, None));
    let shadow = limiter.with_policy(limiter.policy().with_modes(|_| Mode::Shadow));
    assert_eq!(take(&shadow, &rule(1), 1), (true, None));
    assert!(!take(&limiter, &rule(1), 1).0);
    assert!(Policy::parse("limits: []").unwrap().limits().is_empty());
}
