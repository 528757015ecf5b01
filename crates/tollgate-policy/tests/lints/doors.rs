//! Lints on fixed windows, logins and the capacity of the upstream service: policies with each lint,
//! and near misses without it.

use super::cases::check;
use super::codes;

#[test]
fn a_fixed_window_is_alone_without_a_shorter_or_a_better_one() {
    const X: &str = "{name: x, by: api_key, rate: 100/minute, algorithm: fixed-window}";
    for (others, is_alone) in [
        ("", true),
        ("{name: y, by: api_key, bucket: 5/second}", false),
        ("{name: y, by: global, bucket: 5/second}", false),
        ("{name: y, by: api_key, rate: 5/second, algorithm: fixed-window}", false),
        ("{name: y, by: api_key, rate: 50/minute, algorithm: sliding-window, expect: never-fires}", false),
        // The shorter of two.
        ("{name: y, by: api_key, bucket: 1000/hour}", false),
        // It admits as much at the border.
        ("{name: y, by: api_key, bucket: 1000000/second, expect: never-fires}", true),
        ("{name: y, by: api_key, bucket: 1000000/day}", true),
        // Other requests, other keys, other units, and a limit that refuses nothing.
        ("{endpoint: /b, by: api_key, bucket: 5/second}", true),
        ("{name: y, by: [api_key, user], bucket: 5/second}", true),
        ("{name: y, by: api_key, bucket: 5/second, cost: 'header:X-Tokens'}", true),
        ("{name: y, by: api_key, bucket: 5/second, mode: shadow}", true),
        ("{name: y, by: api_key, bucket: 5/second, mode: off}", true),
        ("{name: y, by: api_key, slots: 5}", true),
    ] {
        let text = format!("limits: [{X}, {others}]").replace(", ]", "]");
        let found = codes(&text);
        assert_eq!(found.contains(&"fixed-window-alone"), is_alone, "{text}: {found:?}");
    }
    check(
        "fixed-window-alone",
        &[
            "limits: [{by: ip, rate: 100/minute, algorithm: fixed-window, mode: shadow}]",
            "limits: [{by: ip, windows: [100/second, 100/minute], algorithm: fixed-window, expect: never-fires}]",
        ],
        &[
            "limits: [{by: ip, windows: [5/second, 100/minute], algorithm: fixed-window}]",
            "limits: [{by: ip, rate: 100/minute, algorithm: fixed-window, mode: off}]",
            "limits: [{by: ip, rate: 100/day, algorithm: fixed-window, align: calendar}]",
        ],
    );
}

#[test]
fn requests_beside_tokens_are_not_the_same_twice() {
    check(
        "same-twice",
        &["limits: [{name: a, by: ip, bucket: 5/second}, {name: b, by: ip, bucket: 100/minute}]"],
        &[
            "limits: [{name: a, by: ip, bucket: 60/minute}, {name: b, by: ip, bucket: 1000/minute, cost: 'header:X-T'}]",
            "limits: [{name: a, by: ip, bucket: 60/minute}, {name: b, by: ip, bucket: 1000/minute, cost: {reserve: 1, settle: 'json:a.b'}}]",
            "limits: [{name: a, by: ip, bucket: 5/second}, {name: b, by: ip, bucket: 100/minute, count_denied: true}]",
        ],
    );
}

#[test]
fn limits_above_the_upstream_capacity_are_reported() {
    let with_capacity =
        |capacity: &str, limits: &str| format!("gateway: {{capacity: {capacity}}}\nlimits: [{limits}]");
    for (capacity, limits, is_more) in [
        ("100/s", "{by: global, bucket: '50/s, burst 101'}", true),
        ("100/s", "{by: global, bucket: '50/s, burst 100'}", false),
        ("100/s", "{by: global, bucket: '101/s, burst 10'}", true),
        ("100/s", "{by: user, bucket: 10000/day}", true),
        ("100/s", "{by: user, windows: [50/s, 10000/day]}", false),
        ("100/s", "{by: user, bucket: 10000/day}, {endpoint: /a, by: global, bucket: 50/s}", true),
        // Another limit holds back the same key.
        ("100/s", "{endpoint: /a, by: user, bucket: 10000/day}, {by: global, bucket: 50/s}", false),
        ("100/s", "{by: user, bucket: 200/day, cost: 2}", false),
        ("100/s", "{by: user, bucket: 10000/day, mode: shadow}", false),
        ("100/s", "{by: user, slots: 200}", false),
        // Not a whole number a second.
        ("100/minute", "{by: global, bucket: '100/minute, burst 1'}", false),
        ("100/minute", "{by: global, bucket: '101/minute, burst 1'}", true),
        ("90/minute", "{by: global, bucket: '90/minute, burst 1'}", false),
        ("1/minute", "{by: global, bucket: '1/second, burst 1'}", true),
        ("1/minute", "{by: global, bucket: '1/minute, burst 1'}", false),
        // Some plans are granted more.
        ("100/s", "{by: user, bucket: 60/minute, plans: {pro: 100000/minute}}", true),
        (
            "100/s",
            "{by: user, bucket: 60/minute, plans: {pro: 90/minute, own: unlimited, no: blocked}}",
            false,
        ),
        ("100/s", "{by: user, bucket: 60/minute, overrides: {ann: 100000/minute}}", true),
        ("100/s", "{by: user, bucket: 60/minute, overrides: {ann: 90/minute, bob: unlimited}}", false),
        (
            "100/s",
            "{endpoint: /a, by: user, bucket: 60/minute, plans: {pro: 100000/minute}}, {by: global, bucket: 99/s}",
            false,
        ),
        // The end of a window and the start of the next.
        ("100/s", "{by: global, rate: 100/s, algorithm: fixed-window, expect: fixed-window-alone}", true),
        ("100/s", "{by: global, rate: 50/s, algorithm: fixed-window, expect: fixed-window-alone}", false),
        ("100/s", "{by: global, rate: 100/s, algorithm: sliding-window}", false),
    ] {
        let expected: &[&str] = if is_more { &["burst-above-upstream"] } else { &[] };
        assert_eq!(codes(&with_capacity(capacity, limits)), expected, "{capacity} {limits}");
    }
    assert_eq!(codes("limits: [{by: user, bucket: 10000/day}]"), [""; 0]);
    // The gateway reports mistakes in the section.
    for odd in ["many", "[1/s]", "0/s", "{a: 1/s}"] {
        assert_eq!(codes(&with_capacity(odd, "{by: user, bucket: 10000/day}")), [""; 0], "{odd}");
    }
}

#[test]
fn a_login_endpoint_needs_two_limits() {
    check(
        "login-unlimited",
        &[
            "limits: [{endpoint: /api/login, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /Sign-In, by: user, bucket: 10/minute}]",
            "limits: [{endpoint: '/users/{id}/reset_password', by: [ip, user], bucket: 10/minute}]",
            "limits: [{endpoint: /oauth/token, by: global, bucket: 10/minute}]",
            "limits: [{endpoint: /otp, by: ip, bucket: 10/minute}, {endpoint: /otp, by: user, bucket: 5/minute, mode: off}]",
            // A limit on everything, and a limit for another purpose.
            "limits: [{endpoint: /login, by: ip, bucket: 10/minute}, {by: user, bucket: 1000/minute}]",
            "limits: [{endpoint: /login/**, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /wp-login.php, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /auth/session, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /login, by: ip, bucket: 10/minute}, {endpoint: /login, by: 'cookie:sid', bucket: 5/minute}]",
            // Another method, another host, or a rate that does not prevent guessing.
            "limits: [{endpoint: /login, method: GET, by: ip, bucket: 10/minute}, {endpoint: /login, method: GET, by: user, bucket: 5/minute}]",
            "limits: [{endpoint: /login, by: ip, bucket: 10/minute}, {endpoint: /login, host: a.b, by: user, bucket: 5/minute}]",
            "limits: [{endpoint: /login, by: ip, bucket: 5/minute, expect: ip-narrower-than-user}, {endpoint: /login, by: user, bucket: '101/s, burst 5'}]",
            "limits: [{endpoint: /login, by: ip, bucket: 5/minute}, {endpoint: /login, by: user, slots: 5}]",
            // Sign-up has no account yet and needs a limit by address.
            "limits: [{endpoint: /signup, by: global, bucket: 10/minute}]",
            "limits: [{endpoint: [/login, /login], by: ip, bucket: 10/minute, expect: shadowed-endpoint}]",
        ],
        &[
            "limits: [{endpoint: /login, by: ip, bucket: 10/minute}, {endpoint: /login, by: user, bucket: 5/minute}]",
            "limits: [{endpoint: [/login, /otp], by: ip, bucket: 10/minute}, {endpoint: /**, by: user, bucket: 5/minute}]",
            "limits: [{endpoint: /tokens/list, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /tokens, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /blogin, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /v1/token, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /v1/session, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: [/register, /signup, /sign-up.aspx], by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /login/**, by: ip, bucket: 10/minute}, {endpoint: /login/**, by: user, bucket: 5/minute}]",
            "limits: [{endpoint: /otp, method: PUT, by: ip, bucket: 10/minute}, {endpoint: /otp, method: [GET, PUT, PATCH], by: user, bucket: 5/minute}, {endpoint: /otp, method: PATCH, by: ip, bucket: 10/minute}]",
            "limits: [{endpoint: /login, by: ip, bucket: 10/minute, mode: off}]",
            "limits: [{by: ip, bucket: 1000/minute}]",
        ],
    );
}
