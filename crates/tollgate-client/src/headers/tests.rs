//! Tests of the headers of many servers.
use http::HeaderMap;
use proptest::prelude::*;
use tollgate::{Span, Timestamp};

use super::*;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

/// The reports of a response as text: name, limit, remaining, reset, window, shape.
fn reports(lines: &[(&'static str, &str)]) -> Vec<String> {
    let headers = headers(lines);
    let number = |it: Option<u64>| it.map_or("-".to_owned(), |it| it.to_string());
    let report = |it: &BucketReport<'_>| {
        let reset = match it.reset {
            None => "-".to_owned(),
            Some(Reset::After(span)) => format!("+{span}"),
            Some(Reset::At(time)) => format!("@{}", time.as_micros() / 1_000),
        };
        let window = it.window.map_or("-".to_owned(), |it| it.to_string());
        let name = it.name.as_str();
        format!("{name} {} {} {reset} {window} {:?}", number(it.limit), number(it.remaining), it.shape)
    };
    Advice::read(&headers).buckets.iter().map(report).collect()
}

#[test]
fn every_dialect_is_read() {
    for (lines, expected) in [
        // IETF, drafts 11, 7, 6 and 3.
        (
            &[
                ("ratelimit-policy", "\"api\";q=600;w=60,\"daily\";q=50000;w=86400"),
                ("ratelimit", "\"api\";r=599;t=60, \"daily\";r=49310;t=40211"),
            ][..],
            &["api 600 599 +1m 1m None", "daily 50000 49310 +40211s 1d None"][..],
        ),
        (&[("ratelimit-policy", "api;q=6;w=1"), ("ratelimit", "api;r=5;t=1")], &["api 6 5 +1s 1s None"]),
        (
            &[("ratelimit", "limit=5, remaining=0, reset=12"), ("ratelimit-policy", "5;w=60")],
            &[" 5 0 +12s 1m None"],
        ),
        (
            &[
                ("ratelimit-limit", "5"),
                ("ratelimit-remaining", "0"),
                ("ratelimit-reset", "12"),
                ("ratelimit-policy", "5;w=60, 100;w=86400"),
            ],
            &[" 5 0 +12s 1m None"],
        ),
        (
            &[
                ("ratelimit-limit", "20, 20;w=1, 900;w=60"),
                ("ratelimit-remaining", "7"),
                ("ratelimit-reset", "1"),
            ],
            &[" 20 7 +1s - None"],
        ),
        // Envoy.
        (
            &[
                ("x-ratelimit-limit", "10, 10;w=1;name=\"per-ip\""),
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "1"),
            ],
            &[" 10 3 +1s - None"],
        ),
        // GitHub, X, Discord.
        (
            &[
                ("x-ratelimit-limit", "5000"),
                ("x-ratelimit-remaining", "4987"),
                ("x-ratelimit-reset", "1700000000"),
                ("x-ratelimit-resource", "core"),
                ("x-ratelimit-used", "13"),
            ],
            &["core 5000 4987 @1700000000000 - Some(Window)"],
        ),
        (
            &[
                ("x-rate-limit-limit", "15"),
                ("x-rate-limit-remaining", "1"),
                ("x-rate-limit-reset", "1700000000"),
            ],
            &[" 15 1 @1700000000000 - None"],
        ),
        (
            &[
                ("x-ratelimit-limit", "5"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1470173023.123"),
                ("x-ratelimit-reset-after", "64.57"),
                ("x-ratelimit-bucket", "abcd1234"),
            ],
            &["abcd1234 5 0 +64570ms - Some(Window)"],
        ),
        // OpenAI.
        (
            &[
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-limit-tokens", "150000"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            &["requests 60 59 +1s - Some(Refill)", "tokens 150000 149984 +6m - Some(Refill)"],
        ),
        // A bucket of slots, and bytes.
        (
            &[("ratelimit-policy", "\"in\";q=20;qu=\"concurrent-requests\""), ("ratelimit", "\"in\";r=3")],
            &["in 20 3 - - None"],
        ),
    ] {
        assert_eq!(reports(lines), expected, "{lines:?}");
    }
}

#[test]
fn headers_that_lie_are_ignored_or_bounded() {
    for lines in [
        &[("x-ratelimit-limit", "-5"), ("x-ratelimit-remaining", "NaN")][..],
        &[("ratelimit", "\"a\";r=-1")],
        &[("ratelimit", "\"a\";r=9999999999999999999")],
        &[("ratelimit", "%%%")],
        &[("ratelimit-limit", ""), ("ratelimit-remaining", " ")],
        &[("age", "7"), ("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "0")],
        &[("x-ratelimit-limit-requests", "60"), ("x-ratelimit-remaining-requests", "1e3")],
    ] {
        assert_eq!(reports(lines), Vec::<String>::new(), "{lines:?}");
    }
    let many = (0..100).map(|at| format!("\"b{at}\";r=1")).collect::<Vec<_>>().join(", ");
    assert_eq!(reports(&[("ratelimit", &many)]).len(), MAX_BUCKETS);
    assert_eq!(reports(&[("ratelimit", &format!("\"{}\";r=1", "x".repeat(MAX_FIELD_BYTES)))]).len(), 0);
}

#[test]
fn the_longest_wait_counts_and_malformed_ones_do_not() {
    let after = |millis| Some(Wait::After(Span::from_millis(millis)));
    for (lines, wait) in [
        (&[("retry-after", "2")][..], after(2_000)),
        (&[("retry-after", "0.25")], after(250)),
        (&[("retry-after-ms", "1500")], after(1_500)),
        (&[("retry-after", "2"), ("retry-after-ms", "1500")], after(2_000)),
        (&[("retry-after", "1"), ("x-amz-retry-after", "1500")], after(1_500)),
        (&[("retry-after", "Thu, 01 Jan 1970 00:01:00 GMT")], Some(Wait::Until(Timestamp::from_secs(60)))),
        (
            &[("retry-after", "Sun, 07 Feb 2106 06:28:15 GMT")],
            Some(Wait::Until(Timestamp::from_secs(4_294_967_295))),
        ),
        (&[("retry-after", "1e9")], None),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "999999999999999999999")], Some(Wait::After(Span::from_micros(u64::MAX)))),
    ] {
        assert_eq!(Advice::read(&headers(lines)).wait, wait, "{lines:?}");
    }
}

#[test]
fn refusals_of_github_and_aws_are_recognized() {
    let refusal = |status: u16, lines: &[(&'static str, &str)]| {
        Advice::read(&headers(lines)).is_refusal(StatusCode::from_u16(status).unwrap())
    };
    assert!(refusal(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-limit", "60")]));
    assert!(refusal(403, &[("retry-after", "60")]));
    assert!(!refusal(403, &[("x-ratelimit-remaining", "7"), ("x-ratelimit-limit", "60")]));
    assert!(refusal(400, &[("x-amzn-errortype", "ThrottlingException:http://x")]));
    assert!(!refusal(400, &[("x-amzn-errortype", "ValidationException")]));
    assert!(!refusal(503, &[("retry-after", "5")]));
    assert!(Advice::read(&headers(&[("x-ratelimit-global", "true")])).is_global);
}

proptest! {
    #[test]
    fn no_header_makes_the_reader_panic(
        values in prop::collection::vec("[ -~]{0,40}", 8),
        odd in prop::collection::vec("(-|\\+)?[0-9]{0,25}(\\.|e|;|,|m|s)?[0-9a-z\"=;]{0,8}", 8),
    ) {
        let names = ["retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining",
            "x-ratelimit-reset", "x-ratelimit-reset-after", "x-ratelimit-limit-requests"];
        for set in [values, odd] {
            let mut headers = HeaderMap::new();
            for (name, value) in names.iter().zip(&set) {
                headers.insert(*name, value.parse().unwrap());
            }
            let advice = Advice::read(&headers);
            prop_assert!(advice.buckets.len() <= MAX_BUCKETS);
        }
    }
}
