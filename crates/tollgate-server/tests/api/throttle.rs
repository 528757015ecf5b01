//! Compatibility routes of other limiters: `/throttle`, `/json`.

use serde_json::json;
use tollgate::Span;
use tollgate_server::Access;

use crate::support::{subject, watched};

const NONE: &str = "limits: []";

fn question(quantity: i64) -> String {
    json!({"key": "user:1", "max_burst": 3, "count_per_period": 30, "period": 60, "quantity": quantity})
        .to_string()
}

#[test]
fn throttle_responds_like_throttlecrab() {
    let subject = subject(NONE);
    for (quantity, advance, expected) in [
        (1, 0, json!({"allowed": true, "limit": 3, "remaining": 2, "reset_after": 2, "retry_after": 0})),
        (2, 0, json!({"allowed": true, "limit": 3, "remaining": 0, "reset_after": 6, "retry_after": 0})),
        (1, 0, json!({"allowed": false, "limit": 3, "remaining": 0, "reset_after": 6, "retry_after": 2})),
        (1, 1_100, json!({"allowed": false, "limit": 3, "remaining": 0, "reset_after": 4, "retry_after": 0})),
        (0, 900, json!({"allowed": true, "limit": 3, "remaining": 1, "reset_after": 4, "retry_after": 0})),
        (1, 0, json!({"allowed": true, "limit": 3, "remaining": 0, "reset_after": 6, "retry_after": 0})),
    ] {
        subject.advance(Span::from_millis(advance));
        assert_eq!(subject.ask("/throttle", &question(quantity)), expected, "{quantity} after {advance}");
    }
    let more = r#"{"key":"new","max_burst":3,"count_per_period":30,"period":60,"quantity":5}"#;
    let response = subject.ask("/throttle", more);
    assert_eq!((&response["allowed"], &response["remaining"]), (&json!(false), &json!(3)));
}

#[test]
fn an_idle_key_may_spend_at_most_its_burst() {
    let subject = subject(NONE);
    subject.ask("/throttle", &question(1));
    subject.advance(Span::from_secs(600));
    let allowed = (0..9).filter(|_| subject.ask("/throttle", &question(1))["allowed"] == true).count();
    assert_eq!(allowed, 3);
}

#[test]
fn invalid_numbers_are_named_in_the_error() {
    let subject = subject(NONE);
    for (body, status, said) in [
        (r#"{"key":"a","max_burst":0,"count_per_period":1,"period":1}"#, 422, "`max_burst`"),
        (r#"{"key":"a","max_burst":1,"count_per_period":-1,"period":1}"#, 400, "a whole number from 0"),
        (r#"{"key":"a","max_burst":1,"count_per_period":1,"period":0}"#, 422, "`period`"),
        (
            r#"{"key":"a","max_burst":1,"count_per_period":1,"period":1,"quantity":-1}"#,
            400,
            "a whole number from 0",
        ),
        (
            r#"{"key":"a","max_burst":9223372036854775807,"count_per_period":1,"period":9223372036854775807}"#,
            422,
            "",
        ),
        (r#"{"key":"a","count_per_period":1,"period":1}"#, 400, "max_burst"),
        (r#"{"key":1,"max_burst":1,"count_per_period":1,"period":1}"#, 400, "a string"),
        ("[]", 400, "`key`"),
        ("", 400, "the body is empty"),
    ] {
        let answer = subject.post("/throttle", body.to_owned());
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.problem().contains(said), "{body}: {}", answer.text());
        let response = answer.json();
        assert_eq!(response["error"], response["detail"], "{body}: where throttlecrab's clients look");
    }
    let unknown = r#"{"key":"a","max_burst":1,"count_per_period":1,"period":1,"timestamp":5}"#;
    assert_eq!(subject.ask("/throttle", unknown)["allowed"], true, "throttlecrab ignores it too");
}

#[test]
fn health_responds_like_throttlecrab() {
    let answer = subject(NONE).get("/health");
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "OK"));
}

#[test]
fn json_needs_a_handler() {
    assert_eq!(subject(NONE).post("/json", "{}").status, 404);
    let (subject, _) = watched(NONE, Access::open());
    let answer = subject.post("/json", r#"{"domain":"x"}"#);
    assert_eq!((answer.status.as_u16(), answer.text()), (400, r#"{"domain":"x"}"#));
    assert_eq!(answer.headers["content-type"], "application/json");
}
