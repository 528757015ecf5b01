//! Domains of envoyproxy/ratelimit files: the behavior that its documentation describes.

use serde_json::{Value, json};

use tollgate::Policy;
use tollgate::policy::Mode;
use tollgate_rls::Headers;

use crate::support::{Service, applied, applied_to, of, of_file, of_policy};

const SHOP: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {name: per_user, unit: minute, requests_per_unit: 3}
  - key: banned
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: internal
    rate_limit: {unlimited: true}
  - key: beta
    shadow_mode: true
    metadata: {team: growth, weight: 2}
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: vip
    rate_limit: {unit: hour, requests_per_unit: 100, replaces: [{name: per_user}]}
  - key: path
    value: /v1/*
    share_threshold: true
    rate_limit: {unit: week, requests_per_unit: 2}
  - key: quota_a
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: quota_b
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 2}
";

fn one(key: &str, value: &str) -> Value {
    json!({"entries": [{"key": key, "value": value}]})
}

fn shop(descriptors: &[Value]) -> Value {
    json!({"domain": "shop", "descriptors": descriptors})
}

fn remaining(service: &Service, request: &Value) -> u64 {
    service.ask(request)["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
}

#[test]
fn a_status_has_the_numbers_of_the_file_and_ends_with_the_window() {
    let service = of_file(SHOP);
    assert_eq!(
        service.ask(&shop(&[one("user", "ann")])),
        json!({"overallCode": "OK", "statuses": [
            {"code": "OK", "limitRemaining": 2, "durationUntilReset": "30s",
             "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE", "name": "per_user"}},
        ]})
    );
    service.pass(29);
    assert_eq!(service.ask(&shop(&[one("user", "ann")]))["statuses"][0]["durationUntilReset"], "1s");
    service.pass(1);
    let response = service.ask(&shop(&[one("user", "ann")]));
    assert_eq!(
        (&response["statuses"][0]["durationUntilReset"], &response["statuses"][0]["limitRemaining"]),
        (&json!("60s"), &json!(2))
    );
}

#[test]
fn refused_hits_are_counted() {
    let service = of_file(SHOP);
    let with_hits =
        |hits: u32| json!({"domain": "shop", "descriptors": [one("user", "ann")], "hitsAddend": hits});
    assert_eq!(service.codes(&with_hits(2)), "OK: OK");
    assert_eq!(service.codes(&with_hits(5)), "OVER_LIMIT: OVER_LIMIT");
    assert_eq!(service.codes(&with_hits(1)), "OVER_LIMIT: OVER_LIMIT", "seven were counted by then");
    service.pass(30);
    assert_eq!(service.codes(&with_hits(3)), "OK: OK");
}

#[test]
fn zero_hits_peek_at_the_count() {
    let service = of_file(SHOP);
    let mut look = one("user", "ann");
    look["hitsAddend"] = 0.into();
    let look = shop(&[look]);
    assert_eq!((service.codes(&look), remaining(&service, &look)), ("OK: OK".to_owned(), 3));
    for _ in 0..3 {
        service.codes(&shop(&[one("user", "ann")]));
    }
    assert_eq!(service.codes(&look), "OK: OK", "three of three are not above three");
    service.codes(&shop(&[one("user", "ann")]));
    assert_eq!(service.codes(&look), "OVER_LIMIT: OVER_LIMIT");
}

#[test]
fn refunded_hits_lower_the_count() {
    let service = of_file(SHOP);
    assert_eq!(
        remaining(&service, &json!({"domain": "shop", "descriptors": [one("user", "a")], "hitsAddend": 3})),
        0
    );
    let mut back = one("user", "a");
    (back["hitsAddend"], back["isNegativeHits"]) = (2.into(), true.into());
    let response = service.ask(&shop(&[back]));
    assert_eq!(
        response["statuses"][0],
        json!({"code": "OK", "limitRemaining": 2, "durationUntilReset": "30s",
            "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE", "name": "per_user"}})
    );
    assert_eq!(remaining(&service, &shop(&[one("user", "a")])), 1);
}

#[test]
fn a_disabled_limit_is_not_reported() {
    let service = of(applied(SHOP).with_modes(|_| Mode::Off), None);
    let response = service.ask(&shop(&[one("user", "a")]));
    assert_eq!(response, json!({"overallCode": "OK", "statuses": [{"code": "OK"}]}));
}

#[test]
fn an_override_in_an_unknown_domain_counts_nothing() {
    let mut instead = one("user", "a");
    instead["limit"] = json!({"requestsPerUnit": 1, "unit": "DAY"});
    let ask = |service: &Service, domain: &str| {
        let request = json!({"domain": domain, "descriptors": [instead]});
        [service.codes(&request), service.codes(&request)]
    };
    let (passes, counts) = (["OK: OK", "OK: OK"], ["OK: OK", "OVER_LIMIT: OVER_LIMIT"]);
    let service = of_file(SHOP);
    assert_eq!(ask(&service, "nowhere"), passes);
    assert_eq!(ask(&service, "shop"), counts);
    // A limit of the policy covers this domain.
    let policy = Policy::parse("limits: [{domain: edge, descriptor: [x], bucket: 1/day}]").unwrap();
    let service = of(applied_to(policy, SHOP), Some(Headers::Off));
    assert_eq!(ask(&service, "nowhere"), passes);
    assert_eq!(ask(&service, "edge"), counts);
    // Without files, overrides count in every domain.
    assert_eq!(ask(&of_policy("limits: []"), "nowhere"), counts);
}

#[test]
fn every_descriptor_is_counted_even_if_another_is_over_its_limit() {
    let service = of_file(SHOP);
    let both = shop(&[one("banned", "x"), one("user", "ann")]);
    assert_eq!(service.codes(&both), "OVER_LIMIT: OVER_LIMIT OK");
    assert_eq!(remaining(&service, &shop(&[one("user", "ann")])), 1);
}

#[test]
fn limits_of_every_kind_match_envoyproxy_ratelimit() {
    let service = of_file(SHOP);
    assert_eq!(service.ask(&shop(&[one("nobody", "x")]))["statuses"], json!([{"code": "OK"}]));
    let unlimited = service.ask(&shop(&[one("internal", "x")]));
    assert_eq!(unlimited["statuses"], json!([{"code": "OK", "limitRemaining": 4_294_967_295_u32}]));
    let banned = service.ask(&shop(&[one("banned", "x")]));
    let limit = json!({"unit": "SECOND"});
    assert_eq!(
        banned["statuses"],
        json!([{"code": "OVER_LIMIT", "currentLimit": limit, "durationUntilReset": "1s"}])
    );
    // One counter for all matching values.
    assert_eq!(service.codes(&shop(&[one("path", "/v1/a")])), "OK: OK");
    assert_eq!(service.codes(&shop(&[one("path", "/v1/b")])), "OK: OK");
    assert_eq!(service.codes(&shop(&[one("path", "/v1/c")])), "OVER_LIMIT: OVER_LIMIT");
}

#[test]
fn shadow_mode_reports_ok_with_nothing_left() {
    let service = of_file(SHOP);
    let beta = shop(&[one("beta", "x")]);
    assert_eq!(service.codes(&beta), "OK: OK");
    for _ in 0..3 {
        let response = service.ask(&beta);
        assert_eq!(
            (&response["overallCode"], response["statuses"][0].get("limitRemaining")),
            (&json!("OK"), None)
        );
    }
}

#[test]
fn a_limit_that_another_replaces_is_not_counted() {
    let service = of_file(SHOP);
    let response = service.ask(&shop(&[one("user", "ann"), one("vip", "ann")]));
    assert_eq!(response["statuses"][0], json!({"code": "OK"}));
    assert_eq!(response["statuses"][1]["limitRemaining"], 99);
    assert_eq!(remaining(&service, &shop(&[one("user", "ann")])), 2);
}

#[test]
fn limits_in_quota_mode_refuse_only_together() {
    let service = of_file(SHOP);
    let both = shop(&[one("quota_a", "x"), one("quota_b", "x")]);
    assert_eq!(service.codes(&both), "OK: OK OK");
    assert_eq!(service.codes(&both), "OK: OVER_LIMIT OK");
    assert_eq!(service.codes(&both), "OVER_LIMIT: OVER_LIMIT OVER_LIMIT");
    assert_eq!(service.codes(&shop(&[one("quota_a", "x"), one("user", "ann")])), "OVER_LIMIT: OVER_LIMIT OK");
}

#[test]
fn an_override_continues_the_count_of_its_unit() {
    let service = of_file(SHOP);
    for _ in 0..3 {
        service.codes(&shop(&[one("user", "ann")]));
    }
    let with = |requests: u32, unit: &str| {
        let mut descriptor = one("user", "ann");
        descriptor["limit"] = json!({"requestsPerUnit": requests, "unit": unit});
        shop(&[descriptor])
    };
    let response = service.ask(&with(10, "MINUTE"));
    assert_eq!(response["statuses"][0]["currentLimit"], json!({"requestsPerUnit": 10, "unit": "MINUTE"}));
    assert_eq!(response["statuses"][0]["limitRemaining"], 6);
    assert_eq!(remaining(&service, &with(10, "HOUR")), 9, "another unit is another counter");
    assert_eq!(service.codes(&with(1, "HOUR")), "OVER_LIMIT: OVER_LIMIT");
    // Without a configured limit; refused hits count there too.
    let mut unknown = one("nobody", "x");
    unknown["limit"] = json!({"requestsPerUnit": 1, "unit": "YEAR"});
    unknown["hitsAddend"] = 2.into();
    let unknown = shop(&[unknown]);
    assert_eq!(service.codes(&unknown), "OVER_LIMIT: OVER_LIMIT");
    let mut look = unknown;
    look["descriptors"][0]["hitsAddend"] = 0.into();
    assert_eq!(service.codes(&look), "OVER_LIMIT: OVER_LIMIT");
}

#[test]
fn metadata_of_limits_with_room_is_returned() {
    let service = of_file(SHOP);
    assert_eq!(service.ask(&shop(&[one("user", "ann")])).get("dynamicMetadata"), None);
    let response = service.ask(&shop(&[one("beta", "x")]));
    assert_eq!(
        response["dynamicMetadata"],
        json!({"domain": "shop", "descriptors": [{"entries": ["beta=x"]}],
               "metadata": {"team": "growth", "weight": 2.0}})
    );
}

#[test]
fn only_refusals_have_headers_and_a_body() {
    let service = of(applied(SHOP), None);
    assert_eq!(service.ask(&shop(&[one("user", "ann")])).get("responseHeadersToAdd"), None);
    let response = service.ask(&shop(&[one("banned", "x")]));
    let headers = response["responseHeadersToAdd"].as_array().unwrap();
    let named =
        |name: &str| headers.iter().find(|it| it["key"] == name).map(|it| it["value"].as_str().unwrap());
    assert_eq!(named("content-type"), Some("application/problem+json"));
    assert_eq!(named("cache-control"), Some("no-store"));
    assert_eq!(named("tollgate-decision").map(str::len), Some(16));
    assert_eq!(named("x-ratelimit-limit"), None);
}
