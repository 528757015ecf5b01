//! Rule sets: the rules of a policy, as another process reads them.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate_policy::{Call, Checks, Policy, RuleSet, RuleSetError};

const ALL: &str = "
limits:
  - {name: api, by: [user, ip], windows: [10/second, 100/hour], plans: {pro: [20/second, 200/hour], free: blocked}}
  - {name: keys, by: api_key, bucket: 5/minute, overrides: {k1: 50/minute, k2: unlimited, k3: blocked}}
  - {name: held, by: ip, slots: 3}
  - {name: month, by: ip, algorithm: fixed-window, rate: 9/month, align: calendar, timezone: Europe/Paris}
  - {name: log, by: ip, algorithm: sliding-log, rate: 9/minute}
  - {name: strict, by: ip, algorithm: sliding-window, rate: 9/minute, strict: true}
  - {name: queue, by: ip, algorithm: leaky-queue, rate: 9/second, queue: {length: 4, wait: 1s, free: 1}}
plans: {from: \"header:x-plan\"}
";

fn parse(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn one(amount: &str) -> Policy {
    parse(&format!("limits: [{{name: a, by: ip, {amount}}}]"))
}

/// Returns the number of predecessors of the first rule that applies to a caller.
fn predecessors(policy: &Policy, call: &Call<'_>) -> usize {
    let mut checks = Checks::new();
    policy.match_request(call, &mut checks);
    checks[0].rule.predecessors().count()
}

#[test]
fn a_rule_set_is_read_back_as_it_was() {
    let set = parse(ALL).rule_set();
    assert_eq!(RuleSet::decode(&set.encode()).as_ref(), Ok(&set));
    assert_eq!(set.digest(), parse(ALL).rule_set().digest(), "the order of maps does not matter");
}

#[test]
fn the_digest_is_that_of_the_rules() {
    let digest = |text: &str| parse(text).rule_set().digest();
    let plain = digest("limits: [{name: a, by: ip, bucket: 5/day}]");
    assert_eq!(digest("limits: [{name: a, by: ip, bucket: 5/day, endpoint: /x, mode: shadow}]"), plain);
    for other in [
        "{name: a, by: ip, bucket: 6/day}",
        "{name: b, by: ip, bucket: 5/day}",
        "{name: a, by: user, bucket: 5/day}",
    ] {
        assert_ne!(digest(&format!("limits: [{other}]")), plain, "{other}");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let bytes = parse(ALL).rule_set().encode();
    for length in 0..bytes.len() {
        assert!(RuleSet::decode(&bytes[..length]).is_err(), "cut to {length}");
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff, bytes[at] ^ 1] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _any = RuleSet::decode(&damaged);
        }
    }
    let mut newer = bytes;
    newer[0] += 1;
    assert_eq!(RuleSet::decode(&newer), Err(RuleSetError::Unknown));
}

#[test]
fn limits_continue_the_usage_of_every_set_that_has_them() {
    let call = Call::new("GET", "/");
    let sets =
        [one("bucket: 5/day").rule_set(), parse("limits: []").rule_set(), one("bucket: 6/day").rule_set()];
    assert_eq!(predecessors(&one("bucket: 7/day").carry_over_from_sets(&sets), &call), 2);
    assert_eq!(predecessors(&one("bucket: 6/day").carry_over_from_sets(&sets), &call), 1);
    let other = parse("limits: [{name: a, by: user, bucket: 7/day}]");
    assert_eq!(predecessors(&other.carry_over_from_sets(&sets), &call), 0, "other keys");
    // A later reload keeps them.
    let later = one("bucket: 8/day").carry_over_from(&one("bucket: 7/day").carry_over_from_sets(&sets));
    assert_eq!(predecessors(&later, &call), 3);
    let again = one("bucket: 7/day").carry_over_from_sets(&sets);
    assert_eq!(predecessors(&again.clone().carry_over_from(&one("bucket: 7/day")), &call), 2);
}

#[test]
fn amounts_of_a_set_replace_those_with_other_states() {
    let limits = |amount: &str, set: &str| {
        let policy = one(amount).with_amounts_of(&one(set).rule_set());
        policy.limits()[0].rules().iter().map(|rule| rule.quota.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(limits("bucket: 7/day", "bucket: 5/day"), ["token-bucket 5/day"]);
    assert_eq!(limits("windows: [1/second, 7/day]", "bucket: 5/day"), ["token-bucket 5/day"]);
    // Windows share their states, and a slot is no unit.
    let fixed = |rate| format!("algorithm: fixed-window, rate: {rate}");
    assert_eq!(limits(&fixed("7/day"), &fixed("5/day")), ["fixed-window 7/day"]);
    assert_eq!(limits("slots: 7", "bucket: 5/day"), ["concurrency 7 for 1m"]);
    let keys = |amount: &str| {
        parse(&format!("limits: [{{name: a, by: api_key, bucket: 5/day, overrides: {{k1: {amount}}}}}]"))
    };
    let held = keys("9/day").with_amounts_of(&keys("8/day").rule_set());
    let mut checks = Checks::new();
    held.match_request(&Call::new("GET", "/").api_key("k1"), &mut checks);
    assert_eq!(checks[0].rule.quota.capacity(), 8);
}
