//! Tests observe the behavior of the limiter, in virtual time.

use crate::{passes, run, surprise};

const LOGIN: &str = "limits: [{name: login, endpoint: /login, by: ip, bucket: 10/minute}]";

#[test]
fn a_bucket_is_spent_and_refills_in_virtual_time() {
    passes(
        LOGIN,
        "
      - {request: POST /login, times: 10, every: 100ms, expect: allowed}
      # 0.9 s have passed and brought 0.15 tokens: 0.85 of 6 s are left to wait.
      - request: POST /login
        expect:
          decision: refused
          limit: login
          remaining: 0
          retry_after: 5100ms
          status: 429
          headers: {Retry-After: '6', Retry-After-Ms: '5100', RateLimit: '*;r=0;*', X-Other: absent, Cache-Control: no-store}
      - {wait: 5099ms, request: POST /login, expect: refused}
      - {wait: 1ms, request: POST /login, expect: {decision: allowed, remaining: 0, headers: {Retry-After: absent}}}
      - at: +10m
      - {request: POST /login, times: 12, expect: {allowed: 10}}
      - {request: GET /elsewhere, expect: {decision: allowed, limits: [], headers: {RateLimit: absent}}}
",
    );
}

#[test]
fn windows_are_aligned_to_the_start_time_of_the_test() {
    let policy = "limits: [{name: daily, by: ip, algorithm: fixed-window, rate: 2/day}]";
    let test = "
tests:
  - name: a day ends at midnight
    at: 2026-03-01T23:59:58Z
    defaults: {ip: 203.0.113.9}
    steps:
      - {request: GET /, times: 2, expect: allowed}
      - {request: GET /, expect: {decision: refused, retry_after: 2s}}
      - {at: '2026-03-02T00:00:00Z', request: GET /, times: 2, expect: allowed}
      - {request: GET /, expect: {decision: refused, retry_after: 1d}}
";
    assert_eq!(run(policy, test).0[0].surprise, None);
}

#[test]
fn windows_of_a_limit_are_identified_by_name() {
    passes(
        "limits: [{name: api, by: ip, windows: [2/s, 3/m]}]",
        "
      - {request: GET /, times: 2, expect: {decision: allowed, remaining: {api: 0, api/1s: 0, api/1m: 1}}}
      - {request: GET /, expect: {decision: refused, limit: api/1s}}
      - {wait: 1s, request: GET /, expect: allowed}
      - {request: GET /, expect: {decision: refused, limit: api/1m}}
      - {request: GET /, expect: {decision: refused, limit: api}}
",
    );
}

#[test]
fn callers_are_taken_from_the_step_and_then_from_headers() {
    let policy = "
limits:
  - {name: users, by: user, bucket: 1/day, missing: refuse}
  - {name: keys, endpoint: /k, by: api_key, bucket: 1/day, missing: skip}
  - {name: orgs, endpoint: /o, by: 'claim:org', bucket: 1/day, missing: refuse}
  - {name: pro, endpoint: /p, by: ip, bucket: 1/day, plans: {pro: 2/day, none: blocked}}
  - {name: host, host: api.example.com, by: global, bucket: 1/day}
";
    passes(
        policy,
        "
      - {request: GET /, expect: {decision: refused, limit: users, status: 403, headers: {Retry-After: absent}}}
      - {request: GET /, user: ann, expect: allowed}
      - {request: GET /, headers: {X-User-Id: ann}, expect: refused}
      - {request: GET /, headers: {X-User-Id: bob}, expect: allowed}
      - {request: GET /k, user: c, headers: {Authorization: Bearer t}, expect: {decision: allowed, limits: [keys, users]}}
      - {request: GET /k, user: d, api_key: t, expect: {decision: refused, limit: keys}}
      - {request: GET /o, user: e, claims: {org: acme}, expect: allowed}
      - {request: GET /o, user: f, claims: {org: acme}, expect: {decision: refused, limit: orgs}}
      - {request: GET /p, user: g, plan: pro, expect: {decision: allowed, remaining: {pro: 1}}}
      - {request: GET /p, user: h, plan: none, expect: {decision: refused, limit: pro, status: 403}}
      - {request: GET /, user: i, host: 'api.example.com:443', expect: {decision: allowed, limits: [users, host]}}
      - {request: GET /, user: j, host: api.example.com, expect: {decision: refused, limit: host}}
      - {request: 'GET http://api.example.com/', user: k, expect: {decision: refused, limit: host}}
",
    );
}

#[test]
fn headers_change_the_client_of_a_peer_but_not_a_stated_client() {
    let policy = "
client: {trusted_proxies: [10.0.0.0/8]}
limits: [{name: ips, by: ip, bucket: 1/day}]
";
    passes(
        policy,
        "
      - {request: GET /, expect: allowed}
      - {request: GET /, headers: {X-Forwarded-For: 198.51.100.7}, expect: refused}
      - {request: GET /, peer: 10.0.0.1, headers: {X-Forwarded-For: 203.0.113.9}, expect: refused}
      - {request: GET /, peer: 10.0.0.1, headers: {X-Forwarded-For: 198.51.100.7}, expect: allowed}
      - {request: GET /, peer: 192.0.2.1, headers: {X-Forwarded-For: 203.0.113.9}, expect: allowed}
",
    );
}

#[test]
fn slots_are_held_for_as_long_as_a_request_takes() {
    let policy = "limits: [{name: exports, by: ip, slots: 2}]";
    passes(
        policy,
        "
      - {request: GET /, times: 5, expect: allowed}
      - {request: GET /, takes: 10s, times: 3, expect: {allowed: 2, limit: exports, retry_after: 1s}}
      - {wait: 9999ms, request: GET /, expect: refused}
      - {wait: 1ms, request: GET /, expect: allowed}
",
    );
}

#[test]
fn the_actual_cost_is_settled_when_the_request_ends() {
    let policy = "limits: [{name: tokens, by: ip, bucket: 100/hour}]";
    passes(
        policy,
        "
      - {request: GET /, cost: 50, settle: 20, expect: {decision: allowed, remaining: 50}}
      - {request: GET /, cost: 0, expect: {decision: allowed, remaining: 80}}
      - {request: GET /, cost: 20, takes: 1s, settle: {tokens: 10}, expect: {decision: allowed, remaining: 60}}
      - {wait: 999ms, request: GET /, cost: 0, expect: {decision: allowed, remaining: 60}}
      - {wait: 1ms, request: GET /, cost: 0, expect: {decision: allowed, remaining: 70}}
      - at: +1h
      - {request: GET /, cost: 50, settle: 10, expect: {decision: allowed, remaining: 50}}
      - {request: GET /, cost: 0, expect: {decision: allowed, remaining: 90}}
      - {request: GET /, cost: 90, expect: allowed}
      - {request: GET /, cost: 101, expect: {decision: refused, headers: {Retry-After: absent}}}
",
    );
}

#[test]
fn descriptors_are_checked_by_limits_on_descriptors() {
    let policy = "limits: [{name: gold, descriptor: [plan=gold, user], domain: edge, by: 'descriptor:user', bucket: 1/day}]";
    passes(
        policy,
        "
      - {descriptor: [plan=gold, user=ann], domain: edge, expect: {decision: allowed, limits: gold, remaining: 0}}
      - {descriptor: [plan=gold, user=ann], domain: edge, expect: {decision: refused, limit: gold}}
      - {descriptor: [plan=gold, user=bob], domain: edge, expect: allowed}
      - {descriptor: [plan=gold, user=ann], domain: other, expect: {decision: allowed, limits: []}}
",
    );
}

#[test]
fn lists_soft_thresholds_and_shadow_limits_are_observable() {
    let policy = "
deny: [{ip: 192.0.2.0/24}]
limits:
  - {name: marked, by: ip, bucket: 2/day, soft: 50%}
  - {name: quiet, by: ip, bucket: 1/day, mode: shadow}
";
    passes(
        policy,
        "
      - {request: GET /, ip: 192.0.2.1, expect: {decision: refused, status: 403, limits: []}}
      - {request: GET /, expect: {decision: allowed, soft: marked, would_refuse: []}}
      - {request: GET /, expect: {decision: allowed, soft: [marked], would_refuse: quiet}}
      - {request: GET /, expect: {decision: refused, soft: [], would_refuse: quiet, limits: [quiet, marked]}}
",
    );
}

#[test]
fn dialects_apply_and_jitter_is_disabled() {
    let policy = "
headers: {x_ratelimit: off, ietf: draft-6, retry_after_jitter: 50%}
limits: [{name: api, by: ip, bucket: 1/minute, dialects: openai}]
";
    passes(
        policy,
        "
      - {request: GET /, expect: {decision: allowed, headers: {RateLimit-Remaining: '0', X-RateLimit-Remaining: absent}}}
      - {request: GET /, expect: {decision: refused, retry_after: 1m, headers: {Retry-After: '60', Content-Type: application/json}}}
",
    );
}

#[test]
fn a_test_starts_with_an_empty_store() {
    let one = "{request: POST /login, times: 10, expect: allowed}";
    let tests = format!("tests: [{{name: a, steps: [{one}]}}, {{name: b, steps: [{one}]}}]");
    let (verdicts, _) = run(LOGIN, &tests);
    assert!(verdicts.iter().all(tollgate_policy_test::Verdict::has_passed), "{verdicts:?}");
}

#[test]
fn an_unexpected_outcome_names_line_time_request_and_reason() {
    let surprise = surprise(
        LOGIN,
        "
      - {request: POST /login, times: 3, every: 1s, expect: allowed}
      - request: POST /login
        times: 9
        expect: allowed
",
    );
    assert_eq!((surprise.line, surprise.number, surprise.of), (7, 8, 9));
    assert_eq!((surprise.request.as_str(), surprise.after.as_str()), ("POST /login from 203.0.113.9", "2s"));
    let [mismatch] = &surprise.mismatches[..] else { panic!("{surprise:?}") };
    assert_eq!((mismatch.line, mismatch.expected.as_str()), (9, "allowed"));
    assert_eq!(mismatch.came, "refused by `login`, wait 4s");
    assert_eq!(
        surprise.why,
        ["login for 203.0.113.9: refuses; 10 per minute, 0 of 10 left, wait 4s <- decided"]
    );
}

#[test]
fn all_mismatches_of_an_outcome_are_reported_together() {
    let surprise = surprise(
        LOGIN,
        "
      - request: POST /login
        times: 11
        expect:
          allowed: 11
          limit: login
          remaining: 3
          retry_after: 5s
          status: 403
          headers: {Retry-After: absent, RateLimit: x, Content-Type: 'application/*'}
          limits: []
          soft: login
",
    );
    let came: Vec<_> = surprise.mismatches.iter().map(|it| (it.line, it.came.as_str())).collect();
    assert_eq!(
        came,
        [
            (9, "10 allowed, 1 refused"),
            (11, "0 left"),
            (12, "wait 6s"),
            (15, "limits asked: login"),
            (16, "soft: none"),
            (13, "status 429"),
            (14, "Retry-After: 6"),
            (14, "RateLimit: \"login\";r=0;t=6"),
        ]
    );
}

#[test]
fn priority_classes_and_shed_requests_can_be_expected() {
    let policy = "
priorities: [{name: critical, endpoint: /pay}, {name: normal}, {name: bulk, headers: {x-priority: bulk}}]
shed: {fleet: {rate: 2/hour, reserve: {critical: 1}}}
limits: []
";
    passes(
        policy,
        "
      - {request: GET /, headers: {x-priority: critical}, expect: {decision: allowed, priority: normal}}
      - {request: GET /, headers: {x-priority: bulk}, expect: {decision: refused, priority: bulk, limit: shed.fleet, status: 503}}
      - {request: GET /pay, expect: {decision: allowed, priority: critical}}
",
    );
    let wrong = surprise(policy, "      - {request: GET /pay, expect: {priority: bulk}}\n");
    assert_eq!(wrong.mismatches[0].came, "priority `critical`");
}
