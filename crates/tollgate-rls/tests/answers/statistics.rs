//! Statistics of limits of Envoy files: names, counts and bounds.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate::Policy;

use crate::support::{Service, applied, of_file, of_policy};

const SHOP: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: beta
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: path
    value: /v1/*
    share_threshold: true
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: guide
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: hall
    value_to_metric: true
    descriptors:
      - key: visitor
        rate_limit: {unit: minute, requests_per_unit: 2}
  - key: internal
    rate_limit: {unlimited: true}
";

fn ask(service: &Service, domain: &str, entries: &[(&str, &str)], hits: u64) {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    service.ask(&json!({"domain": domain, "descriptors": [{"entries": entries}], "hitsAddend": hits}));
}

fn metrics(service: &Service) -> String {
    let mut out = String::new();
    service.rls.metrics(&mut out);
    out
}

/// Returns the within, near, over and shadow hits of a statistic; `None` if it does not exist.
fn hits(service: &Service, domain: &str, limit: &str) -> Option<[u64; 4]> {
    let page = metrics(service);
    let count = |result: &str| -> Option<u64> {
        let labels = format!("{{domain=\"{domain}\",limit=\"{limit}\",result=\"{result}\"}} ");
        let mut lines = page.lines().filter_map(|line| line.strip_prefix("tollgate_rls_limit_hits_total"));
        lines.find_map(|line| line.strip_prefix(&labels))?.parse().ok()
    };
    Some([count("within")?, count("near")?, count("over")?, count("shadow")?])
}

fn not_found(service: &Service) -> u64 {
    let page = metrics(service);
    let line = page.lines().find_map(|line| line.strip_prefix("tollgate_rls_domain_not_found_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn hits_are_within_near_or_over_as_envoyproxy_ratelimit_counts_them() {
    let service = of_file(SHOP);
    assert_eq!(hits(&service, "shop", "shop.user"), Some([0; 4]), "zero before the first request");
    for (spent, expected) in [
        (8, [8, 0, 0, 0]),
        (1, [9, 1, 0, 0]),
        (1, [10, 2, 0, 0]),
        (1, [10, 2, 1, 0]),
        (3, [10, 2, 4, 0]),
        // Without an addend, one hit is counted.
        (0, [10, 2, 5, 0]),
    ] {
        ask(&service, "shop", &[("user", "ann")], spent);
        assert_eq!(hits(&service, "shop", "shop.user"), Some(expected), "after {spent} more");
    }
    ask(&service, "shop", &[("user", "bob")], 9);
    assert_eq!(hits(&service, "shop", "shop.user"), Some([19, 3, 5, 0]), "one of nine is near the end");
    assert!(!metrics(&service).contains("ann"));
}

#[test]
fn hits_admitted_by_shadow_mode_are_over_and_shadow() {
    let service = of_file(SHOP);
    for _ in 0..3 {
        ask(&service, "shop", &[("beta", "x")], 1);
    }
    assert_eq!(hits(&service, "shop", "shop.beta"), Some([1, 1, 2, 2]));
}

#[test]
fn values_are_distinguished_if_the_file_asks_for_it() {
    let service = of_file(SHOP);
    for (entries, name) in [
        (&[("guide", "tom")][..], "shop.guide_tom"),
        (&[("guide", "a\"b\\c\n\u{1b}[2J")], "shop.guide_a\\\"b\\\\c\u{fffd}\u{fffd}[2J"),
        (&[("hall", "a"), ("visitor", "ann")], "shop.hall_a.visitor"),
        (&[("path", "/v1/x")], "shop.path_/v1/*"),
    ] {
        ask(&service, "shop", entries, 1);
        assert_eq!(hits(&service, "shop", name), Some([1, 0, 0, 0]), "{name}: {}", metrics(&service));
    }
    ask(&service, "shop", &[("internal", "x")], 1);
    assert!(!metrics(&service).contains("shop.internal"), "what is not counted has no count");
}

#[test]
fn names_are_bounded_in_number_and_in_length() {
    let service = of_file(SHOP);
    ask(&service, "shop", &[("guide", &"x".repeat(1_000))], 1);
    assert_eq!(hits(&service, "_other", "_other"), Some([1, 0, 0, 0]));
    for number in 0..1_100 {
        ask(&service, "shop", &[("guide", &number.to_string())], 1);
    }
    let page = metrics(&service);
    let series = page.lines().filter(|line| line.contains("result=\"within\"")).count();
    assert_eq!(series, 1_001);
    // Three statistics come from the file.
    assert_eq!(hits(&service, "_other", "_other"), Some([1 + 1_100 - 997, 0, 0, 0]));
    ask(&service, "shop", &[("user", "ann")], 1);
    assert_eq!(hits(&service, "shop", "shop.user"), Some([1, 0, 0, 0]), "it had its place before");
}

#[test]
fn a_file_with_more_limits_than_statistics_is_counted_in_full() {
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    for number in 0..1_010 {
        let limit = "rate_limit: {unit: day, requests_per_unit: 9}";
        writeln!(text, "  - {{key: k, value: v{number}, {limit}}}").unwrap();
    }
    let service = of_file(&text);
    for number in 0..1_010 {
        ask(&service, "shop", &[("k", &format!("v{number}"))], 1);
    }
    assert_eq!(hits(&service, "shop", "shop.k_v999"), Some([1, 0, 0, 0]));
    assert_eq!(hits(&service, "_other", "_other"), Some([10, 0, 0, 0]));
}

#[test]
fn counts_survive_a_reload_and_end_with_their_domain() {
    let service = of_file(SHOP);
    ask(&service, "shop", &[("user", "ann")], 2);
    ask(&service, "shop", &[("guide", "tom")], 1);
    service.rls.limiter().replace(applied(&SHOP.replace("requests_per_unit: 10", "requests_per_unit: 20")));
    ask(&service, "shop", &[("user", "ann")], 1);
    assert_eq!(hits(&service, "shop", "shop.user"), Some([3, 0, 0, 0]));
    assert_eq!(hits(&service, "shop", "shop.guide_tom"), Some([1, 0, 0, 0]));
    service.rls.limiter().replace(applied(&SHOP.replace("domain: shop", "domain: house")));
    assert_eq!(hits(&service, "shop", "shop.user"), None);
    assert_eq!(hits(&service, "house", "house.user"), Some([0; 4]));
}

#[test]
fn an_override_counts_for_the_limit_that_it_replaces() {
    let service = of_file(SHOP);
    let entries = json!([{"key": "user", "value": "ann"}]);
    let limit = json!({"requestsPerUnit": 1, "unit": "MINUTE"});
    let request = json!({"domain": "shop", "descriptors": [{"entries": entries, "limit": limit}]});
    assert_eq!(service.codes(&request), "OK: OK");
    assert_eq!(service.codes(&request), "OVER_LIMIT: OVER_LIMIT");
    assert_eq!(hits(&service, "shop", "shop.user"), Some([1, 1, 1, 0]));
}

#[test]
fn unknown_domains_are_counted_without_their_names() {
    let service = of_file(SHOP);
    for domain in ["shop", "tollgate", "nowhere", "elsewhere"] {
        ask(&service, domain, &[("user", "ann")], 1);
    }
    assert_eq!(not_found(&service), 2);
    assert!(!metrics(&service).contains("nowhere"));

    let service = of_policy("limits: [{name: a, domain: edge, descriptor: [user], bucket: 9/minute}]");
    for domain in ["edge", "shop"] {
        ask(&service, domain, &[("user", "ann")], 1);
    }
    assert_eq!(not_found(&service), 1);
    service
        .rls
        .limiter()
        .replace(Policy::parse("limits: [{name: a, descriptor: [user], bucket: 9/minute}]").unwrap());
    ask(&service, "shop", &[("user", "ann")], 1);
    assert_eq!(not_found(&service), 1, "a limit without domain is about all of them");
}
