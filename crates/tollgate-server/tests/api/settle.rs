//! `/v1/settle`, `/v1/release` and `/v1/renew`.

use tollgate::{Policy, Span};
use tollgate_server::MAX_RECEIPTS;

use crate::support::{Subject, subject};

const QUESTION: &str = r#"{"path":"/","cost":50}"#;

fn id(subject: &Subject, question: &str) -> String {
    subject.ask("/v1/check", question)["id"].as_str().unwrap().to_owned()
}

fn remaining(subject: &Subject) -> u64 {
    subject.ask("/v1/check", r#"{"path":"/","cost":0}"#)["limits"][0]["remaining"].as_u64().unwrap()
}

fn settle(subject: &Subject, id: &str, cost: u64) {
    let response = subject.ask("/v1/settle", &format!(r#"{{"id":"{id}","cost":{cost}}}"#));
    assert_eq!((response["id"].as_str(), response["cost"].as_u64()), (Some(id), Some(cost)));
}

/// Every algorithm that counts units, with an allowance of 100.
const ALGORITHMS: [&str; 5] = ["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"];

fn on(algorithm: &str) -> Subject {
    // Without a burst, gcra admits one at a time.
    let burst = if algorithm == "gcra" { ", burst 100" } else { "" };
    subject(&format!("limits: [{{by: global, rate: '100/hour{burst}', algorithm: {algorithm}}}]"))
}

#[test]
fn the_first_cost_is_final_and_the_same_again_changes_nothing() {
    for algorithm in ALGORITHMS {
        for (cost, left) in [(20, 80), (90, 10), (0, 100), (50, 50), (130, 0)] {
            let subject = on(algorithm);
            let id = id(&subject, QUESTION);
            let response = || {
                settle(&subject, &id, cost);
                remaining(&subject)
            };
            assert_eq!((response(), response()), (left, left), "{algorithm}, settled at {cost}");
            let answer = subject.post("/v1/settle", format!(r#"{{"id":"{id}","cost":{}}}"#, cost + 1));
            assert_eq!(answer.status, 409, "{}", answer.text());
            assert!(answer.problem().contains(&format!("already settled as {cost}")), "{}", answer.text());
            assert_eq!(remaining(&subject), left, "{algorithm}, rejected at {}", cost + 1);
        }
    }
}

#[test]
fn of_concurrent_settlements_exactly_one_is_the_first() {
    let subject = &subject("limits: [{by: global, bucket: 100/hour}]");
    for _ in 0..50 {
        let id = &id(subject, r#"{"path":"/","cost":10}"#);
        let settled: Vec<u64> = std::thread::scope(|scope| {
            let asks: Vec<_> = (0..8)
                .map(|cost| {
                    let body = format!(r#"{{"id":"{id}","cost":{cost}}}"#);
                    scope.spawn(move || (cost, subject.post("/v1/settle", body).status.as_u16()))
                })
                .collect();
            let response = asks.into_iter().map(|ask| ask.join().unwrap());
            response.filter(|(_, status)| *status == 200).map(|(cost, _)| cost).collect()
        });
        assert_eq!(settled.len(), 1, "{settled:?}");
        assert_eq!(remaining(subject), 100 - settled[0]);
        subject.ask("/v1/limits/everything-by-global/reset", "{}");
    }
}

#[test]
fn a_decision_is_settled_under_the_current_quota() {
    let subject = subject("limits: [{name: api, by: global, bucket: 100/hour}]");
    let id = id(&subject, QUESTION);
    subject.limiter.replace(Policy::parse("limits: [{name: api, by: global, bucket: 1000/hour}]").unwrap());
    assert_eq!(remaining(&subject), 950, "earlier usage still counts");
    settle(&subject, &id, 20);
    assert_eq!(remaining(&subject), 980);
    let id = self::id(&subject, QUESTION);
    subject.limiter.replace(Policy::parse("limits: [{name: other, by: global, bucket: 9/hour}]").unwrap());
    settle(&subject, &id, 7);
    assert_eq!(remaining(&subject), 9, "the limit is gone, and nothing else is charged");
}

#[test]
fn a_final_cost_applies_to_limits_that_settle() {
    let subject = subject(
        "limits:
           - {name: tokens, by: global, bucket: 1000/hour, cost: {reserve: 100, settle: 'json:usage.total'}}
           - {name: requests, by: global, bucket: 100/hour}",
    );
    let id = id(&subject, r#"{"path":"/"}"#);
    assert_eq!(remaining(&subject), 900);
    settle(&subject, &id, 250);
    let limits = subject.ask("/v1/check", r#"{"path":"/","cost":0}"#)["limits"].clone();
    assert_eq!((&limits[0]["remaining"], &limits[1]["remaining"]), (&750.into(), &99.into()));
}

#[test]
fn refused_and_unknown_decisions_cannot_be_settled() {
    let subject = subject("limits: [{by: global, bucket: 1/hour}]");
    let admitted = id(&subject, r#"{"path":"/"}"#);
    for unknown in [id(&subject, r#"{"path":"/"}"#), "0123456789abcdef".to_owned()] {
        for (path, body, word) in [
            ("/v1/settle", format!(r#"{{"id":"{unknown}","cost":1}}"#), "settle"),
            ("/v1/release", format!(r#"{{"id":"{unknown}"}}"#), "release"),
            ("/v1/renew", format!(r#"{{"id":"{unknown}"}}"#), "renew"),
        ] {
            let answer = subject.post(path, body);
            assert_eq!(answer.status, 404);
            let said = answer.problem();
            assert!(said.contains(&format!("the last {MAX_RECEIPTS} decisions")), "{said}");
            assert!(said.contains(&format!("nothing to {word} under")), "{said}");
        }
    }
    settle(&subject, &admitted, 1);
}

#[test]
fn only_the_oldest_receipt_is_evicted() {
    let subject = subject("limits: [{by: global, bucket: 1000000/hour}]");
    let first = id(&subject, r#"{"path":"/"}"#);
    let second = id(&subject, r#"{"path":"/"}"#);
    let batch = format!("{{\"requests\":[{}]}}", vec!["{\"path\":\"/\"}"; 1_000].join(","));
    let mut left = MAX_RECEIPTS - 1;
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
fn a_renewal_starts_the_lease_again_and_never_takes_a_slot() {
    let subject = subject("limits: [{by: global, slots: 1, ttl: 10s}]");
    let question = r#"{"path":"/"}"#;
    let first = id(&subject, question);
    let renew = |id: &str| subject.ask("/v1/renew", &format!(r#"{{"id":"{id}"}}"#))["slots"].clone();
    for _ in 0..3 {
        subject.advance(Span::from_secs(9));
        assert_eq!(renew(&first), 1);
        assert_eq!(subject.ask("/v1/check", question)["allowed"], false);
    }
    subject.advance(Span::from_secs(10));
    assert_eq!(renew(&first), 0, "the lease has ended");
    let second = id(&subject, question);
    assert_eq!((renew(&first), renew(&second)), (0.into(), 1.into()));
    subject.ask("/v1/release", &format!(r#"{{"id":"{second}"}}"#));
    assert_eq!(renew(&second), 0, "it was released");
    assert_eq!(subject.ask("/v1/check", question)["allowed"], true);
}

#[test]
fn a_slot_is_renewed_and_released_after_any_number_of_other_decisions() {
    let subject = subject(
        "limits: [{endpoint: /run, by: global, slots: 1}, {endpoint: /, by: global, bucket: 1000000/hour}]",
    );
    let slot = id(&subject, r#"{"path":"/run"}"#);
    let batch = format!("{{\"requests\":[{}]}}", vec!["{\"path\":\"/\"}"; 1_000].join(","));
    for _ in 0..=MAX_RECEIPTS / 1_000 {
        subject.ask("/v1/check/batch", &batch);
    }
    assert_eq!(subject.ask("/v1/renew", &format!(r#"{{"id":"{slot}"}}"#))["slots"], 1);
    assert_eq!(subject.ask("/v1/release", &format!(r#"{{"id":"{slot}"}}"#))["slots"], 1);
    assert_eq!(subject.ask("/v1/check", r#"{"path":"/run"}"#)["allowed"], true);
}

#[test]
fn a_check_does_not_wait_for_a_slot_and_a_refusal_names_its_wait() {
    let subject = subject("limits: [{by: global, slots: 1, queue: {length: 5, wait: 10s}}]");
    let question = r#"{"path":"/"}"#;
    let first = id(&subject, question);
    let refused = subject.ask("/v1/check", question);
    assert_eq!((&refused["allowed"], &refused["wait_ms"]), (&false.into(), &0.into()));
    assert_eq!(refused["retry_after_ms"], 1_000);
    subject.ask("/v1/release", &format!(r#"{{"id":"{first}"}}"#));
    assert_eq!(subject.ask("/v1/check", question)["allowed"], true);
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
    assert_eq!(refused["limits"][0]["retry_after_ms"], 1_000, "one refusal has one wait");
    let released = subject.ask("/v1/release", &format!(r#"{{"id":"{first}"}}"#));
    assert_eq!(released["slots"], 1);
    let second = id(&subject, question);
    subject.ask("/v1/release", &format!(r#"{{"id":"{first}"}}"#));
    assert!(!allowed(), "releasing twice does not free another slot");
    settle(&subject, &second, 0);
    assert!(allowed());
    assert!(!allowed());
    subject.advance(Span::from_secs(10));
    assert!(allowed());
}
