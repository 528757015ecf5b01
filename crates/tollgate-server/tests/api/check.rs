//! `/v1/check` and its batch.

use serde_json::{Value, json};
use tollgate::Span;

use crate::support::subject;

const POLICY: &str = "
limits:
  - {name: search, endpoint: /search, by: ip, bucket: 2/minute}
  - {name: shadowed, endpoint: /search, by: global, bucket: 1/minute, mode: shadow}
allow: [{user: root}]
deny: [{ip: 192.0.2.0/24}]
";

#[test]
fn a_response_has_every_documented_member() {
    let subject = subject(POLICY);
    let response = subject.ask("/v1/check", r#"{"method":"GET","path":"/search?q=x","ip":"203.0.113.9"}"#);
    let id = response["id"].as_str().unwrap();
    assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(
        response,
        json!({
            "id": id, "allowed": true, "limit": "search", "retry_after_ms": null, "wait_ms": 0,
            "degraded": false, "priority": null, "soft": [],
            "limits": [
                {"name": "search", "window": null, "key": "203.0.113.9", "algorithm": "token-bucket", "allowed": true,
                 "mode": "enforce", "limit": 2, "remaining": 1, "retry_after_ms": null, "reset_after_ms": 30_000},
                {"name": "shadowed", "window": null, "key": "everyone", "algorithm": "token-bucket", "allowed": true,
                 "mode": "shadow", "limit": 1, "remaining": 0, "retry_after_ms": null, "reset_after_ms": 60_000},
            ],
        })
    );
}

#[test]
fn a_refusal_is_200_and_its_waits_are_rounded_up() {
    let subject = subject(POLICY);
    let question = r#"{"path":"/search","ip":"203.0.113.9"}"#;
    subject.ask("/v1/check", question);
    subject.ask("/v1/check", question);
    subject.advance(Span::from_micros(1));
    let response = subject.ask("/v1/check", question);
    assert_eq!((&response["allowed"], &response["limit"]), (&json!(false), &json!("search")), "{response}");
    assert_eq!(response["retry_after_ms"], 30_000, "29 999.999 ms");
    assert_eq!(response["limits"][0]["retry_after_ms"], 30_000);
    assert_eq!(response["limits"][0]["reset_after_ms"], 60_000);
    subject.advance(Span::from_millis(30_000));
    assert_eq!(subject.ask("/v1/check", question)["allowed"], true);
}

#[track_caller]
fn check(policy: &str, question: &str, member: &str, expected: &Value) {
    let response = subject(policy).ask("/v1/check", question);
    assert_eq!(response.pointer(member).unwrap_or(&Value::Null), expected, "{question}: {response}");
}

#[test]
fn an_uncounted_decision_has_a_reason_that_quotes_no_list() {
    check(
        POLICY,
        r#"{"path":"/","user":"root"}"#,
        "/reason",
        &json!("allow-listed in line 5 of the policy: no limit applies"),
    );
    check(
        POLICY,
        r#"{"path":"/","ip":"192.0.2.1"}"#,
        "/reason",
        &json!("deny-listed in line 6 of the policy"),
    );
    check(POLICY, r#"{"path":"/","ip":"192.0.2.1"}"#, "/allowed", &json!(false));
    let blocking = "limits: [{name: b, by: user, missing: refuse, bucket: 1/s, overrides: {eve: blocked}}]";
    check(
        blocking,
        r#"{"path":"/","user":"eve"}"#,
        "/reason",
        &json!("blocked: `overrides` of limit `b` closes it to this key"),
    );
    check(
        blocking,
        r#"{"path":"/"}"#,
        "/reason",
        &json!("blocked: limit `b` counts by `user`, which this request does not have"),
    );
    check(blocking, r#"{"path":"/"}"#, "/limit", &json!("b"));
    check(
        "limits: [{by: global, bucket: 5/s}]",
        r#"{"path":"/","cost":6}"#,
        "/reason",
        &json!("it costs more than this limit ever holds: waiting does not help"),
    );
}

#[test]
fn every_field_reaches_the_policy() {
    let by = |by: &str| format!("limits: [{{by: '{by}', bucket: 5/s, plans: {{pro: 50/s}}}}]");
    let key = "/limits/0/key";
    check(&by("user"), r#"{"path":"/","user":"ann"}"#, key, &json!("ann"));
    check(&by("tenant"), r#"{"path":"/","tenant":"acme"}"#, key, &json!("acme"));
    check(&by("api_key"), r#"{"path":"/","api_key":"sk-live-51"}"#, key, &json!("sk-l…"));
    check(&by("query:q"), r#"{"path":"/?q=x"}"#, key, &json!("x"));
    check(&by("claim:org"), r#"{"path":"/","claims":{"org":"acme"}}"#, key, &json!("acme"));
    check(&by("header:x-device"), r#"{"path":"/","headers":{"X-Device":"tv"}}"#, key, &json!("tv"));
    check(&by("user"), r#"{"path":"/","headers":{"X-User-Id":"a\u006en"}}"#, key, &json!("ann"));
    check(&by("ip"), r#"{"path":"/","ip":"::ffff:203.0.113.9"}"#, key, &json!("203.0.113.9"));
    check(
        &by("ip"),
        r#"{"path":"/","ip":null,"user":null,"headers":null,"cost":null}"#,
        key,
        &json!("unknown client"),
    );
    check(&by("global"), r#"{"path":"/","plan":"pro"}"#, "/limits/0/limit", &json!(50));
    check(&by("global"), r#"{"path":"/","cost":3}"#, "/limits/0/remaining", &json!(2));
    check(&by("global"), r#"{"path":"/","cost":0}"#, "/limits/0/remaining", &json!(5));
    let on_host = "limits: [{host: api.test, method: POST, by: global, bucket: 5/s}]";
    check(
        on_host,
        r#"{"path":"/","host":"api.test:80","method":"POST"}"#,
        "/limit",
        &json!("post-api.test-everything-by-global"),
    );
    check(on_host, r#"{"path":"/","host":"other.test","method":"POST"}"#, "/limit", &Value::Null);
    check(on_host, r#"{"path":"/","host":"api.test"}"#, "/limit", &Value::Null);
}

#[test]
fn keys_are_shown_as_privacy_says() {
    let policy = |how: &str| format!("privacy: {{keys: {how}}}\nlimits: [{{by: user, bucket: 5/s}}]");
    let shown = |how| {
        let response = subject(&policy(how)).ask("/v1/check", r#"{"path":"/","user":"annabel"}"#);
        response["limits"][0]["key"].as_str().unwrap().to_owned()
    };
    assert_eq!(shown("plain"), "annabel");
    assert_eq!(shown("truncated"), "anna…");
    assert!(shown("hashed").starts_with("hash:") && !shown("hashed").contains("ann"));
}

#[test]
fn requests_of_a_batch_are_decided_in_order_and_independently() {
    let subject = subject("limits: [{name: one, by: user, bucket: 1/minute}]");
    let response = subject.ask(
        "/v1/check/batch",
        r#"{"requests":[{"path":"/","user":"ann"},{"path":"/","user":"ann"},{"path":"/","user":"bob"}]}"#,
    );
    let allowed: Vec<_> =
        response["decisions"].as_array().unwrap().iter().map(|it| it["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, false, true]);
    assert_eq!(subject.ask("/v1/check/batch", r#"{"requests":[]}"#), json!({"decisions": []}));
}

#[test]
fn a_batch_with_a_mistake_charges_nothing() {
    let subject = subject("limits: [{by: global, bucket: 2/minute}]");
    let wrong = subject.post("/v1/check/batch", r#"{"requests":[{"path":"/"},{"path":"/","ip":"x"}]}"#);
    assert_eq!(wrong.status, 422);
    assert!(wrong.problem().starts_with("`requests[1]`: `ip` is not an address"), "{}", wrong.text());
    assert_eq!(subject.ask("/v1/check", r#"{"path":"/"}"#)["limits"][0]["remaining"], 1);
}

#[test]
fn a_batch_is_bounded() {
    let subject = subject("limits: [{by: global, bucket: 5000/minute}]");
    let batch = |count: usize| format!("{{\"requests\":[{}]}}", vec!["{\"path\":\"/\"}"; count].join(","));
    assert_eq!(subject.ask("/v1/check/batch", &batch(1_000))["decisions"].as_array().unwrap().len(), 1_000);
    let answer = subject.post("/v1/check/batch", batch(1_001));
    assert_eq!(answer.status, 422);
    assert!(answer.problem().contains("at most 1000"), "{}", answer.text());
}

#[test]
fn headers_and_claims_with_several_values_identify_no_caller() {
    let keys = [
        r#"{"X-API-Key":["a","b"]}"#,
        r#"{"X-API-Key":"a","x-api-key":"b"}"#,
        r#"{"X-API-Key":"a","X-API-Key":"b","Authorization":"Bearer fresh"}"#,
    ];
    for headers in keys {
        let subject = subject("limits: [{name: keys, by: api_key, missing: skip, bucket: 1/hour}]");
        let body = format!(r#"{{"path":"/","ip":"203.0.113.9","headers":{headers}}}"#);
        let response = subject.ask("/v1/check", &body);
        assert_eq!(response["limits"][0]["key"], "client 203.0.113.9", "{headers}");
        assert_eq!(subject.ask("/v1/check", &body)["allowed"], false);
    }
    let subject = subject("limits: [{name: orgs, by: 'claim:org', bucket: 1/hour}]");
    let response = subject.ask("/v1/check", r#"{"path":"/","ip":"203.0.113.9","claims":{"org":["a","b"]}}"#);
    assert_eq!(response["limits"][0]["key"], "client 203.0.113.9");
}

#[test]
fn a_refusal_of_ambiguous_credentials_has_a_reason() {
    let policy = "identify: {ambiguous: refuse}\nlimits: [{name: keys, by: api_key, bucket: 9/hour}]";
    let response = subject(policy).ask("/v1/check", r#"{"path":"/","headers":{"X-API-Key":["a","b"]}}"#);
    assert_eq!((&response["allowed"], &response["limit"]), (&json!(false), &json!("keys")));
    assert!(response["reason"].as_str().unwrap().contains("several different values"), "{response}");
}
