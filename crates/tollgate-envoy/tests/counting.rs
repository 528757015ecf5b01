//! Counting by the limits of the files, through the limiter: the answers of a rate limit service.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_envoy::{DescriptorMatch, Domains, EnvoyConfig, EnvoyFile};

type Served = Limiter<MemoryStore<ManualClock>>;

fn policy(descriptors: &str) -> Policy {
    let text = format!("domain: d\ndescriptors:\n{descriptors}\n");
    let file = EnvoyFile { name: "d.yaml".into(), text };
    EnvoyConfig::read(&[file], false).unwrap().apply(Policy::default()).unwrap()
}

fn served(descriptors: &str) -> (Served, ManualClock) {
    // The middle of a minute, an hour and a day.
    let clock = ManualClock::at(Timestamp::from_secs(20_000 * 86_400 + 45_030));
    let store = MemoryStore::with_clock(1_000, clock.clone());
    (Limiter::with_store(policy(descriptors), store), clock)
}

/// Returns whether a number of hits pass, and the rest of the allowance.
fn hit(limiter: &Served, value: &str, hits: u64) -> (bool, u64) {
    let entries = [("k", value)];
    let DescriptorMatch::Limited(leaf) = Domains::of(limiter.policy()).unwrap().find("d", &entries) else {
        panic!()
    };
    let limit = leaf.limit(limiter.policy()).unwrap();
    let decision = limiter.try_decide_named(limit, leaf.key(&entries), None, Some(hits), |decision| {
        let left = decision.limits().next().map_or(0, |it| it.outcome().remaining);
        (decision.is_allowed(), left)
    });
    decision.expect("a store in memory answers at once")
}

#[test]
fn refused_hits_are_counted_in_full() {
    let (limiter, clock) = served("  - {key: k, rate_limit: {unit: minute, requests_per_unit: 10}}");
    assert_eq!(hit(&limiter, "a", 4), (true, 6));
    assert_eq!(hit(&limiter, "a", 7), (false, 0), "crosses the limit: refused as a whole");
    assert_eq!(hit(&limiter, "a", 1), (false, 0), "and counted as a whole");
    assert_eq!(hit(&limiter, "b", 10), (true, 0), "another value has a counter of its own");
    clock.advance(Span::from_secs(30));
    assert_eq!(hit(&limiter, "a", 10), (true, 0), "a new minute begins with the minute");
}

#[test]
fn a_limit_of_zero_admits_nothing() {
    let (limiter, _) = served("  - {key: k, rate_limit: {unit: second, requests_per_unit: 0}}");
    assert_eq!(hit(&limiter, "a", 1), (false, 0));
    assert_eq!(hit(&limiter, "a", 1), (false, 0));
}

#[test]
fn a_shared_pattern_has_one_counter() {
    let (limiter, _) = served(
        "  - {key: k, value: a*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: k, value: b*, rate_limit: {unit: day, requests_per_unit: 2}}",
    );
    assert_eq!(hit(&limiter, "a1", 1), (true, 1));
    assert_eq!(hit(&limiter, "a2", 1), (true, 0));
    assert_eq!(hit(&limiter, "a3", 1), (false, 0));
    assert_eq!(hit(&limiter, "b1", 2), (true, 0));
    assert_eq!(hit(&limiter, "b2", 2), (true, 0));
}

#[test]
fn shadow_mode_counts_without_refusing() {
    let (limiter, _) =
        served("  - {key: k, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}");
    assert_eq!(hit(&limiter, "a", 1), (true, 0));
    assert_eq!(hit(&limiter, "a", 1), (true, 0));
}

#[test]
fn a_reload_with_other_numbers_goes_on_counting() {
    let (limiter, _) = served("  - {key: k, rate_limit: {unit: day, requests_per_unit: 10}}");
    assert_eq!(hit(&limiter, "a", 8), (true, 2));
    let more = policy("  - {key: other}\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 20}}");
    let limiter = limiter.with_policy(more);
    assert_eq!(hit(&limiter, "a", 1), (true, 11));
    let fewer = limiter.with_policy(policy("  - {key: k, rate_limit: {unit: day, requests_per_unit: 5}}"));
    assert_eq!(hit(&fewer, "a", 1), (false, 0));
}
