//! `/v1/settle` and `/v1/release`.

use tollgate::{Policy, Span};
use tollgate_server::KEPT_DECISIONS;

use crate::support::{Subject, subject};

const QUESTION: &str = r#"{"path":"/","cost":50}"#;

fn id(subject: &Subject, question: &str) -> String {
    subject.ask("/v1/check", question)["id"].as_str().unwrap().to_owned()
}

fn remaining(subject: &Subject) -> u64 {
    subject.ask("/v1/check", r#"{"path":"/","cost":0}"#)["limits"][0]["remaining"].as_u64().unwrap()
}

fn settle(subject: &Subject, id: &str, cost: u64) {
    let told = subject.ask("/v1/settle", &format!(r#"{{"id":"{id}","cost":{cost}}}"#));
    assert_eq!((told["id"].as_str(), told["cost"].as_u64()), (Some(id), Some(cost)));
}

#[test]
fn the_final_cost_is_the_one_told_last_however_often_it_is_told() {
    let subject = subject("limits: [{by: global, bucket: 100/hour}]");
    let id = id(&subject, QUESTION);
    for (cost, left) in [(20, 80), (20, 80), (90, 10), (90, 10), (0, 100), (50, 50)] {
        settle(&subject, &id, cost);
        assert_eq!(remaining(&subject), left, "after settling at {cost}");
    }
}

#[test]
fn a_decision_is_settled_under_the_numbers_that_count_by_then() {
    let subject = subject("limits: [{name: api, by: global, bucket: 100/hour}]");
    let id = id(&subject, QUESTION);
    subject.limiter.replace(Policy::parse("limits: [{name: api, by: global, bucket: 1000/hour}]").unwrap());
    assert_eq!(remaining(&subject), 950, "what was spent still counts");
    settle(&subject, &id, 20);
    assert_eq!(remaining(&subject), 980);
    subject.limiter.replace(Policy::parse("limits: [{name: other, by: global, bucket: 9/hour}]").unwrap());
    settle(&subject, &id, 7);
    assert_eq!(remaining(&subject), 9, "the limit is gone, and nothing else is charged");
}

#[test]
fn refused_and_unknown_decisions_cannot_be_settled() {
    let subject = subject("limits: [{by: global, bucket: 1/hour}]");
    let admitted = id(&subject, r#"{"path":"/"}"#);
    for unknown in [id(&subject, r#"{"path":"/"}"#), "0123456789abcdef".to_owned()] {
        for (path, body) in [
            ("/v1/settle", format!(r#"{{"id":"{unknown}","cost":1}}"#)),
            ("/v1/release", format!(r#"{{"id":"{unknown}"}}"#)),
        ] {
            let answer = subject.post(path, body);
            assert_eq!(answer.status, 404);
            assert!(answer.problem().contains(&format!("the last {KEPT_DECISIONS} decisions")));
        }
    }
    settle(&subject, &admitted, 1);
}

#[test]
fn the_oldest_decision_makes_room_and_no_other() {
    let subject = subject("limits: [{by: global, bucket: 1000000/hour}]");
    let first = id(&subject, r#"{"path":"/"}"#);
    let second = id(&subject, r#"{"path":"/"}"#);
    let batch = format!("{{\"requests\":[{}]}}", vec!["{\"path\":\"/\"}"; 1_000].join(","));
    let mut left = KEPT_DECISIONS - 1;
    while left > 0 {
        let some = left.min(1_000);
        if some == 1_000 {
            subject.ask("/v1/check/batch", &batch);
        } else {
            (0..some).for_each(|_| drop(subject.ask("/v1/check", r#"{"path":"/"}"#)));
        }
        left -= some;
    }
    assert_eq!(subject.post("/v1/settle", format!(r#"{{"id":"{first}","cost":1}}"#)).status, 404);
    settle(&subject, &second, 1);
}

#[test]
fn slots_are_held_until_release_or_settlement_or_the_end_of_their_lease() {
    let subject = subject("limits: [{by: global, slots: 1, ttl: 10s}]");
    let question = r#"{"path":"/"}"#;
    let allowed = || subject.ask("/v1/check", question)["allowed"] == true;
    let first = id(&subject, question);
    let refused = subject.ask("/v1/check", question);
    assert_eq!(
        (refused["allowed"].as_bool(), refused["retry_after_ms"].as_u64()),
        (Some(false), Some(1_000))
    );
    let released = subject.ask("/v1/release", &format!(r#"{{"id":"{first}"}}"#));
    assert_eq!(released["slots"], 1);
    let second = id(&subject, question);
    subject.ask("/v1/release", &format!(r#"{{"id":"{first}"}}"#));
    assert!(!allowed(), "releasing twice frees nobody else's slot");
    settle(&subject, &second, 0);
    assert!(allowed());
    assert!(!allowed());
    subject.advance(Span::from_secs(10));
    assert!(allowed());
}
