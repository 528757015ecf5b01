//! What callers get while the store gives no answer.

use crate::support::{Served, layer, parse};
use tollgate::store::{Answer, Check};
use tollgate::{Adjustment, Limiter, Outcome, Rule, Store, StoreError};

struct Down;

impl Store for Down {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(StoreError::Refused("down".into()))
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(StoreError::Refused("down".into()))
    }
}

async fn served(policy: &str) -> Served {
    Served::hello(layer(Limiter::with_store(parse(policy), Down))).await
}

#[tokio::test]
async fn requests_pass_unless_a_limit_says_deny() {
    let served = served(
        "limits:
          - {endpoint: /open, by: ip, bucket: 1/minute, on_outage: allow}
          - {endpoint: /default, by: ip, bucket: 1/minute}
          - {endpoint: /watched, by: ip, bucket: 1/minute, on_outage: deny, mode: shadow}
          - {name: login, endpoint: /login, by: ip, windows: [1/minute, 5/hour], on_outage: deny}",
    )
    .await;
    for path in ["/open", "/default", "/watched", "/unlimited"] {
        let answer = served.get(path, &[]).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, "absent"), "{path}");
    }
    assert_eq!(served.calls(), 4);
    let answer = served.get("/login", &[]).await;
    assert_eq!((answer.status, served.calls()), (503, 4));
    assert_eq!((answer.header("retry-after"), answer.header("cache-control")), ("1", "no-store"));
    let problem = answer.json();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
}

#[tokio::test]
async fn whoever_is_refused_without_counting_still_is() {
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
