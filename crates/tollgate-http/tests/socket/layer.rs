//! Responses of a limited service, as callers see them.

use super::support::{START, ServedService, get, layer, limiter, listen, parse};
use axum::Router;
use http::Response;
use tollgate::Span;

#[tokio::test]
async fn headers_count_down_until_the_refusal() {
    let (limiter, clock) = limiter("limits: [{name: search, by: ip, bucket: 5/minute}]");
    let served = ServedService::hello(layer(limiter)).await;
    for left in [4, 3, 2, 1, 0] {
        let answer = served.get("/", &[]).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
        assert_eq!(answer.header("x-ratelimit-limit"), "5", "the service's own word is replaced");
        assert_eq!(answer.header("x-ratelimit-remaining"), left.to_string());
        assert_eq!(answer.header("ratelimit-policy"), r#""search";q=5;w=60"#);
        assert_eq!(answer.header("ratelimit"), format!(r#""search";r={left};t={}"#, (5 - left) * 12));
        assert_eq!(answer.header("retry-after"), "absent");
    }
    clock.advance(Span::from_millis(1_500));
    let refused = served.get("/", &[]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "11");
    assert_eq!(refused.header("retry-after-ms"), "10500");
    assert_eq!(refused.header("x-ratelimit-remaining"), "0");
    assert_eq!(refused.header("x-ratelimit-reset"), (START + 12).to_string());
    assert_eq!(refused.header("ratelimit"), r#""search";r=0;t=11"#);
    assert_eq!(refused.header("cache-control"), "no-store");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(refused.header("content-length"), refused.body.len().to_string());
    assert_eq!(
        refused.json(),
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "limit `search` allows 5 per minute; try again in 11 s",
            "instance": refused.instance(),
            "violated-policies": ["search"],
            "retry_after": 11,
            "retry_after_ms": 10_500,
        })
    );
    assert_eq!(served.calls(), 5, "a refusal does not reach the service");
    clock.advance(Span::from_millis(10_500));
    assert_eq!(served.get("/", &[]).await.status, 200, "after the wait it passes");
}

#[tokio::test]
async fn two_limits_are_charged_together_or_not_at_all() {
    let (limiter, _) = limiter(
        "limits:
          - {name: per-user, by: user, bucket: 10/minute}
          - {name: everybody, by: global, bucket: 2/minute}",
    );
    let served = ServedService::hello(layer(limiter)).await;
    let ann = [("x-user-id", "ann")];
    served.get("/", &ann).await;
    served.get("/", &ann).await;
    for _ in 0..3 {
        let refused = served.get("/", &ann).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("ratelimit-policy"), r#""per-user";q=10;w=60, "everybody";q=2;w=60"#);
        assert_eq!(refused.header("ratelimit"), r#""per-user";r=8;t=12, "everybody";r=0;t=30"#);
        assert_eq!(refused.header("x-ratelimit-limit"), "2");
        assert_eq!(refused.json()["violated-policies"], serde_json::json!(["everybody"]));
    }
}

#[tokio::test]
async fn lists_take_precedence_over_limits() {
    let policy = "
allow: [{api_key: friend}]
deny: [{api_key: foe}]
limits: [{by: ip, bucket: 1/minute}]";
    let (limiter, _) = limiter(policy);
    let served = ServedService::hello(layer(limiter)).await;
    for _ in 0..3 {
        let friend = served.get("/", &[("x-api-key", "friend")]).await;
        assert_eq!((friend.status, friend.header("ratelimit")), (200, "absent"));
        assert_eq!(friend.header("tollgate-decision"), "absent");
        let foe = served.get("/", &[("x-api-key", "foe")]).await;
        assert_eq!((foe.status, foe.header("retry-after")), (403, "absent"));
        assert_eq!(foe.header("cache-control"), "no-store");
        assert_eq!(
            foe.json(),
            serde_json::json!({
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "this caller is on the deny list",
                "instance": foe.instance(),
            })
        );
    }
    assert_eq!(served.calls(), 3);
    assert_eq!(served.get("/", &[]).await.status, 200);
    assert_eq!(served.get("/", &[]).await.status, 429);
}

#[tokio::test]
async fn refusals_without_counting_state_the_reason() {
    let policy = "
limits:
  - {name: members, by: api_key, missing: refuse, bucket: 9/minute, plans: {gone: blocked}, overrides: {bad: blocked}}";
    let (limiter, _) = limiter(&format!("plans: {{from: header:X-Plan}}{policy}"));
    let served = ServedService::hello(layer(limiter)).await;
    for (headers, detail) in [
        (&[][..], "limit `members` counts by `api_key`, which this request does not have"),
        (&[("x-api-key", "bad")][..], "limit `members` is closed to this caller"),
        (
            &[("x-api-key", "ok"), ("x-plan", "gone")][..],
            "limit `members` is closed to the plan of this caller",
        ),
    ] {
        let answer = served.get("/", headers).await;
        assert_eq!((answer.status, answer.json()["detail"].as_str()), (403, Some(detail)));
        assert_eq!(answer.json()["violated-policies"], serde_json::json!(["members"]));
    }
    assert_eq!(served.calls(), 0);
}

#[tokio::test]
async fn forwarding_headers_count_only_from_trusted_peers() {
    let limits = "limits: [{by: ip, bucket: 1/minute}]";
    let (strict, _) = limiter(limits);
    let served = ServedService::hello(layer(strict)).await;
    assert_eq!(served.get("/", &[("x-forwarded-for", "203.0.113.1")]).await.status, 200);
    assert_eq!(served.get("/", &[("x-forwarded-for", "203.0.113.2")]).await.status, 429);

    let (trusting, _) = limiter(&format!("client: {{trusted_proxies: [127.0.0.0/8]}}\n{limits}"));
    let served = ServedService::hello(layer(trusting)).await;
    assert_eq!(served.get("/", &[("x-forwarded-for", "203.0.113.1")]).await.status, 200);
    assert_eq!(served.get("/", &[("x-forwarded-for", "203.0.113.2")]).await.status, 200);
    for spoofed in ["203.0.113.2", "6.6.6.6, 203.0.113.2", "6.6.6.6,,junk\",203.0.113.2"] {
        assert_eq!(served.get("/", &[("x-forwarded-for", spoofed)]).await.status, 429, "{spoofed}");
    }
    let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.2")];
    assert_eq!(served.get("/", &lines).await.status, 429, "several lines are one list");
}

#[tokio::test]
async fn a_limit_in_shadow_mode_neither_refuses_nor_appears_in_headers() {
    let (limiter, _) = limiter(
        "limits:
          - {name: real, by: ip, bucket: 9/minute}
          - {name: ghost, by: ip, bucket: 1/minute, mode: shadow}",
    );
    let served = ServedService::hello(layer(limiter)).await;
    for left in [8, 7, 6] {
        let answer = served.get("/", &[]).await;
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, &*left.to_string()));
        assert!(!answer.header("ratelimit").contains("ghost"));
    }
}

#[tokio::test]
async fn a_new_policy_keeps_earlier_usage() {
    let (limiter, _) = limiter("limits: [{name: api, by: ip, bucket: 5/minute}]");
    let served = ServedService::hello(layer(limiter.clone())).await;
    served.get("/", &[]).await;
    assert_eq!(served.get("/", &[]).await.header("ratelimit-policy"), r#""api";q=5;w=60"#);
    limiter.replace(parse("limits: [{name: api, by: ip, bucket: 100/minute}]"));
    let answer = served.get("/", &[]).await;
    assert_eq!(answer.header("ratelimit-policy"), r#""api";q=100;w=60"#);
    assert_eq!(answer.header("x-ratelimit-remaining"), "97");
    limiter.replace(parse("limits: [{name: api, by: ip, bucket: 2/minute}]"));
    assert_eq!(served.get("/", &[]).await.status, 429);
}

#[tokio::test]
async fn refusals_have_the_format_that_accept_names() {
    let (limiter, _) = limiter("limits: [{name: a, by: ip, bucket: 1/minute}]");
    let served = ServedService::hello(layer(limiter)).await;
    served.get("/", &[]).await;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for (accept, content_type) in [
        ("*/*", "application/problem+json"),
        ("application/json", "application/json"),
        ("text/plain", "text/plain; charset=utf-8"),
        (browser, "text/plain; charset=utf-8"),
    ] {
        let answer = served.get("/", &[("accept", accept)]).await;
        assert_eq!((answer.status, answer.header("content-type")), (429, content_type));
        if content_type.starts_with("text") {
            assert_eq!(answer.body, "limit `a` allows 1 per minute; try again in 1 min\n");
        } else {
            assert_eq!(answer.json()["retry_after"], 60);
        }
    }
}

#[tokio::test]
async fn custom_rejections_keep_the_headers_of_the_layer() {
    let (limiter, _) = limiter("limits: [{name: a, by: ip, bucket: 1/minute}]");
    let layer = layer(limiter).with_rejection(|rejection, parts| {
        let body = format!("{}: {}", parts.uri.path(), rejection.detail());
        let response = Response::builder().status(420).header("x-own", "1").header("cache-control", "public");
        response.body(body.into()).unwrap()
    });
    let served = ServedService::hello(layer).await;
    served.get("/calm", &[]).await;
    let answer = served.get("/calm", &[]).await;
    assert_eq!(answer.status, 420);
    assert_eq!(answer.body, "/calm: limit `a` allows 1 per minute; try again in 1 min");
    assert_eq!((answer.header("x-own"), answer.header("retry-after")), ("1", "60"));
    assert_eq!((answer.header("cache-control"), answer.header("ratelimit")), ("no-store", r#""a";r=0;t=60"#));
}

#[tokio::test]
async fn a_refusal_of_an_inner_layer_keeps_its_headers() {
    let (inner, _) = limiter("limits: [{name: inner, by: ip, bucket: 1/hour}]");
    let (outer, _) = limiter("limits: [{name: outer, by: ip, bucket: 100/hour}]");
    let app = Router::new().fallback(|| async { "hello" }).layer(layer(inner)).layer(layer(outer));
    let address = listen(app).await;
    let admitted = get(address, "/", &[]).await;
    assert_eq!((admitted.status, admitted.header("x-ratelimit-limit")), (200, "100"));
    let refused = get(address, "/", &[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "3600"));
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("1", "0"));
    assert_eq!(refused.header("x-ratelimit-reset"), (START + 3_600).to_string());
    assert_eq!(refused.header("ratelimit-policy"), r#""inner";q=1;w=3600"#);
    assert_eq!(refused.header("ratelimit"), r#""inner";r=0;t=3600"#);
}

#[tokio::test]
async fn a_layer_outside_of_a_nested_router_sees_the_whole_path() {
    let policy = "limits: [{endpoint: /api/search, by: ip, bucket: 1/hour}]";
    let api = || Router::new().route("/search", axum::routing::get(|| async { "found" }));
    let outside = Router::new().nest("/api", api()).layer(layer(limiter(policy).0));
    let inside = Router::new().nest("/api", api().layer(layer(limiter(policy).0)));
    for (app, expected) in [(outside, "1"), (inside, "absent")] {
        let answer = get(listen(app).await, "/api/search", &[]).await;
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, expected));
    }
}

#[tokio::test]
async fn jitter_follows_the_rng() {
    let (limiter, _) = limiter("headers: {retry_after_jitter: 10%}\nlimits: [{by: ip, bucket: 1/minute}]");
    let served = ServedService::hello(layer(limiter).with_rng(|| u32::MAX)).await;
    served.get("/", &[]).await;
    let refused = served.get("/", &[]).await;
    assert_eq!(refused.header("retry-after"), "66");
    assert_eq!(refused.json()["retry_after_ms"], 66_000, "header and body agree");
}

#[tokio::test]
async fn responses_do_not_echo_request_data() {
    let (limiter, _) = limiter("limits: [{by: [user, header:X-Tag], bucket: 1/minute}]");
    let served = ServedService::hello(layer(limiter)).await;
    let hostile = [("x-user-id", "mallory\u{e9}\"\\;q=9"), ("x-tag", "sent-by-caller")];
    served.get("/?sent-by-caller=%0d%0aSet-Cookie:%20a=b", &hostile).await;
    let refused = served.get("/?sent-by-caller=%0d%0aSet-Cookie:%20a=b", &hostile).await;
    assert_eq!(refused.status, 429);
    let whole = format!("{refused:?}").to_lowercase();
    for sent in ["mallory", "sent-by-caller", "set-cookie"] {
        assert!(!whole.contains(sent), "{whole}");
    }
    assert!(refused.headers.iter().all(|(_, value)| value.bytes().all(|byte| (0x20..0x7f).contains(&byte))));
}
