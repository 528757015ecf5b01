//! Applying files to a policy: names, ids, and counts that are kept.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate::{Policy, RuleId};
use tollgate_envoy::{DescriptorMatch, Domains, EnvoyConfig, EnvoyFile};

fn file(text: &str) -> EnvoyFile {
    EnvoyFile { name: "shop.yaml".into(), text: text.into() }
}

fn applied(text: &str, policy: &str) -> Policy {
    let policy = Policy::parse(policy).unwrap();
    EnvoyConfig::read(&[file(text)], false).unwrap().apply(policy).unwrap()
}

/// Returns the names of a policy's limits and the ids of their counts.
fn ids(policy: &Policy) -> Vec<(String, RuleId)> {
    policy.limits().iter().map(|limit| (limit.name().to_owned(), limit.rules()[0].id)).collect()
}

const NATIVE: &str = "limits: [{name: native, by: ip, bucket: 1/s}]";

#[test]
fn limits_follow_those_of_the_policy_and_are_found() {
    let policy =
        applied("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]", NATIVE);
    let DescriptorMatch::Limited(leaf) = Domains::of(&policy).unwrap().find("d", &[("k", "v")]) else {
        panic!()
    };
    assert_eq!(leaf.place(), Some(1));
    let limit = leaf.limit(&policy).unwrap();
    assert_eq!((limit.name(), limit.count_denied()), ("d.k", true));
    // Requests are not matched against it by path.
    let mut checks = tollgate::policy::Checks::new();
    policy.match_request(&tollgate::Call::new("GET", "/").ip([192, 0, 2, 1]), &mut checks);
    assert_eq!(checks.len(), 1);
}

#[test]
fn counts_survive_other_numbers_and_other_neighbors_but_not_another_unit() {
    let one = "{key: k, value: 'a*', rate_limit: {unit: day, requests_per_unit: 1}}";
    let more = "{key: k, value: 'a*', rate_limit: {unit: day, requests_per_unit: 500}}";
    let hourly = "{key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: 1}}";
    let other = "{key: other, rate_limit: {unit: day, requests_per_unit: 1}}";
    let of = |descriptors: &str| ids(&applied(&format!("domain: d\ndescriptors: [{descriptors}]"), NATIVE));
    let before = of(one);
    assert_eq!(of(more), before);
    assert_eq!(of(&format!("{other}, {more}"))[2], before[1]);
    assert_eq!(of(hourly)[1].0, before[1].0);
    assert_ne!(of(hourly)[1].1, before[1].1);
    // Ids are part of the keys in Redis, so they never change.
    assert_eq!(before[1].0, "d.k_a-99a1d31d");
}

#[test]
fn every_limit_has_a_unique_name_that_is_valid_in_a_header() {
    let long = "x".repeat(500);
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let text = format!(
        "domain: d\ndescriptors:
  - {{key: a, value: b_c, {limit}}}
  - {{key: a_b, value: c, {limit}}}
  - {{key: native, {limit}}}
  - {{key: k, value: a b, {limit}}}
  - {{key: k, value: a/b, {limit}}}
  - {{key: k, value: \"a\\nb\", {limit}}}
  - {{key: '💥', {limit}}}
  - {{key: '{long}1', {limit}}}
  - {{key: '{long}2', {limit}}}
"
    );
    let policy = applied(&text, "limits: [{name: d.native, by: ip, bucket: 1/s}]");
    let mut names: Vec<_> = policy.limits().iter().map(|limit| limit.name().to_owned()).collect();
    for name in &names {
        assert!((1..=64).contains(&name.len()), "{name}");
        assert!(name.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it)), "{name}");
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 10);
}

#[test]
fn files_of_one_domain_are_merged_on_request() {
    let [one, two] = ["a", "b"].map(|key| {
        file(&format!(
            "domain: d\ndescriptors: [{{key: {key}, rate_limit: {{unit: day, requests_per_unit: 1}}}}]"
        ))
    });
    assert!(EnvoyConfig::read(&[one.clone(), two.clone()], false).is_err());
    let policy = EnvoyConfig::read(&[one, two], true).unwrap().apply(Policy::default()).unwrap();
    for key in ["a", "b"] {
        let found = Domains::of(&policy).unwrap().find("d", &[(key, "x")]);
        assert!(matches!(found, DescriptorMatch::Limited(_)), "{key}");
    }
}

#[test]
fn an_empty_set_of_files_is_valid_and_has_no_domains() {
    let policy = EnvoyConfig::read(&[], false).unwrap().apply(Policy::default()).unwrap();
    assert!(!Domains::of(&policy).unwrap().knows("d"));
    assert!(Domains::of(&Policy::default()).is_none());
}

#[test]
fn a_limit_says_which_descriptors_it_is_for() {
    let text = "domain: shop\ndescriptors:
  - key: plan
    value: gold
    descriptors: [{key: 'w: a', rate_limit: {unit: day, requests_per_unit: 1}}]
  - {key: api_key, value: sk-live-51secret, rate_limit: {unit: day, requests_per_unit: 1}}
";
    let policy = applied(text, NATIVE);
    let shown: Vec<_> =
        policy.limits().iter().filter_map(|it| it.envoy_match()).map(ToString::to_string).collect();
    assert_eq!(shown[0], "shop: plan=gold, w: a");
    assert!(shown[1].starts_with("shop: api_key=") && !shown[1].contains("51secret"), "{}", shown[1]);
    assert_eq!(shown.len(), 2, "the limit of the policy stands for itself");
}

#[test]
fn policy_limits_that_never_apply_beside_files_are_found() {
    let native = "limits:
  - {name: dead, descriptor: [a], domain: shop, bucket: 1/s, candidate: {bucket: 2/s}}
  - {name: alive, descriptor: [a], bucket: 1/s}
";
    let policy = Policy::parse(native).unwrap();
    let config = EnvoyConfig::read(&[file("domain: shop\n")], false).unwrap();
    let found = config.decided_alone(&policy);
    let found: Vec<_> =
        found.iter().map(|(limit, domain)| (limit.name(), &*domain.name, &*domain.file)).collect();
    assert_eq!(found, [("dead", "shop", "shop.yaml")]);
}
