//! Responses while the store does not answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tollgate::store::{Answer, Check, ManualClock};
use tollgate::{Adjustment, Clock as _, MemoryStore, Outcome, Rule, Span, Store, StoreError, Timestamp};
use tollgate_server::Access;

use crate::support::{Subject, on_store};

/// A store that does not answer.
pub(crate) struct UnreachableStore;

impl Store for UnreachableStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Failed("gone".into()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Failed("gone".into()))
    }
}

/// A store that fails the first adjustment with this error.
struct FailOnceStore(MemoryStore<ManualClock>, Mutex<Option<StoreError>>);

impl Store for FailOnceStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.0.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        if let Some(error) = self.1.lock().unwrap().take() {
            return Err(error);
        }
        self.0.adjust(rule, key, adjustment).await
    }
}

/// Settles a charge of 50 at `cost` twice and then at another cost, with a store that fails first.
/// Returns the two answers and the remaining units after the store is back.
fn settle_twice(error: StoreError, cost: u64) -> [(u16, String); 2] {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let store = FailOnceStore(MemoryStore::with_seed(1_000, clock.clone(), 7), Mutex::new(Some(error)));
    let subject = on_store("limits: [{name: a, by: global, bucket: 100/hour}]", Access::open(), store, clock);
    let response = subject.ask("/v1/check", r#"{"path":"/","cost":50}"#);
    let settle = |cost: u64| {
        let answer = subject.post("/v1/settle", format!(r#"{{"id":{},"cost":{cost}}}"#, response["id"]));
        (answer.status.as_u16(), answer.text().to_owned())
    };
    let answers = [settle(cost), settle(cost)];
    assert_eq!(settle(cost + 1).0, 409, "the first cost is final");
    pollster::block_on(subject.limiter.load().reconcile());
    let left = subject.ask("/v1/limits/a/peek", "{}")["limits"][0]["remaining"].as_u64();
    let refused = answers[1].0 == 200 && answers[0].1.contains("do not repeat");
    assert_eq!(left, Some(if refused { 50 } else { 100 - cost }), "{answers:?}");
    answers
}

#[test]
fn a_settlement_that_the_store_does_not_confirm_is_kept_and_counted_once() {
    for cost in [20, 70] {
        let refused = settle_twice(StoreError::Refused("full".into()), cost);
        assert_eq!((refused[0].0, refused[1].0), (200, 200), "{refused:?}");
    }
    let in_doubt = settle_twice(StoreError::Failed("gone".into()), 70);
    assert_eq!((in_doubt[0].0, in_doubt[1].0), (200, 200), "{in_doubt:?}");
}

#[test]
fn a_refund_in_doubt_that_the_store_does_not_recognize_is_not_repeated() {
    let in_doubt = settle_twice(StoreError::Failed("gone".into()), 20);
    assert_eq!((in_doubt[0].0, in_doubt[1].0), (503, 200), "{in_doubt:?}");
    assert!(in_doubt[0].1.contains("the decision stays settled at this cost"), "{in_doubt:?}");
}

#[test]
fn a_settlement_that_cannot_be_kept_may_be_sent_again() {
    let foreign = settle_twice(StoreError::Foreign("tg1:x".into()), 20);
    assert_eq!((foreign[0].0, foreign[1].0), (409, 200), "{foreign:?}");
}

#[test]
fn a_refund_by_name_is_kept_until_the_store_answers() {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let refused = Mutex::new(Some(StoreError::Refused("full".into())));
    let store = FailOnceStore(MemoryStore::with_seed(1_000, clock.clone(), 7), refused);
    let subject = on_store("limits: [{name: a, by: global, bucket: 100/hour}]", Access::open(), store, clock);
    subject.ask("/v1/check", r#"{"path":"/","cost":50}"#);
    let response = subject.ask("/v1/limits/a/refund", r#"{"cost":20}"#);
    assert_eq!((&response["degraded"], &response["limits"]), (&true.into(), &json!([])), "{response}");
    assert!(response["reason"].as_str().unwrap().contains("do not repeat it"), "{response}");
    pollster::block_on(subject.limiter.load().reconcile());
    assert_eq!(subject.ask("/v1/limits/a/peek", "{}")["limits"][0]["remaining"], 70);
}

const POLICY: &str = "
limits:
  - {name: open, endpoint: /open, by: global, bucket: 1/s, on_outage: allow}
  - {name: closed, endpoint: /closed, by: global, bucket: 1/s, on_outage: deny}
  - {name: blocking, endpoint: /blocked, by: user, missing: refuse, bucket: 1/s}
  - {name: counted, endpoint: /counted, by: global, bucket: 10/minute}
";

fn subject() -> Subject<UnreachableStore> {
    on_store(POLICY, Access::open(), UnreachableStore, ManualClock::at(Timestamp::from_secs(1_772_366_400)))
}

#[track_caller]
fn check(path: &str, body: &str, allowed: bool, limit: Option<&str>) {
    let response = subject().ask(path, body);
    assert_eq!(
        (response["allowed"].as_bool(), response["limit"].as_str()),
        (Some(allowed), limit),
        "{response}"
    );
    assert_eq!(response["degraded"], true, "{response}");
    assert!(response["reason"].is_string(), "{response}");
    assert_eq!(response["limits"].as_array().map(Vec::len), Some(0));
}

#[test]
fn each_limit_decides_as_its_on_outage_says() {
    check("/v1/check", r#"{"path":"/open"}"#, true, None);
    check("/v1/check", r#"{"path":"/closed"}"#, false, Some("closed"));
    check("/v1/limits/open/check", "{}", true, None);
    check("/v1/limits/closed/check", "{}", false, Some("closed"));
    let response = subject().ask("/v1/check", r#"{"path":"/closed"}"#);
    assert_eq!(response["retry_after_ms"], 1_000);
    let response = subject().ask("/v1/check", r#"{"path":"/blocked"}"#);
    assert_eq!(
        (&response["allowed"], &response["limit"]),
        (&false.into(), &"blocking".into()),
        "this decision needs no store"
    );
    assert_eq!(response["degraded"], false, "so it is not degraded");
}

#[test]
fn a_local_decision_has_the_numbers_of_the_nodes_share() {
    let subject = subject();
    for (remaining, allowed) in [(1, true), (0, true), (0, false)] {
        let response = subject.ask("/v1/check", r#"{"path":"/counted"}"#);
        assert_eq!(
            (&response["allowed"], &response["degraded"]),
            (&allowed.into(), &true.into()),
            "{response}"
        );
        assert_eq!(response["limit"], "counted");
        assert!(response["reason"].as_str().unwrap().contains("on this node alone"), "{response}");
        let counted = &response["limits"][0];
        assert_eq!((&counted["limit"], &counted["remaining"]), (&2.into(), &remaining.into()), "{response}");
        assert_eq!(response["retry_after_ms"], if allowed { serde_json::Value::Null } else { 30_000.into() });
    }
    let response = subject.ask("/v1/limits/counted/check", "{}");
    assert_eq!((&response["allowed"], &response["degraded"]), (&false.into(), &true.into()), "{response}");
}

#[test]
fn a_degraded_decision_is_settled_and_released_locally() {
    let policy = "limits: [{name: a, by: global, bucket: 100/day}, {name: b, by: global, slots: 5},
                           {name: c, by: global, bucket: 100/day, on_outage: allow}]";
    let subject = on_store(policy, Access::open(), RefusingStore, ManualClock::at(Timestamp::EPOCH));
    let check = || subject.ask("/v1/check", r#"{"path":"/","cost":10}"#);
    let response = check();
    assert_eq!(
        (&response["allowed"], &response["limits"][0]["remaining"]),
        (&true.into(), &10.into()),
        "{response}"
    );
    assert_eq!(check()["allowed"], false, "the slot is taken");
    let id = &response["id"];
    let released = subject.ask("/v1/release", &format!(r#"{{"id":{id}}}"#));
    assert_eq!(released["slots"], 1);
    let again = check();
    assert_eq!((&again["allowed"], &again["limits"][0]["remaining"]), (&true.into(), &0.into()), "{again}");
    for _ in 0..2 {
        let settled = subject.ask("/v1/settle", &format!(r#"{{"id":{id},"cost":3}}"#));
        assert_eq!(settled["cost"], 3);
    }
    let looked = subject.ask("/v1/check", r#"{"path":"/","cost":0}"#);
    assert_eq!(looked["limits"][0]["remaining"], 7, "{looked}");
}

#[test]
fn readiness_and_metrics_report_an_outage_and_the_node_stays_ready() {
    let subject = subject();
    subject.status.loaded(Timestamp::from_secs(1_772_366_400));
    assert_eq!(subject.get("/readyz").json()["store"]["address"], serde_json::Value::Null);
    subject.status.stored_at("redis://h:6379");
    for path in ["/open", "/open", "/closed", "/counted", "/counted", "/counted"] {
        subject.ask("/v1/check", &format!(r#"{{"path":"{path}"}}"#));
    }
    let ready = subject.get("/readyz");
    assert_eq!(ready.status, 200, "otherwise an outage of the store would take down all nodes");
    let store = &ready.json()["store"];
    assert_eq!((&store["state"], &store["error"]), (&"degraded".into(), &"the store failed: gone".into()));
    assert_eq!(store["address"], "redis://h:6379");
    assert!(store["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{store}");
    assert_eq!((&store["failures"], &store["degraded_decisions"]), (&5.into(), &6.into()), "{store}");
    let metrics = subject.get("/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "tollgate_store_up 0",
        "tollgate_store_breaker_open 1",
        "tollgate_store_failures_total 5",
        "tollgate_breaker_opened_total 1",
        "tollgate_degraded_decisions_total{rule=\"local\"} 3",
        "tollgate_degraded_decisions_total{rule=\"allow\"} 2",
        "tollgate_degraded_decisions_total{rule=\"deny\"} 1",
    ] {
        assert!(metrics.text().lines().any(|it| it == line), "{line} in\n{}", metrics.text());
    }
}

/// A store that rejects every command without executing it.
struct RefusingStore;

impl Store for RefusingStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Refused("full".into()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Refused("full".into()))
    }
}

/// A store that can be switched off and on.
struct ToggledStore(MemoryStore<ManualClock>, Arc<AtomicBool>);

impl Store for ToggledStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        if self.1.load(Ordering::Relaxed) {
            return Err(StoreError::Failed("gone".into()));
        }
        self.0.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.0.adjust(rule, key, adjustment).await
    }
}

#[test]
fn the_overview_lists_past_outages_and_the_current_one() {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let gone = Arc::new(AtomicBool::new(false));
    let store = ToggledStore(MemoryStore::with_seed(1_000, clock.clone(), 7), Arc::clone(&gone));
    let policy = "limits: [{name: a, by: global, bucket: 1000/second}]";
    let subject = on_store(policy, Access::open(), store, clock);
    let pass = |is_gone: bool| {
        gone.store(is_gone, Ordering::Relaxed);
        subject.advance(Span::from_secs(10));
        subject.ask("/v1/check", r#"{"path":"/"}"#);
        subject.api.tick(subject.clock.now());
        subject.get("/v1/overview").json()["store"].clone()
    };
    assert_eq!(pass(false)["outages"], json!([]));
    let response = pass(true);
    assert_eq!(
        (&response["state"], &response["breaker"]),
        (&json!("degraded"), &json!("closed")),
        "{response}"
    );
    assert_eq!(response["outages"], json!([{"from": "2026-03-01T12:00:20Z", "to": null}]));
    pass(true);
    let over = json!({"from": "2026-03-01T12:00:20Z", "to": "2026-03-01T12:00:40Z"});
    assert_eq!(pass(false)["outages"], json!([over]));
    assert_eq!(pass(true)["outages"], json!([over, {"from": "2026-03-01T12:00:50Z", "to": null}]));
    for _ in 0..30 {
        pass(false);
        pass(true);
    }
    assert_eq!(pass(false)["outages"].as_array().map(Vec::len), Some(20), "the last twenty");
}

#[test]
fn operations_that_need_the_store_fail_during_an_outage() {
    for operation in ["peek", "grant", "reset", "refund"] {
        let answer = subject().post(&format!("/v1/limits/open/{operation}"), "{}");
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("1")), "{operation}");
        answer.problem();
    }
}

/// A store that holds foreign data.
struct ForeignDataStore;

impl Store for ForeignDataStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Foreign("tg1:{48}:9f86:u*".to_owned()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Foreign("tg1:{48}:9f86:u*".to_owned()))
    }
}

#[test]
fn foreign_data_is_a_permanent_error() {
    let subject = on_store(
        POLICY,
        Access::open(),
        ForeignDataStore,
        ManualClock::at(Timestamp::from_secs(1_772_366_400)),
    );
    for operation in ["peek", "grant", "reset", "refund"] {
        let answer = subject.post(&format!("/v1/limits/open/{operation}"), "{}");
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (409, None), "{operation}");
        let detail = answer.problem();
        assert!(detail.contains("`tg1:{48}:9f86:u*`") && detail.contains("removed by hand"), "{detail}");
        assert!(!detail.contains("try again"), "{detail}");
    }
}

#[test]
fn forward_auth_passes_or_refuses_as_the_gateway_does() {
    let auth = |path: &str| {
        let request = http::Request::get("/v1/auth").header("x-original-uri", path);
        subject().send(request.body(http_body_util::Full::default()).unwrap())
    };
    let passed = auth("/open");
    assert_eq!((passed.status.as_u16(), passed.header("tollgate-degraded")), (200, Some("allow")));
    assert_eq!(auth("/counted").header("tollgate-degraded"), Some("local"));
    assert_eq!(auth("/uncounted").header("tollgate-degraded"), None);
    let refused = auth("/closed");
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    assert_eq!(
        (refused.header("tollgate-degraded"), &refused.json()["degraded"]),
        (Some("deny"), &true.into())
    );
    refused.problem();
    let blocked = auth("/blocked");
    assert_eq!((blocked.status.as_u16(), blocked.header("tollgate-degraded")), (403, None));
}
