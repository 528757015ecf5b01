//! `RateLimit-Policy` states the sustained rate of a limit.

use proptest::prelude::*;
use tollgate::{Call, Span};

use super::{headers, headers_for, limiter, limiter_at, parsed};

/// Returns `q` and `w` of the only limit of a policy, and its `r` after one request.
#[track_caller]
fn advertised(limit: &str) -> (i64, i64, i64) {
    let (limiter, _) = limiter(&format!("limits: [{{name: a, by: ip, {limit}}}]"));
    advertised_in(&headers(&limiter))
}

fn advertised_in(headers: &http::HeaderMap) -> (i64, i64, i64) {
    let number = |header: &str, wanted: &str| {
        let members = parsed(headers[header].to_str().unwrap());
        members[0].1.iter().find(|(key, _)| key == wanted).unwrap().1
    };
    (number("ratelimit-policy", "q"), number("ratelimit-policy", "w"), number("ratelimit", "r"))
}

#[test]
fn quota_over_window_is_the_sustained_rate_of_every_algorithm() {
    for (limit, expected) in [
        ("algorithm: gcra, rate: 10/second", (10, 1, 0)),
        ("bucket: '100/second, burst 5'", (100, 1, 4)),
        ("bucket: '10/second, burst 25'", (30, 3, 24)),
        ("bucket: '1000/minute, burst 200'", (1000, 60, 199)),
        ("bucket: '1/hour, burst 3'", (3, 10_800, 2)),
        ("bucket: 3/2s", (3, 2, 2)),
        ("bucket: 3/1500ms", (6, 3, 2)),
        ("bucket: 2/ms", (2_000, 1, 1)),
        ("bucket: 1/month", (1, 2_592_000, 0)),
        ("algorithm: fixed-window, rate: 5/250ms", (20, 1, 4)),
        ("algorithm: fixed-window, rate: 5/90m, align: first-request", (5, 5_400, 4)),
        ("algorithm: sliding-window, rate: 7/3s", (7, 3, 6)),
        ("algorithm: sliding-window, rate: 7/700ms, parts: 7", (70, 7, 6)),
        ("algorithm: sliding-log, rate: 2/5s", (2, 5, 1)),
        ("bucket: 5/minute, plans: {pro: 10/minute}", (5, 60, 4)),
    ] {
        assert_eq!(advertised(limit), expected, "{limit}");
    }
}

#[test]
fn a_plan_and_an_override_advertise_their_own_rate() {
    let (limiter, _) = limiter(
        "limits: [{name: a, by: user, bucket: 5/minute, plans: {pro: '9/second, burst 4'}, overrides: {ann: 1/2s}}]",
    );
    let of = |call: Call<'_>| advertised_in(&headers_for(&limiter, &call.ip([203, 0, 113, 9]), 0));
    assert_eq!(of(Call::new("GET", "/").user("bob")), (5, 60, 4));
    assert_eq!(of(Call::new("GET", "/").user("bob").plan("pro")), (9, 1, 3));
    assert_eq!(of(Call::new("GET", "/").user("ann")), (1, 2, 0));
    assert_eq!(of(Call::new("GET", "/").user("cid").plan("pro")), (9, 1, 3));
}

#[test]
fn each_calendar_window_states_its_own_length() {
    // 28 March 2026, 12:00 UTC: the next day has 23 hours in Paris and 24 in UTC.
    const SATURDAY: u64 = 1_774_699_200;
    let (limiter, clock) = limiter_at(
        SATURDAY,
        "limits:
  - {name: paris, by: ip, algorithm: fixed-window, rate: 100/day, align: calendar, timezone: Europe/Paris}
  - {name: utc, by: ip, algorithm: fixed-window, rate: 100/day, align: calendar}
  - {name: month, by: ip, algorithm: fixed-window, rate: 100/month, align: calendar}",
    );
    let policy = || headers(&limiter)["ratelimit-policy"].to_str().unwrap().to_owned();
    let expected = |paris: u64, month: u64| {
        format!(r#""paris";q=100;w={paris}, "utc";q=100;w=86400, "month";q=100;w={month}"#)
    };
    assert_eq!(policy(), expected(86_400, 31 * 86_400));
    clock.advance(Span::from_days(1));
    assert_eq!(policy(), expected(82_800, 31 * 86_400), "the day on which clocks change");
    clock.advance(Span::from_days(1));
    assert_eq!(policy(), expected(86_400, 31 * 86_400));
    clock.advance(Span::from_days(3));
    assert_eq!(policy(), expected(86_400, 30 * 86_400), "April");
}

proptest! {
    /// For random quotas, `q / w` is the rate in the policy, `w` is at least one, and no `r`
    /// exceeds its `q`, before and after spending.
    #[test]
    fn the_advertised_rate_is_the_written_rate(
        count in prop_oneof![1_u64..20, 1_u64..2_000_000],
        times in 1_u64..5_000,
        (unit, micros) in prop::sample::select(vec![
            ("ms", 1_000_u64), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000),
        ]),
        burst in prop::option::of(1_u64..3_000),
        algorithm in prop::sample::select(vec![
            "token-bucket", "gcra", "fixed-window", "first-request", "sliding-window", "parts", "sliding-log",
        ]),
        spent in prop::collection::vec(0_u64..50, 0..4),
    ) {
        // Four years are the longest period.
        let times = times.min((1 << 47) / micros).max(1);
        let has_burst = matches!(algorithm, "token-bucket" | "gcra");
        let count = if algorithm == "sliding-log" { count.min(60_000) } else { count };
        let burst = burst.filter(|it| has_burst && it * micros * times / count < 1 << 47);
        let how = match algorithm {
            "first-request" => "fixed-window, align: first-request",
            "parts" => "sliding-window, parts: 7",
            other => other,
        };
        let burst = burst.map_or_else(String::new, |it| format!(", burst {it}"));
        let policy = format!(
            "limits: [{{name: a, by: ip, algorithm: {how}, rate: '{count}/{times}{unit}{burst}'}}]"
        );
        let (limiter, _) = limiter(&policy);
        for cost in spent.into_iter().chain([1]) {
            let call = Call::new("GET", "/").ip([203, 0, 113, 9]).cost(cost);
            let (q, w, r) = advertised_in(&headers_for(&limiter, &call, 0));
            prop_assert!(w >= 1 && r <= q, "{policy}: q={q} w={w} r={r}");
            let (written, advertised) = (
                u128::from(count) * 1_000_000 * u128::from(w.unsigned_abs()),
                u128::from(q.unsigned_abs()) * u128::from(micros) * u128::from(times),
            );
            prop_assert_eq!(advertised, written, "{}: q={} w={}", &policy, q, w);
        }
    }
}
