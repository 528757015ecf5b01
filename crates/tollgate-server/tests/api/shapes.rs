//! The server writes the shapes of `tollgate_api`, member by member and in their order.

use http::Request;
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate_api::{
    BatchDecision, Changes, Decision, Decisions, Explanation, Fleet, Limits, Modes, Overview, Policy,
    Problem, Readiness, Refusal, Released, Renewed, Settled, Stats, Switched, SwitchedLimit, Throttled, Top,
};
use tollgate_server::Access;

use crate::support::{Answer, watched};

const POLICY: &str = "
limits:
  - name: api
    by: api_key
    missing: ip
    windows: [2/second, 5/minute]
    soft: 50%
    plans: {pro: [3/second, 9/minute]}
    candidate: {windows: [1/second, 4/minute]}
";

/// Fails unless a response, read as its shape and written again, is the same text.
#[track_caller]
fn check<T: Serialize + DeserializeOwned>(answer: &Answer) {
    let shape: T = serde_json::from_slice(&answer.body).unwrap_or_else(|it| panic!("{it}: {answer:?}"));
    assert_eq!(serde_json::to_string(&shape).unwrap(), answer.text());
}

#[test]
fn a_response_is_the_text_of_its_shape() {
    let (subject, _) = watched(POLICY, Access::open());
    let body = r#"{"path":"/\"x\"","api_key":"sk-live-0123456789","plan":"pro","host":"h"}"#;
    let (mut id, mut refused) = (String::new(), String::new());
    for _ in 0..12 {
        let answer = subject.post("/v1/check", body);
        check::<Decision>(&answer);
        let decision: Decision = serde_json::from_slice(&answer.body).unwrap();
        *(if decision.allowed { &mut id } else { &mut refused }) = decision.id.unwrap();
    }
    check::<BatchDecision>(&subject.post("/v1/check/batch", r#"{"requests":[]}"#));
    let batch = format!(r#"{{"requests":[{body},{{"path":"/","ip":"203.0.113.9"}}]}}"#);
    check::<BatchDecision>(&subject.post("/v1/check/batch", batch));
    check::<Decision>(&subject.post("/v1/limits/api/peek", r#"{"key":"sk-live-0123456789"}"#));
    check::<Settled>(&subject.post("/v1/settle", format!(r#"{{"id":"{id}","cost":2}}"#)));
    check::<Renewed>(&subject.post("/v1/renew", format!(r#"{{"id":"{id}"}}"#)));
    check::<Released>(&subject.post("/v1/release", format!(r#"{{"id":"{id}"}}"#)));
    let throttle = r#"{"key":"a","max_burst":2,"count_per_period":1,"period":60,"quantity":5}"#;
    check::<Throttled>(&subject.post("/throttle", throttle));
    check::<Problem>(&subject.post("/throttle", "{}"));
    check::<Problem>(&subject.get("/nowhere"));
    check::<Readiness>(&subject.get("/readyz"));
    check::<Explanation>(&subject.get(&format!("/v1/decisions/{refused}")));
    check::<Explanation>(&subject.post("/v1/explain", body));
    check::<SwitchedLimit>(&subject.put("/v1/limits/api/mode", r#"{"mode":"shadow"}"#));
    check::<Switched>(&subject.put("/v1/mode", r#"{"mode":"enforce","reason":"r","by":"ann"}"#));
    check::<Modes>(&subject.get("/v1/mode"));
    check::<Changes>(&subject.get("/v1/changes"));
    check::<Overview>(&subject.get("/v1/overview"));
    check::<Fleet>(&subject.get("/v1/fleet"));
    check::<Stats>(&subject.get("/v1/stats?limit=api&limit=api.candidate"));
    check::<Top>(&subject.get("/v1/top"));
    check::<Decisions>(&subject.get("/v1/decisions"));
    check::<Limits>(&subject.get("/v1/limits"));
    check::<Policy>(&subject.get("/v1/policy"));
}

/// The body of a refusal is written without serde (`tollgate_http`).
#[test]
fn a_refusal_is_the_text_of_its_shape() {
    let policy = "
deny: [{ip: 192.0.2.0/24}]
limits: [{name: 'a', by: ip, windows: [1/minute, 1/hour]}]
";
    for peer in [[203, 0, 113, 9], [192, 0, 2, 1]] {
        let (subject, _) = watched(policy, Access::open());
        let ask = || {
            let request = Request::get("/v1/auth").header("X-Original-URI", "/");
            subject.send_from(request.body(Full::default()).unwrap(), peer.into())
        };
        let answers = [ask(), ask()];
        assert_eq!(answers[1].text().contains("retry_after_ms"), peer[0] == 203, "{answers:?}");
        check::<Refusal>(&answers[1]);
    }
}
