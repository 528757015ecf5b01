//! Selects the limit for headers with room for one limit.

use super::{check, headers, headers_for, limiter};
use tollgate::Call;

#[test]
fn an_admitted_response_describes_the_rate_and_not_the_slots() {
    for ietf in ["draft-11", "draft-6"] {
        let (limiter, _) = limiter(&format!(
            "headers: {{ietf: {ietf}}}
limits:
  - {{name: at-once, by: ip, slots: 5}}
  - {{name: hourly, by: ip, bucket: 1000/hour}}"
        ));
        let admitted = headers(&limiter);
        check(&admitted, &[("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "999")]);
        if ietf == "draft-6" {
            check(&admitted, &[("ratelimit-limit", "1000"), ("ratelimit-remaining", "999")]);
        } else {
            check(&admitted, &[("ratelimit", r#""at-once";r=4, "hourly";r=999;t=4"#)]);
        }
    }
}

#[test]
fn a_refusal_by_slots_describes_the_slots() {
    let (limiter, _) = limiter(
        "limits:
  - {name: at-once, by: ip, slots: 1}
  - {name: hourly, by: ip, bucket: 1000/hour}",
    );
    check(&headers(&limiter), &[("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "999")]);
    check(&headers(&limiter), &[("x-ratelimit-limit", "1"), ("x-ratelimit-remaining", "0")]);
}

#[test]
fn slots_alone_are_not_reported_as_a_rate() {
    let (limiter, _) = limiter("limits: [{name: at-once, by: ip, slots: 5}]");
    check(
        &headers(&limiter),
        &[
            ("x-ratelimit-limit", "absent"),
            ("x-ratelimit-remaining", "absent"),
            ("x-ratelimit-reset", "absent"),
            ("ratelimit", r#""at-once";r=4"#),
            ("ratelimit-policy", r#""at-once";q=5;qu="concurrent-requests""#),
        ],
    );
}

#[test]
fn the_policy_names_the_limit_that_the_headers_describe() {
    let (limiter, _) = limiter(
        "headers: {describe: [search, daily]}
limits:
  - {name: daily, by: ip, bucket: 1000/day}
  - {name: quick, by: ip, windows: [3/second, 50/minute]}
  - {name: search, endpoint: /search, by: ip, windows: [40/minute, 20/hour]}
  - {name: ghost, by: ip, bucket: 1/day, mode: shadow}",
    );
    check(&headers(&limiter), &[("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "999")]);
    let search = Call::new("GET", "/search").ip([203, 0, 113, 9]);
    // Of several windows, the window closest to refusing.
    check(
        &headers_for(&limiter, &search, 0),
        &[("x-ratelimit-limit", "20"), ("x-ratelimit-remaining", "19")],
    );
    check(&headers(&limiter), &[("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "997")]);
    // A refusal describes the limit that refused.
    check(&headers(&limiter), &[("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "0")]);
}

#[test]
fn slots_that_the_policy_names_are_described() {
    let (limiter, _) = limiter(
        "headers: {describe: at-once}
limits: [{name: at-once, by: ip, slots: 5}, {name: hourly, by: ip, bucket: 1000/hour}]",
    );
    check(&headers(&limiter), &[("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "4")]);
}
