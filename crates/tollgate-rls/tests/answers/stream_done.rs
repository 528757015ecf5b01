//! Calls at the end of a stream: costs that are reported late, and slots that are released.

use serde_json::{Value, json};
use tollgate::Policy;
use tollgate_rls::{Headers, RlsSettings};

use crate::support::{SHOULD_RATE_LIMIT, Service, encode, of_policy, with_settings};

const TOKENS: &str = "limits:
  - {name: tokens, descriptor: [user], by: \"descriptor:user\", rate: 100/minute, charge: afterwards}
  - {name: requests, descriptor: [user], by: \"descriptor:user\", bucket: 5/hour, expect: never-fires}";

const STREAMS: &str = "limits: [{name: streams, descriptor: [user, request_id], by: \"descriptor:user\", \
    slots: 2, owner: \"descriptor:request_id\"}]";

/// One call about the entries, with hits and their sign.
fn call(entries: &[(&str, &str)], hits: Option<i64>) -> Value {
    let entries: Vec<_> = entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    let mut descriptor = json!({"entries": entries});
    if let Some(hits) = hits {
        descriptor["hitsAddend"] = hits.unsigned_abs().into();
        descriptor["isNegativeHits"] = (hits < 0).into();
    }
    json!({"domain": "edge", "descriptors": [descriptor]})
}

fn remaining(service: &Service, request: &Value) -> u64 {
    service.ask(request)["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
}

#[test]
fn a_late_cost_puts_the_key_into_debt_and_is_answered_ok() {
    let service = of_policy(&TOKENS.replace("5/hour", "50/hour"));
    let ann = [("user", "ann")];
    assert_eq!(service.codes(&call(&ann, None)), "OK: OK", "a request costs no tokens");
    assert_eq!(service.codes(&call(&ann, Some(60))), "OVER_LIMIT: OVER_LIMIT", "60 requests do not fit");
    let service = of_policy(TOKENS.lines().take(2).collect::<Vec<_>>().join("\n").as_str());
    assert_eq!(remaining(&service, &call(&ann, Some(60))), 40);
    assert_eq!(service.codes(&call(&ann, None)), "OK: OK");
    assert_eq!(service.codes(&call(&ann, Some(90))), "OK: OK", "it has been spent");
    assert_eq!(service.codes(&call(&ann, None)), "OVER_LIMIT: OVER_LIMIT");
    assert_eq!(service.codes(&call(&ann, Some(0))), "OVER_LIMIT: OVER_LIMIT", "a look");
    assert_eq!(service.codes(&call(&[("user", "bob")], None)), "OK: OK");
    service.pass(30);
    assert_eq!(
        service.codes(&call(&ann, None)),
        "OVER_LIMIT: OVER_LIMIT",
        "the debt was 50, and is repaid now"
    );
    service.pass(1);
    assert_eq!(service.codes(&call(&ann, None)), "OK: OK");
}

#[test]
fn a_debt_is_at_most_one_allowance() {
    let service = of_policy(TOKENS.lines().take(2).collect::<Vec<_>>().join("\n").as_str());
    let ann = [("user", "ann")];
    for _ in 0..3 {
        assert_eq!(service.codes(&call(&ann, Some(i64::from(u32::MAX)))), "OK: OK");
    }
    service.pass(61);
    assert_eq!(service.codes(&call(&ann, None)), "OK: OK");
}

#[test]
fn a_request_that_finds_no_tokens_charges_no_other_limit() {
    let service = of_policy(TOKENS);
    let ann = [("user", "ann")];
    // Both limits cover the report; the limit on requests is charged one for the report itself.
    assert_eq!(service.codes(&call(&ann, Some(1))), "OK: OK");
    let late = |hits: u64| json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}], "hitsAddend": hits}]});
    assert_eq!(service.codes(&late(4)), "OK: OK");
    assert_eq!(service.codes(&call(&ann, None)), "OVER_LIMIT: OVER_LIMIT", "five requests were charged");
}

#[test]
fn a_late_cost_can_be_refunded() {
    let service = of_policy(TOKENS.lines().take(2).collect::<Vec<_>>().join("\n").as_str());
    let ann = [("user", "ann")];
    assert_eq!(remaining(&service, &call(&ann, Some(100))), 0);
    assert_eq!(remaining(&service, &call(&ann, Some(-30))), 30);
    assert_eq!(service.codes(&call(&ann, None)), "OK: OK");
}

fn stream(user: &'static str, id: &'static str, hits: Option<i64>) -> Value {
    call(&[("user", user), ("request_id", id)], hits)
}

#[test]
fn a_slot_is_held_from_the_start_of_a_stream_to_its_end() {
    let service = of_policy(STREAMS);
    assert_eq!(service.codes(&stream("ann", "1", None)), "OK: OK");
    assert_eq!(service.codes(&stream("ann", "2", Some(1))), "OK: OK");
    assert_eq!(service.codes(&stream("ann", "3", None)), "OVER_LIMIT: OVER_LIMIT");
    assert_eq!(service.codes(&stream("bob", "4", None)), "OK: OK");
    assert_eq!(service.codes(&stream("ann", "3", Some(-1))), "OK: OK", "the end of the refused one");
    assert_eq!(service.codes(&stream("ann", "5", None)), "OVER_LIMIT: OVER_LIMIT", "it held no slot");
    assert_eq!(service.codes(&stream("ann", "5", Some(0))), "OVER_LIMIT: OVER_LIMIT", "a look");
    assert_eq!(remaining(&service, &stream("ann", "1", Some(-1))), 1);
    assert_eq!(remaining(&service, &stream("ann", "1", Some(-1))), 1, "once");
    assert_eq!(service.codes(&stream("ann", "5", Some(0))), "OK: OK");
    assert_eq!(service.codes(&stream("ann", "5", None)), "OK: OK");
}

#[test]
fn a_stream_whose_end_is_not_reported_loses_its_slot_in_time() {
    let service = of_policy(STREAMS);
    for id in ["1", "2"] {
        assert_eq!(service.codes(&stream("ann", id, None)), "OK: OK");
    }
    service.pass(59);
    assert_eq!(service.codes(&stream("ann", "3", None)), "OVER_LIMIT: OVER_LIMIT");
    service.pass(1);
    assert_eq!(service.codes(&stream("ann", "3", None)), "OK: OK");
}

#[test]
fn without_an_owner_the_oldest_slot_is_released_and_the_count_stays_at_zero() {
    let service =
        of_policy("limits: [{name: streams, descriptor: [user], slots: 2, expect: slots-without-owner}]");
    let ann = [("user", "ann")];
    assert_eq!(remaining(&service, &call(&ann, Some(-1))), 2, "the count stays at zero");
    for code in ["OK: OK", "OK: OK", "OVER_LIMIT: OVER_LIMIT"] {
        assert_eq!(service.codes(&call(&ann, None)), code);
    }
    assert_eq!(remaining(&service, &call(&ann, Some(-1))), 1);
    assert_eq!(remaining(&service, &call(&ann, Some(-9))), 2);
    assert_eq!(remaining(&service, &call(&ann, Some(-1))), 2);
}

#[test]
fn a_port_without_refunds_releases_the_slot_of_a_named_owner_only() {
    let guarded = |text: &str| {
        let settings =
            RlsSettings { headers: Some(Headers::Off), refuse_refunds: true, ..RlsSettings::default() };
        with_settings(Policy::parse(text).unwrap(), settings)
    };
    let status = |service: &Service, request: &Value| {
        service.call(SHOULD_RATE_LIMIT, &encode("envoy.service.ratelimit.v3.RateLimitRequest", request)).0
    };
    let service = guarded(STREAMS);
    assert_eq!(service.codes(&stream("ann", "1", None)), "OK: OK");
    assert_eq!(remaining(&service, &stream("ann", "1", Some(-1))), 2);
    let service =
        guarded("limits: [{name: streams, descriptor: [user], slots: 2, expect: slots-without-owner}]");
    assert_eq!(status(&service, &call(&[("user", "ann")], Some(-1))), "7", "PERMISSION_DENIED");
}
