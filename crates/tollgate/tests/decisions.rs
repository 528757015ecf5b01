//! Decisions of a limiter, from the text of a policy.

use std::time::Duration;

use tollgate::store::ManualClock;
use tollgate::{Call, Decision, Fate, Limiter, MemoryStore, Policy, Span, Timestamp, Verdict};

fn limiter(policy: &str) -> Limiter<MemoryStore<ManualClock>> {
    let policy = Policy::parse(policy).expect("a policy without mistakes");
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    Limiter::with_store(policy, MemoryStore::with_seed(1_000, clock, 7))
}

fn ann() -> Call<'static> {
    Call::new("GET", "/api/v1/search").ip([203, 0, 113, 9]).user("ann")
}

/// Returns the name and the remaining units of every limit that applied.
fn standing<'d>(decision: &'d Decision<'_>) -> Vec<(&'d str, u64)> {
    decision.limits().map(|it| (it.name(), it.outcome().remaining)).collect()
}

#[test]
fn every_limit_that_matches_is_charged_or_none_is() {
    let limiter = limiter(
        "limits:
           - {name: everybody, by: global, bucket: 3/hour}
           - {name: users, by: user, bucket: 2/hour}
           - {name: other, endpoint: /other, by: user, bucket: 1/hour}",
    );
    assert_eq!(standing(&limiter.check(&ann())), [("everybody", 2), ("users", 1)]);
    assert_eq!(standing(&limiter.check(&ann())), [("everybody", 1), ("users", 0)]);
    for _ in 0..10 {
        let refused = limiter.check(&ann());
        assert_eq!(
            (refused.fate(), standing(&refused)),
            (Fate::Refused, vec![("everybody", 1), ("users", 0)])
        );
    }
    assert!(limiter.check(&ann().user("bob")).is_allowed(), "refused retries charged no shared limit");
}

#[test]
fn of_several_refusals_the_longest_wait_is_limiting() {
    let limiter = limiter(
        "limits:
           - {name: minute, by: ip, bucket: 1/minute}
           - {name: hour, by: ip, bucket: 1/hour}
           - {name: second, by: ip, bucket: 1/second}",
    );
    assert_eq!(
        limiter.check(&ann()).limiting().unwrap().name(),
        "hour",
        "all are exhausted, this one the longest"
    );
    let refused = limiter.check(&ann());
    assert_eq!(refused.limiting().unwrap().name(), "hour");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3_600)));
}

#[test]
fn of_an_admitted_request_the_least_remaining_limit_is_limiting() {
    let limiter =
        limiter("limits: [{name: wide, by: ip, bucket: 100/hour}, {name: narrow, by: user, bucket: 9/hour}]");
    assert_eq!(limiter.check(&ann()).limiting().unwrap().name(), "narrow");
}

#[test]
fn several_windows_of_one_limit_apply_together() {
    let limiter = limiter("limits: [{name: api, by: ip, windows: [2/second, 3/hour]}]");
    assert_eq!(standing(&limiter.check(&ann())), [("api/1s", 1), ("api/1h", 2)]);
    drop(limiter.check(&ann()));
    assert_eq!(limiter.check(&ann()).limiting().unwrap().name(), "api/1s");
    limiter.clock().advance(Span::from_secs(1));
    assert!(limiter.check(&ann()).is_allowed());
    assert_eq!(limiter.check(&ann()).limiting().unwrap().name(), "api/1h");
}

#[test]
fn a_cost_above_capacity_is_reported_as_never() {
    let limiter = limiter("limits: [{by: ip, bucket: 5/hour}]");
    let never = limiter.check(&ann().cost(6));
    assert_eq!((never.is_allowed(), never.retry_after()), (false, None));
    assert_eq!(never.limiting().unwrap().outcome().verdict, Verdict::Never);
    assert!(limiter.check(&ann().cost(5)).is_allowed());
}

#[test]
fn lists_come_before_limits_and_deny_before_allow() {
    let limiter = limiter(
        "allow: [{ip: 10.0.0.0/8}]
deny: [{ip: 10.6.6.6}, {user: mallory}]
limits: [{by: global, bucket: 1/hour}]",
    );
    for _ in 0..5 {
        assert!(matches!(limiter.check(&ann().ip([10, 1, 2, 3])).fate(), Fate::AllowListed(_)));
        assert!(matches!(limiter.check(&ann().ip([10, 6, 6, 6])).fate(), Fate::DenyListed(_)));
        assert!(!limiter.check(&ann().user("mallory")).is_allowed());
    }
    assert!(limiter.check(&ann()).is_allowed(), "listed requests were not counted");
}

#[test]
fn plans_and_overrides_replace_the_quota_and_count_separately() {
    let limiter = limiter(
        "limits:
           - name: api
             by: user
             bucket: 2/hour
             plans: {pro: 10/hour, internal: unlimited}
             overrides: {bob: 5/hour, mallory: blocked}",
    );
    let left = |call: &Call<'_>| standing(&limiter.check(call)).first().map(|(_, left)| *left);
    assert_eq!(left(&ann()), Some(1));
    assert_eq!(left(&ann().user("bob")), Some(4));
    assert_eq!(left(&ann().plan("internal")), None);
    assert!(matches!(limiter.check(&ann().user("mallory")).fate(), Fate::Blocked(_)));
    assert_eq!(left(&ann().plan("pro")), Some(9), "a plan counts separately");
    assert_eq!(left(&ann()), Some(0));
    for _ in 0..20 {
        drop(limiter.check(&ann().plan("pro")));
        assert!(!limiter.check(&ann()).is_allowed(), "the plan gives nothing back");
    }
}

#[test]
fn a_missing_key_falls_back_to_the_address() {
    let limiter = limiter("limits: [{by: api_key, bucket: 1/hour}]");
    let anonymous = || Call::new("GET", "/").ip([203, 0, 113, 9]);
    assert!(limiter.check(&anonymous()).is_allowed());
    assert!(!limiter.check(&anonymous()).is_allowed());
    assert!(
        !limiter.check(&anonymous().header("x-api-key", "")).is_allowed(),
        "an empty key is a missing key"
    );
    assert!(
        limiter.check(&anonymous().api_key("203.0.113.9")).is_allowed(),
        "a key that looks like the address is a key"
    );
    assert!(limiter.check(&Call::new("GET", "/")).is_allowed());
    assert!(!limiter.check(&Call::new("GET", "/")).is_allowed(), "without an address all share one");
}

#[test]
fn refusals_cost_under_count_denied() {
    let limiter = limiter(
        "limits:
           - {name: attempts, by: ip, bucket: 3/hour, count_denied: true}
           - {name: open, by: global, bucket: 1/hour}",
    );
    for left in [2, 1, 0, 0] {
        assert_eq!(standing(&limiter.check(&ann()))[0], ("attempts", left));
    }
}

#[test]
fn a_limit_in_shadow_mode_counts_and_does_not_refuse() {
    let limiter = limiter(
        "limits: [{name: new, by: ip, bucket: 1/hour, mode: shadow}, {name: live, by: ip, bucket: 9/hour}]",
    );
    for admitted in [true, false, false] {
        let decision = limiter.check(&ann());
        assert!(decision.is_allowed());
        assert_eq!(decision.limits().next().unwrap().outcome().is_admitted(), admitted);
        assert_eq!(decision.limiting().unwrap().name(), "live");
    }
}

#[test]
fn a_new_policy_keeps_usage() {
    let before = limiter("limits: [{name: api, by: user, bucket: 100/hour}]");
    drop(before.check(&ann().cost(60)));
    let raised =
        before.with_policy(Policy::parse("limits: [{name: api, by: user, bucket: 1000/hour}]").unwrap());
    assert_eq!(standing(&raised.check(&ann())), [("api", 939)]);
    let same =
        raised.with_policy(Policy::parse("limits: [{name: api, by: user, bucket: 1000/hour}]").unwrap());
    assert_eq!(standing(&same.check(&ann())), [("api", 938)]);
    let renamed =
        same.with_policy(Policy::parse("limits: [{name: other, by: user, bucket: 1000/hour}]").unwrap());
    assert_eq!(standing(&renamed.check(&ann())), [("other", 999)]);
}

#[test]
fn refunds_and_settlements_correct_the_charge() {
    let limiter = limiter(
        "limits: [{by: user, bucket: 100/hour}, {by: global, rate: 100/hour, algorithm: sliding-log}]",
    );
    let left = || standing(&limiter.check(&ann().cost(0))).iter().map(|(_, left)| *left).collect::<Vec<_>>();
    let reserved = limiter.check(&ann().cost(50));
    pollster::block_on(limiter.settle(&reserved, 20)).unwrap();
    assert_eq!(left(), [80, 80], "too much was reserved");
    let reserved = limiter.check(&ann().cost(50));
    pollster::block_on(limiter.settle(&reserved, 90)).unwrap();
    assert_eq!(left(), [0, 0], "too little was reserved, and ten are owed");
    pollster::block_on(limiter.refund(&reserved)).unwrap();
    assert_eq!(left(), [40, 40], "the fifty of the reservation less the ten owed");
}

#[test]
fn a_cost_known_afterwards_is_charged_afterwards() {
    let limiter = limiter("limits: [{by: user, bucket: 10/hour}]");
    let decision = limiter.check(&ann().cost(0));
    pollster::block_on(limiter.settle(&decision, 7)).unwrap();
    assert_eq!(standing(&limiter.check(&ann().cost(0)))[0].1, 3);
}

#[test]
fn slots_are_held_until_they_are_released() {
    let limiter = limiter("limits: [{name: inflight, by: user, slots: 2}]");
    let (one, two) = (limiter.check(&ann()), limiter.check(&ann()));
    assert!(one.is_allowed() && two.is_allowed());
    assert!(!limiter.check(&ann()).is_allowed());
    pollster::block_on(limiter.release(&one)).unwrap();
    assert!(limiter.check(&ann()).is_allowed());
}

#[test]
fn a_slot_taken_before_a_reload_is_released_after_it() {
    let before = limiter("limits: [{name: inflight, by: user, slots: 1}]");
    let held = before.check(&ann());
    let after = before.with_policy(Policy::parse("limits: [{name: inflight, by: user, slots: 2}]").unwrap());
    assert!(after.check(&ann()).is_allowed(), "one of two is held");
    assert!(!after.check(&ann()).is_allowed());
    pollster::block_on(before.release(&held)).unwrap();
    assert!(after.check(&ann()).is_allowed());
}

#[test]
fn the_async_path_gives_the_same_decision() {
    let limiter = limiter("limits: [{by: user, bucket: 1/hour}]");
    assert!(pollster::block_on(limiter.decide(&ann())).is_allowed());
    assert!(!pollster::block_on(limiter.decide(&ann())).is_allowed());
}

const MIXED: &str = "limits:
  - {name: requests, by: user, bucket: 100/hour}
  - {name: tokens, by: user, windows: [100/hour, 1000/day], cost: {reserve: 10, settle: 'response:x-used'}}
  - {name: time, by: user, bucket: 100/hour, mode: shadow, cost: {reserve: 20, settle: 'time:1s'}}";

#[test]
fn each_limit_settles_its_own_cost() {
    let limiter = limiter(MIXED);
    let receipt = limiter.check(&ann()).receipt().unwrap();
    assert!(receipt.limits().eq(["requests", "tokens", "time"]));
    let settle = |costs: &[(&str, u64)]| pollster::block_on(limiter.settle_limits(&receipt, costs)).unwrap();
    settle(&[("tokens", 40), ("time", 5), ("unknown", 99)]);
    let expected = [("requests", 99), ("tokens/1h", 60), ("tokens/1d", 960), ("time", 95)];
    assert_eq!(standing(&limiter.check(&ann().cost(0))), expected);
}

#[test]
fn a_single_cost_applies_to_the_limits_that_settle() {
    let limiter = limiter(MIXED);
    let decision = limiter.check(&ann());
    pollster::block_on(limiter.settle(&decision, 50)).unwrap();
    let expected = [("requests", 99), ("tokens/1h", 50), ("tokens/1d", 950), ("time", 50)];
    assert_eq!(standing(&limiter.check(&ann().cost(0))), expected);
}
