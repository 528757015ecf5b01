//! Refusals in the dialects of other services.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use serde_json::{Value, json};
use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Timestamp};
use tollgate_http::{Rejection, RetryAfter, write_headers};

type TestLimiter = Limiter<MemoryStore<ManualClock>>;

fn limiter(policy: &str) -> TestLimiter {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Limiter::with_store(policy, MemoryStore::with_clock(1_000, clock))
}

/// Returns the refusal of a call with these request headers.
#[track_caller]
fn refusal(limiter: &TestLimiter, call: &Call<'_>, request: &[(&str, &str)]) -> Response<bytes::Bytes> {
    let request: HeaderMap = request
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap()))
        .collect();
    let settings = limiter.policy().headers();
    let decision = limiter.check(call);
    let retry_after = RetryAfter::of(&decision, 0, 0);
    let rejection = Rejection::of(&decision, limiter.id_of(&decision), retry_after).unwrap();
    let mut response = rejection.response(&request, settings);
    rejection.write_headers(response.headers_mut(), settings);
    response
}

fn json_of(response: &Response<bytes::Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

fn header<'r>(response: &'r Response<bytes::Bytes>, name: &str) -> &'r str {
    response.headers().get(name).map_or("absent", |value| value.to_str().unwrap())
}

const TOO_OFTEN: &str = "limit `a` allows 1 per 40 seconds; try again in 40 s";

/// Creates a limiter with one limit, which one caller has used up.
fn used_up(dialect: &str) -> TestLimiter {
    let limiter = limiter(&format!(
        "headers: {{dialects: [{dialect}]}}
deny: [{{user: mallory}}]
limits: [{{name: a, endpoint: /x, by: ip, bucket: 1/40s}}]"
    ));
    assert!(limiter.check(&caller()).is_allowed());
    limiter
}

fn caller() -> Call<'static> {
    Call::new("GET", "/x").ip([203, 0, 113, 9])
}

#[test]
fn the_body_for_discord_has_the_wait() {
    let limiter = used_up("discord");
    let response = refusal(&limiter, &caller(), &[("accept", "text/html")]);
    assert_eq!((response.status().as_u16(), header(&response, "content-type")), (429, "application/json"));
    assert_eq!(
        json_of(&response),
        json!({"message": TOO_OFTEN, "retry_after": 40.0, "global": false, "code": 0})
    );
    assert_eq!((header(&response, "via"), header(&response, "x-ratelimit-scope")), ("1.1 tollgate", "user"));
    assert_eq!(header(&response, "x-ratelimit-global"), "absent");

    let never = refusal(&limiter, &caller().cost(2), &[]);
    assert_eq!(never.status(), 400, "its clients repeat each 429, and one without a wait at once");
    assert_eq!(header(&never, "retry-after"), "absent");
}

#[test]
fn discord_refusals_are_global_if_the_limit_covers_every_request() {
    for (by, scope) in [("ip", "global"), ("global", "shared")] {
        let limiter =
            limiter(&format!("headers: {{dialects: discord}}\nlimits: [{{by: {by}, bucket: 1/minute}}]"));
        drop(limiter.check(&caller()));
        let response = refusal(&limiter, &caller(), &[]);
        assert_eq!(json_of(&response)["global"], true);
        assert_eq!(
            (header(&response, "x-ratelimit-global"), header(&response, "x-ratelimit-scope")),
            ("true", scope)
        );
    }
}

#[test]
fn openai_and_stripe_have_an_error_object() {
    let response = refusal(&used_up("openai"), &caller(), &[]);
    let id = header(&response, "tollgate-decision");
    assert_eq!(header(&response, "x-request-id"), id);
    let error =
        json!({"message": TOO_OFTEN, "type": "requests", "param": null, "code": "rate_limit_exceeded"});
    assert_eq!(json_of(&response), json!({ "error": error }));

    let response = refusal(&used_up("stripe"), &caller(), &[]);
    let error = json!({"message": TOO_OFTEN, "type": "invalid_request_error", "code": "rate_limit"});
    assert_eq!(json_of(&response), json!({ "error": error }));
    assert_eq!(header(&response, "stripe-should-retry"), "true");
}

/// Returns the `github` message for a refusal of `cost`, after one admitted request.
#[track_caller]
fn github(policy: &str, cost: u64) -> (String, Response<bytes::Bytes>) {
    let limiter = limiter(&format!("headers: {{dialects: github, x_ratelimit: delta}}\n{policy}"));
    assert!(limiter.check(&caller()).is_allowed());
    let response = refusal(&limiter, &caller().cost(cost), &[]);
    let message = json_of(&response)["message"].as_str().unwrap().to_owned();
    (message, response)
}

#[test]
fn github_reports_an_exhausted_main_quota_as_primary_with_a_date() {
    let (message, response) = github("limits: [{name: a, by: ip, bucket: 1/40s}]", 1);
    assert_eq!(message, format!("API rate limit exceeded: {TOO_OFTEN}"));
    assert_eq!(json_of(&response)["status"], "429");
    for (name, value) in [
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-used", "1"),
        ("x-ratelimit-resource", "a"),
        ("x-ratelimit-reset", "1700000040"),
        ("retry-after", "40"),
    ] {
        assert_eq!(
            header(&response, name),
            value,
            "{name}: its clients wait for a date when nothing remains"
        );
    }
}

#[test]
fn github_reports_slots_shorter_rates_and_oversized_requests_as_secondary() {
    const SECONDARY: &str = "You have exceeded a secondary rate limit: limit `a";
    for (policy, cost) in [
        ("limits: [{name: a, by: ip, slots: 1}, {name: main, by: ip, bucket: 9/hour}]", 1),
        ("limits: [{name: a, by: ip, bucket: 1/minute}, {name: main, by: ip, bucket: 9/hour}]", 1),
        ("limits: [{name: a, by: ip, windows: [1/minute, 9/hour]}]", 1),
        // One of three is left: clients look for a remaining of zero.
        ("limits: [{name: a, by: ip, bucket: 3/hour}]", 3),
    ] {
        let (message, response) = github(policy, cost);
        assert!(message.starts_with(SECONDARY), "{policy}: {message}");
        assert_ne!(header(&response, "retry-after"), "absent");
    }
}

#[test]
fn github_takes_the_limit_that_the_policy_describes_for_the_primary_one() {
    let limits = "limits: [{name: a, by: ip, bucket: 1/minute}, {name: main, by: ip, bucket: 9/hour}]";
    let limiter = limiter(&format!("headers: {{dialects: github, describe: a}}\n{limits}"));
    drop(limiter.check(&caller()));
    let message = json_of(&refusal(&limiter, &caller(), &[]))["message"].to_string();
    assert!(message.starts_with("\"API rate limit exceeded: limit `a`"), "{message}");
}

#[test]
fn openai_distinguishes_requests_and_tokens() {
    let limiter = limiter(
        "headers: {dialects: openai}
limits:
  - {name: rpm, by: ip, bucket: 3/minute}
  - {name: tpm, by: ip, bucket: 1000/minute, cost: 'header:X-Tokens'}
  - {name: at-once, by: ip, slots: 9}",
    );
    let families = |response: &Response<bytes::Bytes>| {
        ["requests", "tokens"].map(|unit| {
            ["limit", "remaining", "reset"]
                .map(|what| header(response, &format!("x-ratelimit-{what}-{unit}")).to_owned())
                .join(" ")
        })
    };
    let asking = |tokens| caller().header("x-tokens", tokens);
    let decision = limiter.check(&asking("400"));
    let mut admitted = Response::new(bytes::Bytes::new());
    let (id, settings) = (limiter.id_of(&decision), limiter.policy().headers());
    write_headers(admitted.headers_mut(), &decision, id, settings, None);
    assert_eq!(families(&admitted), ["3 2 20s", "1000 600 24s"]);

    let refused = refusal(&limiter, &asking("700"), &[]);
    assert_eq!(families(&refused), ["3 2 20s", "1000 600 6s"], "the tokens refuse");
    assert_eq!(json_of(&refused)["error"]["type"], "tokens");
    assert_eq!(header(&refused, "x-ratelimit-limit"), "1000");

    for _ in 0..2 {
        assert!(limiter.check(&asking("1")).is_allowed());
    }
    let refused = refusal(&limiter, &asking("1"), &[]);
    assert_eq!(families(&refused), ["3 0 20s", "1000 598 25s"], "the requests refuse");
    assert_eq!(json_of(&refused)["error"]["type"], "requests");
}

#[test]
fn openai_counts_every_limit_on_cost_in_tokens() {
    for cost in ["5", "'body:1KB'", "'header:X-Tokens'", "{reserve: 1, settle: 'json:usage.total_tokens'}"] {
        let limiter = limiter(&format!(
            "headers: {{dialects: openai}}\nlimits: [{{name: a, by: ip, bucket: 5/minute, cost: {cost}}}]"
        ));
        while limiter.check(&caller()).is_allowed() {}
        let refused = refusal(&limiter, &caller(), &[]);
        assert_eq!(json_of(&refused)["error"]["type"], "tokens", "{cost}");
        assert_eq!(header(&refused, "x-ratelimit-remaining-tokens"), "0", "{cost}");
        assert_eq!(header(&refused, "x-ratelimit-remaining-requests"), "absent", "{cost}");
    }
}

#[test]
fn aws_refusals_use_the_protocol_of_the_request() {
    let limiter = used_up("aws");
    let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    for (request, content_type) in [
        (vec![], "application/json"),
        (vec![("content-type", "application/x-amz-json-1.0")], "application/x-amz-json-1.0"),
        (vec![("content-type", "application/x-amz-json-1.1")], "application/x-amz-json-1.1"),
        (vec![("content-type", "application/json"), ("x-amz-content-sha256", "0")], "application/json"),
        (vec![form], "text/xml"),
        (vec![("x-amz-content-sha256", "UNSIGNED-PAYLOAD")], "text/xml"),
        (vec![("accept", "application/xml")], "text/xml"),
    ] {
        let response = refusal(&limiter, &caller(), &request);
        assert_eq!(header(&response, "content-type"), content_type, "{request:?}");
        let id = header(&response, "tollgate-decision");
        assert_eq!(header(&response, "x-amzn-requestid"), id);
        if content_type == "text/xml" {
            let expected = format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>ThrottlingException</Code>\
                 <Message>{TOO_OFTEN}</Message></Error><RequestId>{id}</RequestId></ErrorResponse>"
            );
            assert_eq!(*response.body(), expected);
        } else {
            assert_eq!(json_of(&response), json!({"__type": "ThrottlingException", "message": TOO_OFTEN}));
        }
    }
    let never = refusal(&limiter, &caller().cost(2), &[]);
    assert_eq!(json_of(&never)["__type"], "ServiceQuotaExceededException");
}

#[test]
fn refusals_without_counting_use_the_dialect_too() {
    for (dialect, pointer, code) in [
        ("discord", "/code", json!(0)),
        ("openai", "/error/code", json!("forbidden")),
        ("stripe", "/error/code", json!("forbidden")),
        ("aws", "/__type", json!("AccessDeniedException")),
        ("github", "/message", json!("this caller is on the deny list")),
        ("envoy", "/status", json!(403)),
    ] {
        let response = refusal(&used_up(dialect), &caller().user("mallory"), &[]);
        assert_eq!(response.status(), 403, "{dialect}");
        assert_eq!(json_of(&response).pointer(pointer), Some(&code), "{dialect}");
        assert_eq!(header(&response, "tollgate-decision").len(), 16, "{dialect}");
    }
}

#[test]
fn the_dialects_of_a_limit_precede_those_of_the_policy() {
    let limiter = limiter(
        "headers: {dialects: [envoy, stripe]}
limits:
  - {name: chat, endpoint: /chat, by: ip, bucket: 1/minute, dialects: openai}
  - {name: all, by: ip, bucket: 2/minute}",
    );
    let chat = Call::new("GET", "/chat").ip([203, 0, 113, 9]);
    drop(limiter.check(&chat));
    let by_chat = refusal(&limiter, &chat, &[]);
    assert_eq!(json_of(&by_chat)["error"]["code"], "rate_limit_exceeded");
    let spoken = |response: &Response<_>| {
        ["x-should-retry", "stripe-should-retry", "x-envoy-ratelimited"]
            .map(|name| response.headers().contains_key(name))
    };
    assert_eq!(spoken(&by_chat), [true, true, true]);

    drop(limiter.check(&caller()));
    let by_all = refusal(&limiter, &caller(), &[]);
    assert_eq!(json_of(&by_all)["error"]["code"], "rate_limit", "the first that has a body");
    assert_eq!(spoken(&by_all), [false, true, true]);
}

#[test]
fn the_problem_has_the_decision_id_of_the_header() {
    let limiter = limiter("limits: [{name: a, by: ip, windows: [1/40s, 1/hour]}]");
    drop(limiter.check(&caller()));
    let response = refusal(&limiter, &caller(), &[]);
    let id = header(&response, "tollgate-decision");
    assert_eq!(
        json_of(&response),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "limit `a/1h` allows 1 per hour; try again in 1 h",
            "instance": format!("urn:tollgate:decision:{id}"),
            "violated-policies": ["a/40s", "a/1h"],
            "retry_after": 3600,
            "retry_after_ms": 3_600_000,
        })
    );
}
