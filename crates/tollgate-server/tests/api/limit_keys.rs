//! `/v1/limits/{name}/…`.

use serde_json::{Value, json};
use tollgate::Span;

use crate::support::{Subject, subject};

const POLICY: &str = "
plans: {default: free}
limits:
  - {name: api, by: user, windows: [2/second, 5/hour], plans: {pro: [20/second, 50/hour], gone: blocked, staff: unlimited},
     overrides: {eve: blocked, vip: [200/second, 500/hour]}}
  - {name: pair, by: [tenant, ip], bucket: 5/minute}
  - {name: all, by: global, bucket: 5/minute}
  - {name: seen, by: user, bucket: 1/minute, mode: shadow}
  - {name: asleep, by: user, bucket: 1/minute, mode: off}
  - {name: jobs, by: user, slots: 2}
";

fn left(response: &Value) -> Vec<u64> {
    response["limits"].as_array().unwrap().iter().map(|it| it["remaining"].as_u64().unwrap()).collect()
}

#[track_caller]
fn check(subject: &Subject, path: &str, body: &str, allowed: bool, expected: &[u64]) -> Value {
    let response = subject.ask(&format!("/v1/limits/{path}"), body);
    assert_eq!(
        (response["allowed"].as_bool().unwrap(), &*left(&response)),
        (allowed, expected),
        "{path} {body}: {response}"
    );
    response
}

#[test]
fn all_operations_apply_to_every_window() {
    let subject = subject(POLICY);
    let response = check(&subject, "api/check", r#"{"key":"ann"}"#, true, &[1, 4]);
    assert!(response["id"].is_string());
    assert_eq!(response["limit"], "api", "the name to ask by");
    let windows: Vec<_> =
        response["limits"].as_array().unwrap().iter().map(|it| (&it["name"], &it["window"])).collect();
    assert_eq!(windows, [(&json!("api"), &json!("1s")), (&json!("api"), &json!("1h"))]);
    check(&subject, "api/check", r#"{"key":["ann"]}"#, true, &[0, 3]);
    let refused = check(&subject, "api/check", r#"{"key":"ann"}"#, false, &[0, 3]);
    assert_eq!((&refused["retry_after_ms"], &refused["limit"]), (&json!(500), &json!("api")));
    let peeked = check(&subject, "api/peek", r#"{"key":"ann"}"#, false, &[0, 3]);
    assert!(peeked.get("id").is_none(), "nothing was decided");
    subject.advance(Span::from_secs(1));
    check(&subject, "api/peek", r#"{"key":"ann"}"#, true, &[2, 3]);
    check(&subject, "api/peek", r#"{"key":"ann","cost":3}"#, false, &[2, 3]);
    check(&subject, "api/grant", r#"{"key":"ann"}"#, true, &[2, 4]);
    check(&subject, "api/check", r#"{"key":"ann","cost":2}"#, true, &[0, 2]);
    check(&subject, "api/refund", r#"{"key":"ann","cost":2}"#, true, &[2, 4]);
    check(&subject, "api/check", r#"{"key":"ann","cost":2}"#, true, &[0, 2]);
    check(&subject, "api/reset", r#"{"key":"ann"}"#, true, &[2, 5]);
    check(&subject, "api/peek", r#"{"key":"bob"}"#, true, &[2, 5]);
}

#[test]
fn a_name_may_be_percent_encoded() {
    check(&subject(POLICY), "%61l%6C/check", "{}", true, &[4]);
}

#[test]
fn a_grant_returns_the_newest_charges_up_to_a_full_allowance() {
    for algorithm in ["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"] {
        for operation in ["refund", "grant"] {
            let burst = if algorithm == "gcra" { ", burst 10" } else { "" };
            let policy =
                format!("limits: [{{name: a, by: user, rate: '10/hour{burst}', algorithm: {algorithm}}}]");
            let subject = subject(&policy);
            let step = |word: &str, cost: u64, left: u64| {
                let body = format!(r#"{{"key":"ann","cost":{cost}}}"#);
                let response = subject.ask(&format!("/v1/limits/a/{word}"), &body);
                assert_eq!(response["limits"][0]["remaining"], left, "{algorithm} {word} {cost}: {response}");
                assert!(response.get("reason").is_none(), "{algorithm} {word} {cost}: {response}");
                assert_eq!(response["allowed"], true, "{algorithm} {word} {cost}: {response}");
            };
            step("check", 4, 6);
            subject.advance(Span::from_millis(1));
            step("check", 4, 2);
            subject.advance(Span::from_millis(1));
            step(operation, 5, 7);
            step(operation, 2, 9);
            step(operation, 99, 10);
            step("check", 10, 0);
        }
    }
}

#[test]
fn a_request_and_a_named_key_share_their_state() {
    let subject = subject(POLICY);
    check(&subject, "pair/check", r#"{"key":["acme","203.0.113.9"],"cost":3}"#, true, &[2]);
    let response =
        subject.ask("/v1/check", r#"{"path":"/","tenant":"acme","ip":"203.0.113.9","user":"ann"}"#);
    let pair = response["limits"].as_array().unwrap().iter().find(|it| it["name"] == "pair").unwrap();
    assert_eq!((&pair["remaining"], &pair["key"]), (&json!(1), &json!("acme, 203.0.113.9")));
}

#[test]
fn plans_and_overrides_have_their_own_quotas() {
    let subject = subject(POLICY);
    check(&subject, "api/check", r#"{"key":"ann","plan":"pro"}"#, true, &[19, 49]);
    check(&subject, "api/peek", r#"{"key":"ann","plan":"pro"}"#, true, &[19, 49]);
    check(&subject, "api/peek", r#"{"key":"ann"}"#, true, &[2, 5]);
    check(&subject, "api/check", r#"{"key":"vip"}"#, true, &[199, 499]);
    for operation in ["check", "peek", "grant", "reset", "refund"] {
        let response = check(&subject, &format!("api/{operation}"), r#"{"key":"eve"}"#, false, &[]);
        assert!(response["reason"].as_str().unwrap().contains("`overrides`"), "{response}");
        check(&subject, &format!("api/{operation}"), r#"{"key":"ann","plan":"gone"}"#, false, &[]);
        check(&subject, &format!("api/{operation}"), r#"{"key":"ann","plan":"staff"}"#, true, &[]);
    }
}

#[test]
fn a_check_follows_the_mode_and_a_peek_works_in_every_mode() {
    let subject = subject(POLICY);
    check(&subject, "seen/check", r#"{"key":"ann"}"#, true, &[0]);
    let response = check(&subject, "seen/check", r#"{"key":"ann"}"#, true, &[0]);
    assert_eq!(
        (&response["limits"][0]["allowed"], &response["limits"][0]["mode"]),
        (&json!(false), &json!("shadow"))
    );
    check(&subject, "asleep/check", r#"{"key":"ann"}"#, true, &[]);
    check(&subject, "asleep/peek", r#"{"key":"ann"}"#, true, &[1]);
}

#[test]
fn a_global_limit_needs_no_key() {
    let subject = subject(POLICY);
    check(&subject, "all/check", "{}", true, &[4]);
    check(&subject, "all/check", r#"{"key":null}"#, true, &[3]);
    let response = check(&subject, "all/check", r#"{"key":[]}"#, true, &[2]);
    assert_eq!(response["limits"][0]["window"], Value::Null, "there is one only");
}

#[test]
fn slots_can_be_acquired_read_and_reset_but_not_granted() {
    let subject = subject(POLICY);
    check(&subject, "jobs/check", r#"{"key":"ann"}"#, true, &[1]);
    check(&subject, "jobs/check", r#"{"key":"ann","cost":5}"#, true, &[0]);
    check(&subject, "jobs/check", r#"{"key":"ann"}"#, false, &[0]);
    check(&subject, "jobs/peek", r#"{"key":"ann"}"#, false, &[0]);
    for operation in ["grant", "refund"] {
        let answer = subject.post(&format!("/v1/limits/jobs/{operation}"), r#"{"key":"ann"}"#);
        assert_eq!(answer.status, 409);
        assert!(answer.problem().contains("/v1/release"), "{}", answer.text());
    }
    check(&subject, "jobs/reset", r#"{"key":"ann"}"#, true, &[2]);
}

#[track_caller]
fn check_wrong(path: &str, body: &str, status: u16, detail: &str) {
    let answer = subject(POLICY).post(&format!("/v1/limits/{path}"), body.to_owned());
    assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
    assert!(answer.problem().contains(detail), "{path} {body}: {}", answer.text());
}

#[test]
fn invalid_names_and_keys_get_a_helpful_error() {
    check_wrong("apj/check", r#"{"key":"ann"}"#, 404, "no limit is called `apj`; did you mean `api`?");
    check_wrong("qqqqqq/peek", r#"{"key":"ann"}"#, 404, "there are `api`, `pair`, `all`");
    check_wrong("api/check", "{}", 404, "counts by user: `key` must be a string");
    check_wrong("api/check", r#"{"key":""}"#, 404, "not empty");
    check_wrong("api/check", r#"{"key":["a","b"]}"#, 404, "counts by user");
    check_wrong(
        "pair/check",
        r#"{"key":"acme"}"#,
        404,
        "counts by tenant, ip: `key` must be a list of 2 strings",
    );
    check_wrong("pair/check", r#"{"key":["acme","nowhere"]}"#, 404, "an ip as an address");
    check_wrong("all/check", r#"{"key":["a","b"]}"#, 404, "leave out `key`");
    check_wrong("all/check", r#"{"key":"a"}"#, 404, "leave out `key`");
    check_wrong("a%2Fb%zz/peek", "{}", 404, "no limit is called `a/b%zz`");
    check_wrong("%ff/peek", "{}", 404, "no limit is called `%ff`");
    check_wrong("api/reset", r#"{"key":"ann","cost":1}"#, 400, "unknown field `cost`");
    check_wrong("api/check", r#"{"key":7}"#, 400, "a string, or a list");
    check_wrong(
        "api/check",
        r#"{"key":"ann","costs":1}"#,
        400,
        "did you mean `cost`? the fields are `key`, `cost` and `plan`",
    );
    check_wrong("api/drop", r#"{"key":"ann"}"#, 404, "nothing is here");
}
