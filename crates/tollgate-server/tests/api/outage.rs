//! What is answered while the store gives no answer.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::store::{Answer, Check, ManualClock};
use tollgate::{Adjustment, MemoryStore, Outcome, Rule, Store, StoreError, Timestamp};
use tollgate_server::Access;

use crate::support::{Subject, on_store};

/// A store that gives no answer.
struct Gone;

impl Store for Gone {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Failed("gone".into()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Failed("gone".into()))
    }
}

/// A store that gives no answer to the first adjustment.
struct Stumbling(MemoryStore<ManualClock>, AtomicBool);

impl Store for Stumbling {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.0.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        if self.1.swap(false, Ordering::Relaxed) {
            return Err(StoreError::Failed("gone".into()));
        }
        self.0.adjust(rule, key, adjustment).await
    }
}

#[test]
fn what_could_not_be_settled_can_be_settled_again() {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let store = Stumbling(MemoryStore::with_seed(1_000, clock.clone(), 7), AtomicBool::new(true));
    let subject = on_store("limits: [{name: a, by: global, bucket: 100/hour}]", Access::open(), store, clock);
    let told = subject.ask("/v1/check", r#"{"path":"/","cost":50}"#);
    let settle = |cost: u64| format!(r#"{{"id":{},"cost":{cost}}}"#, told["id"]);
    assert_eq!(subject.post("/v1/settle", settle(20)).status, 503);
    subject.ask("/v1/settle", &settle(30));
    assert_eq!(subject.ask("/v1/limits/a/peek", "{}")["limits"][0]["remaining"], 70);
}

const POLICY: &str = "
limits:
  - {name: open, endpoint: /open, by: global, bucket: 1/s, on_outage: allow}
  - {name: closed, endpoint: /closed, by: global, bucket: 1/s, on_outage: deny}
  - {name: blocking, endpoint: /blocked, by: user, missing: refuse, bucket: 1/s}
";

fn subject() -> Subject<Gone> {
    on_store(POLICY, Access::open(), Gone, ManualClock::at(Timestamp::EPOCH))
}

#[track_caller]
fn check(path: &str, body: &str, allowed: bool, limit: Option<&str>) {
    let told = subject().ask(path, body);
    assert_eq!((told["allowed"].as_bool(), told["limit"].as_str()), (Some(allowed), limit), "{told}");
    assert_eq!(told["degraded"], true, "{told}");
    assert!(told["reason"].is_string(), "{told}");
    assert_eq!(told["limits"].as_array().map(Vec::len), Some(0));
}

#[test]
fn each_limit_decides_as_its_on_outage_says() {
    check("/v1/check", r#"{"path":"/open"}"#, true, None);
    check("/v1/check", r#"{"path":"/closed"}"#, false, Some("closed"));
    check("/v1/limits/open/check", "{}", true, None);
    check("/v1/limits/closed/check", "{}", false, Some("closed"));
    let told = subject().ask("/v1/check", r#"{"path":"/closed"}"#);
    assert_eq!(told["retry_after_ms"], 1_000);
    let told = subject().ask("/v1/check", r#"{"path":"/blocked"}"#);
    assert_eq!(
        (&told["allowed"], &told["limit"]),
        (&false.into(), &"blocking".into()),
        "no store is needed for that"
    );
}

#[test]
fn what_cannot_be_done_without_a_store_is_not_pretended() {
    for operation in ["peek", "grant", "reset", "refund"] {
        let answer = subject().post(&format!("/v1/limits/open/{operation}"), "{}");
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("1")), "{operation}");
        answer.problem();
    }
}

#[test]
fn forward_auth_passes_or_refuses_as_the_gateway_does() {
    let auth = |path: &str| {
        let request = http::Request::get("/v1/auth").header("x-original-uri", path);
        subject().send(request.body(http_body_util::Full::default()).unwrap())
    };
    assert_eq!(auth("/open").status, 200);
    let refused = auth("/closed");
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    refused.problem();
    assert_eq!(auth("/blocked").status, 403);
}
