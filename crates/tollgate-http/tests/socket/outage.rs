//! Responses while the store does not answer.

use super::support::{START, ServedService, layer, parse};
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Limiter, ManualClock, OutageSettings, Outcome, Rule, Store, StoreError, Timestamp,
};

struct Down;

impl Store for Down {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Refused("down".into()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Refused("down".into()))
    }
}

/// Serves with a limiter on the given failing store, with a manual clock.
async fn served_on(policy: &str, store: impl Store) -> ServedService {
    let clock = ManualClock::at(Timestamp::from_secs(START));
    let limiter = Limiter::with_store(parse(policy), store);
    ServedService::hello(layer(limiter.with_outage_on(&OutageSettings::default(), clock))).await
}

async fn served(policy: &str) -> ServedService {
    served_on(policy, Down).await
}

#[tokio::test]
async fn each_limit_applies_its_own_fallback() {
    let served = served(
        "limits:
          - {endpoint: /open, by: ip, bucket: 1/minute, on_outage: allow}
          - {endpoint: /watched, by: ip, bucket: 1/minute, on_outage: deny, mode: shadow}
          - {name: login, endpoint: /login, by: ip, windows: [1/minute, 5/hour], on_outage: deny}",
    )
    .await;
    for (path, degraded) in
        [("/open", "allow"), ("/open", "allow"), ("/watched", "allow"), ("/unlimited", "absent")]
    {
        let answer = served.get(path, &[]).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, "absent"), "{path}");
        assert_eq!(answer.header("tollgate-degraded"), degraded, "{path}");
    }
    assert_eq!(served.calls(), 4);
    let answer = served.get("/login", &[]).await;
    assert_eq!((answer.status, served.calls()), (503, 4));
    assert_eq!((answer.header("retry-after"), answer.header("cache-control")), ("1", "no-store"));
    assert_eq!(answer.header("tollgate-degraded"), "deny");
    let problem = answer.json();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
    assert_eq!(problem["degraded"], true);
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
}

#[tokio::test]
async fn local_counting_reports_the_share_of_this_node() {
    let served = served(
        "limits:
          - {name: api, by: ip, bucket: 10/minute}
          - {name: open, by: ip, bucket: 1/minute, on_outage: allow}",
    )
    .await;
    for left in ["1", "0"] {
        let answer = served.get("/", &[]).await;
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, left));
        assert_eq!((answer.header("x-ratelimit-limit"), answer.header("tollgate-degraded")), ("2", "local"));
        assert_eq!(answer.header("ratelimit-policy"), r#""api";q=2;w=60"#, "a fifth of ten");
    }
    let refused = served.get("/", &[]).await;
    assert_eq!((refused.status, refused.header("retry-after"), served.calls()), (429, "30", 2));
    assert_eq!(refused.header("tollgate-degraded"), "local");
    let problem = refused.json();
    assert_eq!((&problem["violated-policies"], &problem["degraded"]), (&["api"].into(), &true.into()));
    assert_eq!(problem["detail"], "limit `api` allows 1 per 30 seconds, 2 at once; try again in 30 s");
}

#[tokio::test]
async fn a_locally_acquired_slot_is_released_with_the_response() {
    let served = served("limits: [{name: jobs, by: ip, slots: 5}]").await;
    for _ in 0..3 {
        let answer = served.get("/", &[]).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, r#""jobs";r=0"#));
    }
}

#[tokio::test]
async fn no_store_error_causes_a_500() {
    struct Odd(std::sync::atomic::AtomicU32);
    impl Store for Odd {
        async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
            let turn = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Err(match turn % 4 {
                0 => StoreError::TimedOut(std::time::Duration::from_millis(50)),
                1 => StoreError::Failed("broken".into()),
                2 => StoreError::Foreign("a key".to_owned()),
                _ => StoreError::Refused("full".into()),
            })
        }

        async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
            Err(StoreError::Failed("broken".into()))
        }
    }
    let policy = "limits: [{by: ip, bucket: 25/minute}, {by: ip, slots: 100}]";
    let served = served_on(policy, Odd(0.into())).await;
    for turn in 0..20 {
        let answer = served.get("/", &[]).await;
        assert_eq!(answer.status, if turn < 5 { 200 } else { 429 }, "{turn}: {answer:?}");
    }
}

#[tokio::test]
async fn refusals_without_counting_still_apply() {
    let served = served(
        "deny: [{api_key: foe}]
limits:
  - {by: ip, bucket: 1/minute, count_denied: true}
  - {by: api_key, bucket: 1/minute, overrides: {bad: blocked}}",
    )
    .await;
    assert_eq!(served.get("/", &[("x-api-key", "foe")]).await.status, 403);
    assert_eq!(served.get("/", &[("x-api-key", "bad")]).await.status, 403);
    assert_eq!(served.calls(), 0);
}
