//! The rate-limit headers are valid and consistent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod described;
mod rates;

use http::HeaderMap;
use proptest::prelude::*;
use sfv::{BareItem, ListEntry, Parser};
use tollgate::policy::HeaderSettings;
use tollgate::{Call, Clock as _, DecisionId, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_http::{Rejection, RetryAfter, write_headers};

const START: u64 = 1_700_000_000;

fn limiter(policy: &str) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    limiter_at(START, policy)
}

fn limiter_at(start: u64, policy: &str) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(start));
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    (Limiter::with_store(policy, MemoryStore::with_clock(1_000, clock.clone())), clock)
}

/// Returns the headers of the next response.
fn headers(limiter: &Limiter<MemoryStore<ManualClock>>) -> HeaderMap {
    headers_for(limiter, &Call::new("GET", "/").ip([203, 0, 113, 9]), 0)
}

fn headers_for(limiter: &Limiter<MemoryStore<ManualClock>>, call: &Call<'_>, rng: u32) -> HeaderMap {
    let settings = limiter.policy().headers();
    let decision = limiter.check(call);
    let mut headers = HeaderMap::new();
    let retry_after = RetryAfter::of(&decision, settings.retry_after_jitter, rng);
    write_headers(&mut headers, &decision, limiter.id_of(&decision), settings, retry_after);
    headers
}

#[track_caller]
fn check(headers: &HeaderMap, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = headers.get(*name).map(|value| value.to_str().unwrap());
        assert_eq!(found.unwrap_or("absent"), *value, "{name}");
    }
}

/// Parses a structured list into names and integer parameters.
fn parsed(value: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list = Parser::new(value).parse::<sfv::List>().unwrap_or_else(|error| panic!("{value}: {error}"));
    let integer = |item: &BareItem| item.as_integer().map(i64::from);
    let member = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("an inner list in {value}") };
        let name = match &item.bare_item {
            BareItem::String(name) => name.as_str().to_owned(),
            BareItem::Integer(number) => i64::from(*number).to_string(),
            other => panic!("{other:?} in {value}"),
        };
        let numbers = item.params.iter().filter_map(|(key, it)| Some((key.to_string(), integer(it)?)));
        (name, numbers.collect())
    };
    list.iter().map(member).collect()
}

#[test]
fn x_ratelimit_headers_describe_the_limit_closest_to_refusing() {
    let (limiter, clock) = limiter(
        "limits:
          - {name: wide, by: global, bucket: 100/minute}
          - {name: narrow, by: ip, bucket: 2/minute}",
    );
    let expect = |remaining: &str, reset: u64| {
        let reset = (START + reset).to_string();
        check(
            &headers(&limiter),
            &[
                ("x-ratelimit-limit", "2"),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", &reset),
            ],
        );
    };
    expect("1", 30);
    expect("0", 60);
    expect("0", 30);
    clock.advance(Span::from_millis(29_500));
    expect("0", 30);
}

#[test]
fn the_reset_of_a_window_is_the_same_for_all_its_responses() {
    let (limiter, clock) = limiter("limits: [{by: ip, algorithm: fixed-window, rate: 3/minute}]");
    let resets: Vec<_> = (0..5)
        .map(|_| {
            clock.advance(Span::from_millis(777));
            headers(&limiter)["x-ratelimit-reset"].clone()
        })
        .collect();
    assert!(resets.iter().all(|reset| *reset == resets[0]), "{resets:?}");
}

#[test]
fn the_structured_fields_list_every_limit_that_applied_except_shadow_limits() {
    let (limiter, _) = limiter(
        "limits:
          - {name: windows, by: ip, windows: [10/second, 1000/hour]}
          - {name: quick, by: ip, bucket: '100/second, burst 50'}
          - {name: ghost, by: ip, bucket: 1/minute, mode: shadow}
          - {name: at-once, by: ip, slots: 20}",
    );
    let headers = headers(&limiter);
    let text = |name: &str| headers[name].to_str().unwrap();
    let number = |key: &str, value: i64| (key.to_owned(), value);
    assert_eq!(
        parsed(text("ratelimit-policy")),
        [
            ("windows/1s".to_owned(), vec![number("q", 10), number("w", 1)]),
            ("windows/1h".to_owned(), vec![number("q", 1000), number("w", 3600)]),
            ("quick".to_owned(), vec![number("q", 100), number("w", 1)]),
            ("at-once".to_owned(), vec![number("q", 20)]),
        ]
    );
    assert!(text("ratelimit-policy").ends_with(r#""at-once";q=20;qu="concurrent-requests""#));
    assert_eq!(
        parsed(text("ratelimit")),
        [
            ("windows/1s".to_owned(), vec![number("r", 9), number("t", 1)]),
            ("windows/1h".to_owned(), vec![number("r", 999), number("t", 4)]),
            ("quick".to_owned(), vec![number("r", 49), number("t", 1)]),
            ("at-once".to_owned(), vec![number("r", 19)]),
        ]
    );
}

#[test]
fn a_limit_that_counts_several_readings_of_a_path_is_listed_once() {
    let (limiter, _) = limiter("limits: [{name: p, endpoint: '/u/{id}', by: 'path:id', bucket: 5/hour}]");
    let get = |path| headers_for(&limiter, &Call::new("GET", path).ip([203, 0, 113, 9]), 0);
    check(&get("/u/a;b"), &[("ratelimit-policy", "\"p\";q=5;w=3600"), ("ratelimit", "\"p\";r=4;t=720")]);
    // One reading has 4 left and the other 3.
    get("/u/a");
    check(&get("/u/a;b"), &[("ratelimit", "\"p\";r=2;t=2160"), ("x-ratelimit-remaining", "2")]);
    for _ in 0..2 {
        get("/u/a");
    }
    check(&get("/u/a;b"), &[("ratelimit", "\"p\";r=0;t=720"), ("x-ratelimit-remaining", "0")]);
}

#[test]
fn an_allowance_that_is_counted_beside_an_override_is_listed_once() {
    for (named, policy, left) in
        [("slow", "\"k\";q=2;w=3600", "\"k\";r=1;t=1800"), ("fast", "\"k\";q=5;w=3600", "\"k\";r=4;t=720")]
    {
        let (limiter, _) = limiter(
            "limits: [{name: k, by: api_key, bucket: 5/hour, overrides: {slow: 2/hour, fast: 9/hour}}]",
        );
        let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
        let call = call.header("x-api-key", "a").header("x-api-key", named);
        check(&headers_for(&limiter, &call, 0), &[("ratelimit-policy", policy), ("ratelimit", left)]);
    }
}

#[test]
fn draft_6_headers_are_written_if_the_policy_asks_for_them() {
    let (limiter, _) = limiter(
        "headers: {x_ratelimit: delta, ietf: draft-6}
limits:
          - {by: ip, bucket: 5/minute}
          - {by: global, bucket: 100/day}
          - {by: global, bucket: 5/hour}
          - {by: ip, slots: 3}",
    );
    let headers = headers(&limiter);
    check(
        &headers,
        &[
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "4"),
            ("ratelimit-limit", "5"),
            ("ratelimit-remaining", "4"),
            ("ratelimit-reset", "720"),
            ("ratelimit-policy", "5;w=60, 100;w=86400"),
            ("ratelimit", "absent"),
        ],
    );
    assert_eq!(parsed(headers["ratelimit-policy"].to_str().unwrap()).len(), 2);
}

#[test]
fn without_limits_no_header_is_written_and_with_headers_off_only_the_id() {
    let named = |policy: &str| {
        let headers = headers(&limiter(policy).0);
        let names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
        assert!(names.is_empty() || names == ["tollgate-decision"], "{policy}: {names:?}");
        !names.is_empty()
    };
    assert!(named("headers: {x_ratelimit: off, ietf: off}\nlimits: [{by: ip, bucket: 5/minute}]"));
    // A shadow limit decides nothing, but it was counted, and its decision has an ID.
    assert!(named("limits: [{by: ip, bucket: 5/minute, mode: shadow}]"));
    assert!(!named("limits: [{endpoint: /x, by: ip, bucket: 5/minute}]"));
    assert!(!named("allow: [{ip: 203.0.113.0/24}]\nlimits: [{by: ip, bucket: 5/minute}]"));
}

#[test]
fn decision_ids_are_unique() {
    let (limiter, _) = limiter("limits: [{by: ip, bucket: 2/minute}]");
    let name = || headers(&limiter)["tollgate-decision"].to_str().unwrap().to_owned();
    let names: std::collections::BTreeSet<_> = (0..5).map(|_| name()).collect();
    assert_eq!(names.len(), 5, "admitted or refused");
    assert!(names.iter().all(|name| name.parse::<DecisionId>().is_ok()), "{names:?}");
}

#[test]
fn a_request_that_can_never_pass_gets_no_retry_after() {
    let (limiter, _) = limiter("limits: [{name: big, by: ip, bucket: 10/minute}]");
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]).cost(11);
    check(&headers_for(&limiter, &call, 0), &[("retry-after", "absent"), ("retry-after-ms", "absent")]);
    let decision = limiter.check(&call);
    let rejection = Rejection::of(&decision, limiter.id_of(&decision), None).unwrap();
    assert_eq!(rejection.status(), 429);
    assert_eq!(
        rejection.detail(),
        "limit `big` allows 10 per minute, and this request asks for 11 at once: it can never pass, \
         and waiting does not help"
    );
}

#[test]
fn refusals_by_slots_advise_one_second_instead_of_the_lease() {
    let (limiter, _) = limiter(
        "headers: {retry_after_jitter: 50%, dialects: [discord, openai, aws]}
limits: [{name: at-once, by: ip, slots: 1, ttl: 5m}]",
    );
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    let reset = (START + 1).to_string();
    let state = ("ratelimit", r#""at-once";r=0"#);
    let one_limit = [
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", &*reset),
        ("x-ratelimit-reset-after", "1.000"),
        ("x-ratelimit-reset-requests", "1s"),
    ];
    let admitted = headers_for(&limiter, &call, 0);
    check(&admitted, &[state]);
    check(&admitted, &one_limit.map(|(name, _)| (name, "absent")));
    for (rng, seconds, millis) in [(0, "1", "1000"), (u32::MAX, "2", "1500")] {
        let refused = headers_for(&limiter, &call, rng);
        check(&refused, &one_limit);
        check(&refused, &[state]);
        check(
            &refused,
            &[("retry-after", seconds), ("retry-after-ms", millis), ("x-amz-retry-after", millis)],
        );
    }
    let decision = limiter.check(&call);
    let rejection =
        Rejection::of(&decision, limiter.id_of(&decision), RetryAfter::of(&decision, 0, 0)).unwrap();
    assert_eq!(rejection.detail(), "limit `at-once` allows 1 at once; try again in 1 s");
    let problem = rejection.response(&HeaderMap::new(), &HeaderSettings::default()).into_body();
    let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap();
    assert_eq!((&problem["retry_after"], &problem["retry_after_ms"]), (&1.into(), &1_000.into()));
}

#[test]
fn a_lease_that_ends_late_does_not_hide_a_limit_that_takes_longer() {
    let (limiter, _) = limiter(
        "limits:
          - {name: rate, by: ip, bucket: '2/minute, burst 2'}
          - {name: at-once, by: ip, slots: 1, ttl: 5m}",
    );
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    drop(limiter.check(&call));
    let both = Call::new("GET", "/").ip([203, 0, 113, 9]).cost(2);
    let decision = limiter.check(&both);
    let rejection =
        Rejection::of(&decision, limiter.id_of(&decision), RetryAfter::of(&decision, 0, 0)).unwrap();
    assert_eq!(rejection.violated().collect::<Vec<_>>(), ["rate", "at-once"]);
    assert_eq!(rejection.detail(), "limit `rate` allows 2 per minute; try again in 30 s");
    let mut headers = HeaderMap::new();
    rejection.write_headers(&mut headers, limiter.policy().headers());
    check(
        &headers,
        &[
            ("retry-after", "30"),
            ("x-ratelimit-limit", "2"),
            ("ratelimit", r#""rate";r=1;t=30, "at-once";r=0"#),
        ],
    );
}

#[test]
fn jitter_stretches_the_wait_and_nothing_else() {
    let (limiter, _) =
        limiter("headers: {retry_after_jitter: 50%}\nlimits: [{name: a, by: ip, bucket: 1/minute}]");
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    drop(limiter.check(&call));
    for (rng, seconds, millis) in
        [(0, "60", "60000"), (u32::MAX, "90", "90000"), (u32::MAX / 2, "75", "75000")]
    {
        check(
            &headers_for(&limiter, &call, rng),
            &[("retry-after", seconds), ("retry-after-ms", millis), ("ratelimit", r#""a";r=0;t=60"#)],
        );
    }
}

#[test]
fn dialects_write_the_same_numbers() {
    let (limiter, _) = limiter(
        "headers: {dialects: [discord, openai, stripe, aws, envoy]}
limits: [{name: a, endpoint: /x, by: global, bucket: 1/minute}]",
    );
    let call = Call::new("GET", "/x");
    let admitted = headers_for(&limiter, &call, 0);
    check(
        &admitted,
        &[
            ("x-ratelimit-reset-after", "60.000"),
            ("x-ratelimit-limit-requests", "1"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1m0s"),
            ("x-ratelimit-scope", "absent"),
            ("x-should-retry", "absent"),
            ("stripe-rate-limited-reason", "absent"),
            ("x-amzn-errortype", "absent"),
            ("x-envoy-ratelimited", "absent"),
        ],
    );
    assert_eq!(admitted["x-ratelimit-bucket"].len(), 16);
    check(
        &headers_for(&limiter, &call, 0),
        &[
            ("x-ratelimit-scope", "shared"),
            ("x-should-retry", "true"),
            ("stripe-rate-limited-reason", "endpoint-rate"),
            ("stripe-should-retry", "true"),
            ("x-amzn-errortype", "ThrottlingException"),
            ("x-amz-retry-after", "60000"),
            ("x-envoy-ratelimited", "true"),
        ],
    );
    let never = Call::new("GET", "/x").cost(9);
    check(
        &headers_for(&limiter, &never, 0),
        &[
            ("x-should-retry", "false"),
            ("stripe-should-retry", "false"),
            ("x-amzn-errortype", "ServiceQuotaExceededException"),
            ("x-amz-retry-after", "absent"),
        ],
    );
}

#[test]
fn headers_of_the_service_are_replaced() {
    let (limiter, _) = limiter("limits: [{by: ip, bucket: 5/minute}]");
    let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
    let mut headers = HeaderMap::new();
    for name in ["x-ratelimit-limit", "x-ratelimit-limit", "ratelimit", "x-other"] {
        headers.append(name, "77".parse().unwrap());
    }
    write_headers(&mut headers, &decision, limiter.id_of(&decision), limiter.policy().headers(), None);
    assert_eq!(headers.get_all("x-ratelimit-limit").iter().collect::<Vec<_>>(), ["5"]);
    assert_eq!(headers.get_all("ratelimit").iter().count(), 1);
    assert_eq!(headers["x-other"], "77");
}

#[test]
fn a_service_with_too_many_headers_is_left_alone() {
    let (limiter, _) = limiter("limits: [{by: ip, bucket: 5/minute}]");
    let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
    let mut headers = HeaderMap::new();
    let name = |index: u32| http::HeaderName::try_from(format!("x-{index}")).unwrap();
    let mut index = 0;
    while headers.try_insert(name(index), "1".parse().unwrap()).is_ok() {
        index += 1;
    }
    write_headers(&mut headers, &decision, limiter.id_of(&decision), limiter.policy().headers(), None);
    assert!(!headers.contains_key("ratelimit"));
}

proptest! {
    /// For arbitrary callers and limits, headers are printable ASCII and valid structured fields,
    /// and `Retry-After` is not less than any `t` of a refusal.
    #[test]
    fn headers_are_valid_and_agree(
        rate in 1_u64..50,
        period in prop::sample::select(vec!["100ms", "s", "7s", "minute", "day", "30d"]),
        algorithm in prop::sample::select(vec!["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"]),
        steps in prop::collection::vec((0_u64..5_000_000, 0_u64..60, any::<String>()), 1..40),
        rng in any::<u32>(),
    ) {
        let policy = format!(
            "headers: {{retry_after_jitter: 20%, dialects: [discord, openai, stripe, aws, github, envoy]}}\n\
             limits:\n  - {{by: user, algorithm: {algorithm}, rate: {rate}/{period}}}\n  - {{by: ip, bucket: 40/minute}}"
        );
        let (limiter, clock) = limiter(&policy);
        for (wait, cost, user) in &steps {
            clock.advance(Span::from_micros(*wait));
            let call = Call::new("GET", "/").ip([203, 0, 113, 9]).user(user).cost(*cost);
            let headers = headers_for(&limiter, &call, rng);
            for (name, value) in &headers {
                let printable = value.as_bytes().iter().all(|byte| (0x20..0x7f).contains(byte));
                prop_assert!(printable, "{name}: {value:?}");
            }
            prop_assert_eq!(parsed(headers["ratelimit-policy"].to_str().unwrap()).len(), 2);
            let states = parsed(headers["ratelimit"].to_str().unwrap());
            prop_assert_eq!(states.len(), 2);
            let Some(retry_after) = headers.get("retry-after") else { continue };
            let retry_after: i64 = retry_after.to_str().unwrap().parse().unwrap();
            prop_assert!(retry_after >= 1);
            let reset: u64 = headers["x-ratelimit-reset"].to_str().unwrap().parse().unwrap();
            let back = clock.now() + Span::from_secs(retry_after.unsigned_abs());
            prop_assert!(back.as_secs_ceil() >= reset);
            for (name, numbers) in states {
                let number = |wanted: &str| numbers.iter().find(|(key, _)| key == wanted).unwrap().1;
                prop_assert!(number("r") > 0 || number("t") <= retry_after || *cost == 0, "{name}");
            }
        }
    }
}
