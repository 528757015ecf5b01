//! Policies with each lint, and near misses without it.

use super::codes;

/// Checks policies that have only this lint, and near misses without lints.
pub(super) fn check(code: &'static str, with: &[&str], without: &[&str]) {
    for text in with {
        assert_eq!(codes(text), [code], "{text}");
    }
    for text in without {
        assert_eq!(codes(text), [""; 0], "{text}");
    }
}

#[test]
fn a_limit_behind_a_narrower_one_never_fires() {
    check(
        "never-fires",
        &[
            "limits: [{name: a, by: ip, bucket: 10/second}, {name: b, by: ip, bucket: 20/second}]",
            // The order does not matter, except for two equal limits.
            "limits: [{name: b, by: ip, bucket: 20/second}, {name: a, by: ip, bucket: 10/second}]",
            "limits: [{name: a, by: ip, bucket: 10/second}, {name: b, by: ip, bucket: 10/second}]",
            // A coarser key, and more requests.
            "limits: [{by: global, bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s}]",
            "limits: [{by: ip, bucket: 5/s}, {endpoint: /a, by: [ip, user], bucket: 10/s}]",
            "limits: [{method: GET, by: ip, bucket: 5/s}, {method: HEAD, by: ip, bucket: 10/s}]",
            "limits: [{host: '*.a.b', by: ip, bucket: 5/s}, {host: [x.a.b, '*.y.a.b'], by: ip, bucket: 10/s}]",
            "limits: [{headers: {X: '*'}, by: ip, bucket: 5/s}, {name: b, headers: {x: 1, y: 2}, by: ip, bucket: 10/s}]",
            "limits: [{descriptor: [a, b], by: global, bucket: 5/s}, {descriptor: [a, b=c], domain: d, bucket: 6/s}]",
            // A bucket of 10 with 10 a second admits 70 in 6 seconds minus a microsecond, 69 of them before.
            "limits: [{name: a, by: ip, bucket: 10/second}, {name: b, by: ip, rate: 69/6s, algorithm: sliding-log}]",
            "limits: [{name: a, by: ip, rate: 5/s, algorithm: sliding-window}, {name: b, by: ip, rate: 5/s, algorithm: fixed-window}]",
            "limits: [{name: a, by: ip, slots: 5}, {name: b, by: ip, slots: 6}]",
            // Plans of both are compared.
            "limits: [{name: a, by: ip, bucket: 2/s, plans: {p: 4/s}}, {name: b, by: ip, bucket: 4/s, plans: {p: unlimited}}]",
            "limits: [{by: ip, windows: ['1/s, burst 10', 100/minute]}]",
            "limits: [{by: ip, algorithm: sliding-log, windows: [10/second, 601/minute]}]",
            "limits: [{by: ip, algorithm: sliding-log, windows: [10/second, 600/minute]}]",
        ],
        &[
            "limits: [{by: ip, bucket: 10/second}, {endpoint: /a, by: user, bucket: 5/second}]",
            "limits: [{endpoint: /a, by: ip, bucket: 5/s}, {by: ip, bucket: 10/s}]",
            "limits: [{endpoint: /a, by: ip, bucket: 5/s}, {endpoint: [/b, /a], by: ip, bucket: 10/s}]",
            "limits: [{by: [ip, user], bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s}]",
            "limits: [{by: ip, bucket: 5/s, mode: shadow}, {endpoint: /a, by: ip, bucket: 10/s}]",
            "limits: [{by: ip, bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s, mode: shadow}]",
            "limits: [{by: ip, bucket: 5/s}, {endpoint: /a, by: ip, bucket: '4/s, burst 20'}]",
            "limits: [{by: ip, bucket: '5/s, burst 9'}, {endpoint: /a, by: ip, bucket: '6/s, burst 8'}]",
            // One limit counts refused requests, one has a higher cost.
            "limits: [{by: ip, bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s, count_denied: true}]",
            "limits: [{by: ip, bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s, cost: 2}]",
            "limits: [{by: ip, bucket: 5/s, overrides: {1.2.3.4: unlimited}}, {endpoint: /a, by: ip, bucket: 10/s}]",
            "limits: [{by: ip, bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s, overrides: {1.2.3.4: blocked}}]",
            "limits: [{by: user, missing: skip, bucket: 5/s}, {endpoint: /a, by: user, bucket: 10/s}]",
            "limits: [{by: ip, bucket: 5/s, on_outage: allow}, {endpoint: /a, by: ip, bucket: 10/s}]",
            "limits: [{method: POST, by: ip, bucket: 5/s}, {endpoint: /a, by: ip, bucket: 10/s}]",
            "limits: [{host: a.b, by: ip, bucket: 5/s}, {host: '*.a.b', by: ip, bucket: 10/s}]",
            "limits: [{by: ip, algorithm: sliding-log, windows: [10/second, 599/minute]}]",
            // The bucket is full at first: 609 requests arrive before the first one leaves the log.
            "limits: [{name: a, by: ip, bucket: 10/second}, {name: b, by: ip, rate: 608/minute, algorithm: sliding-log}]",
            "limits: [{by: ip, windows: [10/second, 1000/hour]}]",
            "limits: [{by: ip, windows: [10/second, 1000/minute], plans: {p: [100/second, 2000/minute]}}]",
            "limits: [{name: a, by: ip, slots: 5}, {name: b, endpoint: /a, by: ip, slots: 5, ttl: 90s}]",
        ],
    );
}

#[test]
fn an_address_limit_below_the_user_limit_is_reported() {
    check(
        "ip-narrower-than-user",
        &[
            "limits: [{by: ip, bucket: 60/minute}, {by: user, bucket: 100/minute}]",
            "limits: [{by: user, bucket: 100/minute}, {by: ip, bucket: 60/minute}]",
            "limits: [{by: ip, bucket: 60/minute}, {endpoint: /a, by: api_key, bucket: 100/minute}]",
            "limits: [{by: ip, bucket: 60/minute}, {by: tenant, rate: 100/minute, algorithm: sliding-window, parts: 7}]",
            "limits: [{by: ip, bucket: 600/minute}, {by: user, bucket: 100/minute, plans: {pro: 1000/minute}}]",
            // The same rate with a smaller burst.
            "limits: [{by: ip, bucket: '10/s, burst 1'}, {by: user, bucket: '10/s, burst 50'}]",
        ],
        &[
            "limits: [{by: ip, bucket: 100/minute}, {by: user, bucket: 60/minute}]",
            // A limit for one endpoint may be narrower on purpose.
            "limits: [{endpoint: /a, by: ip, bucket: 10/minute}, {by: user, bucket: 100/minute}]",
            // A short limit beside a long one.
            "limits: [{by: ip, bucket: 10/second}, {by: user, bucket: 10000/day}]",
            "limits: [{by: ip, bucket: 60/minute, mode: shadow}, {by: user, bucket: 100/minute}]",
            "limits: [{by: ip, bucket: 60/minute}, {by: user, bucket: 100/minute, cost: 2}]",
            "limits: [{by: ip, bucket: 600/minute, plans: {pro: 5000/minute}}, {by: user, bucket: 100/minute, plans: {pro: 1000/minute}}]",
            "limits: [{by: ip, bucket: 60/minute}, {by: user, slots: 100}]",
        ],
    );
}

#[test]
fn a_forgeable_key_needs_a_second_limit() {
    check(
        "unbounded-key",
        &[
            "limits: [{by: 'header:X-A', bucket: 1/s}]",
            "limits: [{by: 'cookie:a', bucket: 1/s}]",
            "limits: [{by: 'query:a', bucket: 1/s}]",
            "limits: [{endpoint: '/a/{x}', by: 'path:x', bucket: 1/s}]",
            "limits: [{by: [ip, 'header:X-A'], bucket: 1/s}]",
            // Other requests, a limit that is off, or one that skips requests without a key.
            "limits: [{by: 'header:X-A', bucket: 1/s}, {endpoint: /a, by: ip, bucket: 100/s}]",
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: ip, bucket: 100/s, mode: off}]",
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: user, missing: skip, bucket: 100/s}]",
            // A limit that refuses nothing, and one that bounds concurrency.
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: ip, bucket: 100/s, mode: shadow}]",
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: ip, slots: 100}]",
        ],
        &[
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: ip, bucket: 100/s}]",
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: global, bucket: 100/s}]",
            "limits: [{by: 'header:X-A', bucket: 1/s}, {by: api_key, bucket: 100/s}]",
            "limits: [{endpoint: '/a/{x}', by: 'path:x', bucket: 1/s}, {endpoint: /a/**, by: ip, bucket: 100/s}]",
            "limits: [{by: 'header:X-A', slots: 1}, {by: ip, slots: 100}]",
            "limits: [{by: [ip, user], bucket: 1/s}]",
            "limits: [{by: 'claim:sub', bucket: 1/s}]",
            "limits: [{descriptor: [a, b], by: 'descriptor:a', bucket: 1/s}]",
            "limits: [{by: 'header:X-A', bucket: 1/s, mode: off}]",
        ],
    );
}

#[test]
fn redundant_endpoints_and_limits_are_reported() {
    check(
        "shadowed-endpoint",
        &[
            "limits: [{endpoint: [/a/**, /a/b], by: ip, bucket: 1/s}]",
            "limits: [{endpoint: [/a/b, '/a/*'], by: ip, bucket: 1/s}]",
            "limits: [{endpoint: [/a, /a/], by: ip, bucket: 1/s}]",
        ],
        &[
            "limits: [{endpoint: ['/a/*', /a/b/c], by: ip, bucket: 1/s}]",
            "limits: [{endpoint: [/a/b/**, '/a/*'], by: ip, bucket: 1/s}]",
        ],
    );
    check(
        "matches-nothing",
        &[
            "limits: [{headers: {X-A: 1, x-a: 2}, by: ip, bucket: 1/s}]",
            "allow: [{'header:X-A': '1'}]\nlimits: [{headers: {x-a: 1}, by: ip, bucket: 1/s}]",
            "allow: [{'header:X-A': '*'}]\nexpect: forgeable-allow\nlimits: [{headers: {x-a: 1}, by: ip, bucket: 1/s}]",
        ],
        &[
            "limits: [{headers: {X-A: 1, x-a: '*'}, by: ip, bucket: 1/s}]",
            "allow: [{'header:X-A': '2'}]\nlimits: [{headers: {x-a: 1}, by: ip, bucket: 1/s}]",
            "allow: [{'header:X-A': '1', ip: 10.0.0.0/8}]\nlimits: [{headers: {x-a: 1}, by: ip, bucket: 1/s}]",
        ],
    );
}

#[test]
fn lists_that_match_every_caller_are_reported() {
    let limit = "limits: [{by: ip, bucket: 1/s}]";
    for (list, expected) in [
        ("allow: [{ip: '::/0'}]", &["allows-everybody"][..]),
        ("allow: [{ip: 0.0.0.0/1}]", &[]),
        ("deny: [{ip: 0.0.0.0/0}]", &["denies-everybody"]),
        ("deny: [{ip: 0.0.0.0/0, user: x}]", &[]),
        ("allow: [{api_key: '*'}]", &["forgeable-allow"]),
        ("allow: [{user: '*', 'cookie:a': '*'}]", &["forgeable-allow"]),
        ("allow: [{api_key: [a, b]}]", &[]),
        ("allow: [{'claim:role': '*'}]", &[]),
        ("deny: [{'header:X-Bot': '*'}]", &[]),
    ] {
        assert_eq!(codes(&format!("{list}\n{limit}")), expected, "{list}");
    }
    check(
        "default-plan-unlimited",
        &["plans: {default: a}\nlimits: [{by: ip, bucket: 1/s, plans: {a: unlimited, b: 2/s}}]"],
        &["plans: {default: a}\nlimits: [{by: ip, bucket: 1/s, plans: {a: 2/s, b: unlimited}}]"],
    );
}
