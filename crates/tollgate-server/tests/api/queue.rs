//! Limits with a queue: `wait_ms`, and callers that leave.

use serde_json::{Value, json};
use tollgate::Span;

use crate::support::{Subject, subject};

const POLICY: &str = "
limits:
  - {name: reports, endpoint: /reports, by: user, algorithm: leaky-queue, rate: 300/minute, queue: {length: 2}}
";
const QUESTION: &str = r#"{"path":"/reports","user":"ann"}"#;

fn waits(subject: &Subject, count: usize) -> Vec<Value> {
    (0..count).map(|_| subject.ask("/v1/check", QUESTION)["wait_ms"].clone()).collect()
}

fn leave(subject: &Subject, id: &Value) {
    let answer = subject.ask("/v1/settle", &json!({"id": id, "cost": 0}).to_string());
    assert_eq!(answer["cost"], 0, "{answer}");
}

#[test]
fn an_admitted_request_of_a_queue_has_a_wait_and_a_refused_one_a_time_to_return() {
    let subject = subject(POLICY);
    assert_eq!(waits(&subject, 2), [0, 200]);
    subject.advance(Span::from_micros(1));
    let last = subject.ask("/v1/check", QUESTION);
    assert_eq!((&last["allowed"], &last["wait_ms"]), (&json!(true), &json!(400)), "399.999 ms: {last}");
    assert_eq!(
        (&last["retry_after_ms"], &last["limits"][0]["algorithm"]),
        (&json!(null), &json!("leaky-queue"))
    );
    let refused = subject.ask("/v1/check", QUESTION);
    assert_eq!((&refused["allowed"], &refused["wait_ms"]), (&json!(false), &json!(0)), "{refused}");
    assert_eq!(refused["retry_after_ms"], 200);
}

#[test]
fn each_request_of_a_batch_has_its_own_wait() {
    let subject = subject(POLICY);
    let query = format!(r#"{{"requests":[{QUESTION},{QUESTION},{{"path":"/free"}},{QUESTION},{QUESTION}]}}"#);
    let answer = subject.ask("/v1/check/batch", &query);
    let found = answer["decisions"].as_array().unwrap().iter();
    let found: Vec<_> =
        found.map(|it| (it["allowed"].as_bool().unwrap(), it["wait_ms"].as_u64().unwrap())).collect();
    assert_eq!(found, [(true, 0), (true, 200), (true, 0), (true, 400), (false, 0)]);
}

#[test]
fn a_peek_has_the_wait_of_the_next_request() {
    let subject = subject(POLICY);
    for (peeked, taken) in [(0, 0), (200, 200), (400, 400)] {
        let answer = subject.ask("/v1/limits/reports/peek", r#"{"key":"ann"}"#);
        assert_eq!((&answer["allowed"], &answer["wait_ms"]), (&json!(true), &json!(peeked)), "{answer}");
        let answer = subject.ask("/v1/limits/reports/check", r#"{"key":"ann"}"#);
        assert_eq!(answer["wait_ms"], taken, "{answer}");
    }
    let answer = subject.ask("/v1/limits/reports/peek", r#"{"key":"ann"}"#);
    assert_eq!((&answer["allowed"], &answer["wait_ms"]), (&json!(false), &json!(0)), "{answer}");
}

#[test]
fn a_queue_in_shadow_mode_has_no_wait() {
    let subject = subject(&POLICY.replace("by: user", "by: user, mode: shadow"));
    assert_eq!(waits(&subject, 4), [0, 0, 0, 0]);
    assert_eq!(subject.ask("/v1/limits/reports/peek", r#"{"key":"ann"}"#)["wait_ms"], 0);
}

#[test]
fn a_caller_that_leaves_gives_its_place_to_the_next_one() {
    let subject = subject(POLICY);
    assert_eq!(waits(&subject, 2), [0, 200]);
    let last = subject.ask("/v1/check", QUESTION);
    assert_eq!(subject.ask("/v1/check", QUESTION)["allowed"], false);
    leave(&subject, &last["id"]);
    leave(&subject, &last["id"]);
    assert_eq!(waits(&subject, 1), [400]);
    assert_eq!(subject.ask("/v1/check", QUESTION)["allowed"], false, "one place was given back, not two");
    subject.ask("/v1/limits/reports/refund", r#"{"key":"ann"}"#);
    assert_eq!(waits(&subject, 1), [400]);
}

#[test]
fn a_caller_leaves_the_queue_also_if_another_limit_settles() {
    let policy = format!(
        "{POLICY}  - {{name: tokens, by: global, bucket: 1000/hour, cost: {{reserve: 100, settle: 'json:usage.total'}}}}"
    );
    let subject = subject(&policy);
    assert_eq!(waits(&subject, 1), [0]);
    let waiting = subject.ask("/v1/check", QUESTION);
    leave(&subject, &waiting["id"]);
    let second = subject.ask("/v1/check", QUESTION);
    assert_eq!(
        (&second["wait_ms"], &second["limits"][1]["remaining"]),
        (&json!(200), &json!(800)),
        "{second}"
    );
    // Once it has started, a cost of nothing is the cost of the tokens, and the place stays taken.
    subject.advance(Span::from_millis(200));
    leave(&subject, &second["id"]);
    let third = subject.ask("/v1/check", QUESTION);
    assert_eq!((&third["wait_ms"], &third["limits"][1]["remaining"]), (&json!(200), &json!(800)), "{third}");
}
