//! Matching requests: layers, keys, plans, overrides, lists.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::net::IpAddr;

use tollgate_core::Rule;
use tollgate_policy::{Block, BlockReason, Call, Checks, Matched, Mode, Policy};

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Formats limit, window and key of each check.
fn checks(policy: &Policy, call: &Call<'_>) -> Vec<String> {
    let mut checks = Checks::new();
    assert_eq!(policy.match_request(call, &mut checks), Matched::Applies);
    let line = |check: &tollgate_policy::Check<'_>| {
        format!("{} {} for {} at {}", check.rule.name, check.rule.quota, check.key.display(), check.cost)
    };
    checks.iter().map(line).collect()
}

#[track_caller]
fn check(policy: &Policy, call: &Call<'_>, expected: &[&str]) {
    assert_eq!(checks(policy, call), expected);
}

const IP: [u8; 4] = [203, 0, 113, 9];

#[test]
fn every_limit_that_matches_is_reported_in_file_order() {
    let policy = policy(include_str!("../good/first.yaml"));
    check(
        &policy,
        &Call::new("POST", "/api/v1/login").ip(IP).user("ann"),
        &[
            "api-v1-login-by-ip token-bucket 10/minute for 203.0.113.9 at 1",
            "api-v1-login-by-user token-bucket 5/minute for ann at 1",
        ],
    );
    let search = ["api-v1-search-by-api_key token-bucket 1000/minute, burst 200 for k at 1"];
    check(&policy, &Call::new("GET", "/api/v1/search?q=x").api_key("k"), &search);
    check(&policy, &Call::new("GET", "/api/v1//search/").header("X-API-Key", "k"), &search);
    check(&policy, &Call::new("GET", "/api/v1/%73earch").header("Authorization", "Bearer k"), &search);
    check(&policy, &Call::new("GET", "/api/v1/searches").api_key("k"), &[]);
}

#[test]
fn a_missing_key_is_never_a_bypass() {
    let by_user = |missing: &str| policy(&format!("limits: [{{name: l, by: user, bucket: 1/s{missing}}}]"));
    let call = || Call::new("GET", "/").ip(IP);
    let rule = "l token-bucket 1/second";
    check(&by_user(""), &call(), &[&format!("{rule} for client 203.0.113.9 at 1")]);
    check(&by_user(""), &call().header("x-user-id", "  "), &[&format!("{rule} for client 203.0.113.9 at 1")]);
    check(&by_user(""), &Call::new("GET", "/"), &[&format!("{rule} for unknown client at 1")]);
    check(&by_user(", missing: shared"), &call(), &[&format!("{rule} for without at 1")]);
    check(&by_user(", missing: skip"), &call(), &[]);
    check(&by_user(", missing: skip"), &call().user("u"), &[&format!("{rule} for u at 1")]);
    let refusing = by_user(", missing: refuse");
    let mut checks = Checks::new();
    let limit = &refusing.limits()[0];
    let refused = Matched::Blocked(Block { limit, reason: BlockReason::MissingKey });
    assert_eq!(refusing.match_request(&call(), &mut checks), refused);
    let both = policy("limits: [{name: l, by: [user, ip, api_key], bucket: 1/s}]");
    check(&both, &call().api_key("k"), &[&format!("{rule} for client 203.0.113.9, 203.0.113.9, k at 1")]);
}

#[test]
fn a_stand_in_is_never_a_real_key() {
    let policy = policy("limits: [{by: user, bucket: 1/s}, {by: user, missing: shared, bucket: 1/m}]");
    let key = |call: &Call<'_>, at: usize| {
        let mut checks = Checks::new();
        policy.match_request(call, &mut checks);
        checks[at].key.clone()
    };
    let without = Call::new("GET", "/").ip(IP);
    for name in ["203.0.113.9", "client 203.0.113.9", "without", "\u{4}\u{cb}", "*", "-"] {
        for at in [0, 1] {
            assert_ne!(key(&without, at), key(&Call::new("GET", "/").ip(IP).user(name), at), "{name}");
        }
    }
}

#[test]
fn addresses_are_cut_to_their_prefix_and_written_in_one_way() {
    let policy = policy("limits: [{by: ip, bucket: 1/s}]");
    let key = |ip: &str| checks(&policy, &Call::new("GET", "/").ip(ip.parse::<IpAddr>().unwrap()));
    assert_eq!(key("2001:db8:1:2:3::4"), key("2001:db8:1:2:ffff::"));
    assert_ne!(key("2001:db8:1:2::"), key("2001:db8:1:3::"));
    assert_eq!(key("::ffff:203.0.113.9"), key("203.0.113.9"));
    assert_ne!(key("203.0.113.9"), key("203.0.113.8"));
}

#[test]
fn keys_come_from_every_part_of_a_request() {
    let policy = policy(
        r#"
limits:
  - {name: c, by: "cookie:sid", bucket: 1/s}
  - {name: q, by: "query:tok", bucket: 1/s}
  - {name: h, by: "header:X-Dev", bucket: 1/s}
  - {name: j, by: "claim:sub", bucket: 1/s}
  - {name: p, by: "path:id", endpoint: ["/u/{id}/x", "/{id}"], bucket: 1/s}
  - {name: t, by: tenant, bucket: 1/s}
  - {name: g, by: global, bucket: 1/s}
"#,
    );
    let call = Call::new("GET", "/u/42/x?a=1&tok=a%20b&tok=a+b")
        .header("Cookie", "x=1; sid=abc")
        .header("x-dev", " d1 ")
        .claim("sub", "me")
        .header("x-tenant-id", "acme");
    let keys: Vec<String> =
        checks(&policy, &call).iter().map(|it| it.replace(" token-bucket 1/second", "")).collect();
    assert_eq!(
        keys,
        [
            "c for abc at 1",
            "q for a b at 1",
            "h for d1 at 1",
            "j for me at 1",
            "p for 42 at 1",
            "t for acme at 1",
            "g for everyone at 1"
        ]
    );
}

#[test]
fn methods_hosts_and_headers_narrow_a_limit_and_leave_no_gap() {
    let policy = policy(
        r#"
limits:
  - {name: get, by: global, bucket: 1/s, method: get}
  - {name: write, by: global, bucket: 1/s, method: [POST, PUT]}
  - {name: host, by: global, bucket: 1/s, host: [API.example.com]}
  - {name: below, by: global, bucket: 1/s, host: ["*.example.com"]}
  - {name: header, by: global, bucket: 1/s, headers: {X-Beta: "*", X-V: 2}}
"#,
    );
    let names = |call: Call<'_>| {
        let names = checks(&policy, &call);
        names.iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(Call::new("HEAD", "/")), ["get"]);
    assert_eq!(names(Call::new("get", "/")), ["get"]);
    assert_eq!(names(Call::new("PUT", "/")), ["write"]);
    assert_eq!(names(Call::new("DELETE", "/").host("aPi.Example.COM.:8443")), ["host", "below"]);
    assert_eq!(names(Call::new("DELETE", "/").host("a.b.example.com")), ["below"]);
    assert_eq!(names(Call::new("DELETE", "/").host("example.com")), Vec::<String>::new());
    assert_eq!(names(Call::new("DELETE", "/").header("x-beta", "").header("x-v", "2")), ["header"]);
    assert_eq!(names(Call::new("DELETE", "/").header("x-beta", "").header("x-v", "3")), Vec::<String>::new());
}

#[test]
fn overrides_come_before_plans_and_plans_before_the_limit() {
    let policy = policy(
        r#"
plans: {default: free, from: "header:X-Plan"}
limits:
  - name: l
    by: api_key
    bucket: 10/minute
    plans: {free: 1/minute, pro: "100/minute, burst 5", max: unlimited, gone: blocked}
    overrides: {vip: 1000/minute, bad: blocked, own: unlimited}
"#,
    );
    let key = |key| Call::new("GET", "/").api_key(key);
    check(&policy, &key("k"), &["l token-bucket 1/minute for k at 1"]);
    check(&policy, &key("k").plan("pro"), &["l token-bucket 100/minute, burst 5 for k at 1"]);
    check(&policy, &key("k").header("x-plan", "pro"), &["l token-bucket 100/minute, burst 5 for k at 1"]);
    check(&policy, &key("k").plan("nobody-knows"), &["l token-bucket 10/minute for k at 1"]);
    check(&policy, &key("k").plan("max"), &[]);
    check(&policy, &key("vip").plan("gone"), &["l token-bucket 1000/minute for vip at 1"]);
    check(&policy, &key("own"), &[]);
    let mut out = Checks::new();
    let blocked = |reason| Matched::Blocked(Block { limit: &policy.limits()[0], reason });
    assert_eq!(policy.match_request(&key("bad"), &mut out), blocked(BlockReason::Override));
    assert_eq!(policy.match_request(&key("k").plan("gone"), &mut out), blocked(BlockReason::Plan));
    let ids: Vec<_> = [key("k"), key("k").plan("pro"), key("vip")]
        .map(|call| {
            policy.match_request(&call, &mut out);
            out[0].rule.id
        })
        .to_vec();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "each amount keeps its own usage");
}

#[test]
fn a_shadow_limit_blocks_no_request_and_reports_what_it_would_refuse() {
    let policy = policy("limits: [{name: l, by: user, bucket: 1/s, mode: shadow, missing: refuse}]");
    let call = Call::new("GET", "/");
    let mut checks = Checks::new();
    assert_eq!(policy.match_request(&call, &mut checks), Matched::Applies);
    assert_eq!(checks.shadowed()[0].reason, BlockReason::MissingKey);
    let enforced = policy.with_modes(|_| Mode::Enforce);
    assert!(matches!(enforced.match_request(&call, &mut Checks::new()), Matched::Blocked(_)));
    let off = policy.with_modes(|_| Mode::Off);
    assert_eq!(off.match_request(&call, &mut Checks::new()), Matched::Applies);
}

#[test]
fn deny_wins_over_allow_and_allow_over_limits() {
    let policy = policy(include_str!("../good/everything.yaml"));
    let matched = |call: &Call<'_>| match policy.match_request(call, &mut Checks::new()) {
        Matched::Allowed(entry) => format!("allowed by {entry} in line {}", entry.line()),
        Matched::Denied(entry) => format!("denied by {entry} in line {}", entry.line()),
        other => format!("{other:?}"),
    };
    let inside = || Call::new("GET", "/").ip([192, 0, 2, 77]);
    assert_eq!(matched(&inside()), "allowed by ip: a list in line 36");
    assert_eq!(matched(&inside().user("mallory")), "denied by user: a list in line 41");
    assert_eq!(matched(&inside().header("x-scraper", "?")), "denied by header:X-Scraper: * in line 42");
    assert_eq!(
        matched(&Call::new("GET", "/").api_key("internal")),
        "allowed by api_key: internal in line 37"
    );
    let compound = Call::new("GET", "/feed").header("x-internal", "1").user("u");
    assert_eq!(matched(&compound), "Applies", "one condition of two");
    assert!(
        matched(&compound.ip([10, 1, 1, 1])).starts_with("allowed by header:X-Internal: 1, ip: 10.0.0.0/8")
    );
}

#[test]
fn a_limit_that_settles_takes_its_reserve_first() {
    let policy = policy(
        "limits:
           - {name: default, by: global, bucket: 9/s, cost: {settle: 'time:10ms'}}
           - {name: number, by: global, bucket: 99/s, cost: {reserve: 50, settle: 'response:X-Used'}}
           - {name: header, by: global, bucket: 9/s, cost: {reserve: 'header:X-Cost', settle: 'json:a.b-c'}}
           - {name: body, by: global, bucket: 9/s, cost: {reserve: 'body:1KB', settle: 'json:n'}}
           - {name: plain, by: global, bucket: 9/s, cost: 'body:1_000'}",
    );
    assert!(policy.settles());
    let settled: Vec<_> = policy.limits().iter().map(|it| it.settle().map(ToString::to_string)).collect();
    let settled: Vec<_> = settled.iter().map(Option::as_deref).collect();
    assert_eq!(
        settled,
        [Some("time:10ms"), Some("response:x-used"), Some("json:a.b-c"), Some("json:n"), None]
    );
    let written: Vec<_> = policy.limits().iter().map(|it| it.cost().to_string()).collect();
    assert_eq!(written, ["1", "50", "header:x-cost", "body:1KiB", "body:1000"]);
    let mut checks = Checks::new();
    let call = Call::new("POST", "/").header("X-Cost", "7").header("Content-Length", "3001");
    policy.match_request(&call, &mut checks);
    assert_eq!(checks.iter().map(|it| it.cost).collect::<Vec<_>>(), [1, 50, 7, 3, 4]);
}

#[test]
fn nonsense_in_a_cost_header_is_never_cheaper() {
    let policy = policy("limits: [{name: l, by: global, bucket: 1/s, cost: 'header:X-Cost'}]");
    let cost = |value: &'static str| {
        let mut checks = Checks::new();
        policy.match_request(&Call::new("GET", "/").header("x-cost", value), &mut checks);
        checks[0].cost
    };
    for (value, expected) in [
        ("7", 7),
        (" 12 ", 12),
        ("", 1),
        ("0", 1),
        ("-5", 1),
        ("1e9", 1),
        ("0x10", 1),
        ("99999999999999999999999", u64::MAX),
    ] {
        assert_eq!(cost(value), expected, "{value:?}");
    }
    let mut checks = Checks::new();
    policy.match_request(&Call::new("GET", "/").header("x-cost", "7").cost(0), &mut checks);
    assert_eq!(checks[0].cost, 0, "the caller of the library may only look");
}

#[test]
fn a_limit_that_keeps_its_name_keeps_its_usage() {
    let text = |rate: &str, by: &str| {
        policy(&format!(
            "limits: [{{name: l, by: {by}, windows: [{rate}, 500/hour], plans: {{pro: [50/s, 900/hour]}}, overrides: {{a: [1/s, 2/hour]}}}}]"
        ))
    };
    let before = text("5/s", "user");
    let same = text("5/s", "user").carry_over_from(&before);
    assert_eq!(same.limits()[0].rules(), before.limits()[0].rules());
    let after = text("9/s", "user").carry_over_from(&before);
    let (old, new) = (&before.limits()[0].rules()[0], &after.limits()[0].rules()[0]);
    assert_ne!(old.id, new.id);
    assert_eq!(new.before.as_ref().map(|it| (it.id, it.quota.clone())), Some((old.id, old.quota.clone())));
    let Some(tollgate_policy::Allowance::Rules(pro)) = after.limits()[0].plan("pro") else { panic!("rules") };
    assert_eq!(pro[1].before, None, "what did not change needs no carrying over");
    let again = text("9/s", "user").carry_over_from(&after);
    assert_eq!(again.limits()[0].rules()[0].before, new.before, "an unchanged rule still remembers");
    let other_key = text("9/s", "tenant").carry_over_from(&before);
    assert_eq!(other_key.limits()[0].rules()[0].before, None, "other keys have other usage");
}

#[test]
fn windows_find_their_predecessors_by_name_length_or_place() {
    let text = |amount: &str| policy(&format!("limits: [{{name: l, by: user, {amount}}}]"));
    let check = |before: &str, after: &str, expected: &[Option<&str>]| {
        let old = text(before);
        let after = text(after).carry_over_from(&old);
        // Under the same id they share their states, so nothing is carried over.
        let same =
            |rule: &Rule| old.limits()[0].rules().iter().find(|old| old.id == rule.id).map(|old| &old.quota);
        let kept =
            |rule: &Rule| same(rule).or(rule.before.as_ref().map(|it| &it.quota)).map(ToString::to_string);
        let kept: Vec<_> = after.limits()[0].rules().iter().map(kept).collect();
        assert_eq!(kept.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{before}");
    };
    let (hour, day) = (Some("token-bucket 5/hour"), Some("token-bucket 100/day"));
    check("bucket: 5/hour", "windows: [5/hour, 100/day]", &[hour, None]);
    check("windows: [5/hour, 100/day]", "bucket: 5/hour", &[hour]);
    check("windows: [5/hour, 100/day]", "bucket: 7/day", &[day]);
    check("windows: [5/hour, 100/day]", "windows: [5/2h, 100/day]", &[hour, day]);
}

#[test]
fn limits_on_other_methods_do_not_take_each_others_names() {
    let one = policy("limits: [{endpoint: /login, method: POST, by: ip, bucket: 5/hour}]");
    let two = policy(
        "limits: [{endpoint: /login, method: GET, by: ip, bucket: 9/hour}, {endpoint: /login, method: POST, by: ip, bucket: 5/hour}]",
    );
    assert_eq!(one.limits()[0].name(), two.limits()[1].name());
    let unclear = policy("limits: [{by: ip, bucket: 5/hour}, {by: ip, bucket: 9/day}]");
    let warned = |message: &str| unclear.warnings().iter().any(|it| it.message == message);
    assert!(warned("two limits would be called `everything-by-ip`"));
}

#[test]
fn a_path_with_dots_also_matches_limits_for_servers_that_keep_dots() {
    let policy = policy(
        "limits: [{endpoint: /files/**, by: ip, bucket: 1/s}, {endpoint: '/{tenant}/search', by: ip, bucket: 1/s}]",
    );
    for (path, expected) in [
        ("/files/../big.iso", "files-all-by-ip"),
        ("/files/%2e%2e/big.iso", "files-all-by-ip"),
        ("/x/../files/a", "files-all-by-ip"),
        ("/../search", "tenant-search-by-ip"),
        ("/%2E/search", "tenant-search-by-ip"),
    ] {
        let mut checks = Checks::new();
        policy.match_request(&Call::new("GET", path), &mut checks);
        assert!(checks.iter().any(|check| check.limit.name() == expected), "{path}");
    }
}

#[test]
fn a_list_value_written_as_a_block_matches_without_its_line_break() {
    let policy = policy("deny:\n  - api_key: |\n      secret\nlimits: [{by: ip, bucket: 1/s}]");
    let mut checks = Checks::new();
    let matched = policy.match_request(&Call::new("GET", "/").api_key("secret"), &mut checks);
    assert!(matches!(matched, Matched::Denied(_)));
}

#[test]
fn one_path_parameter_in_two_spellings_is_one_key() {
    let policy = policy(
        "limits: [{endpoint: '/users/{id}', by: path:id, bucket: 1/s, overrides: {'bad@x.com': blocked, 'a b': blocked}}]",
    );
    let mut checks = Checks::new();
    let mut key = |path| {
        policy.match_request(&Call::new("GET", path), &mut checks);
        checks.first().map(|check| check.key.clone())
    };
    assert_eq!(key("/users/bob@x.com"), key("/users/bob%40x.com"));
    for path in ["/users/bad%40x.com", "/users/bad@x.com", "/users/a%20b"] {
        let mut out = Checks::new();
        assert!(
            matches!(policy.match_request(&Call::new("GET", path), &mut out), Matched::Blocked(_)),
            "{path}"
        );
    }
}

#[test]
fn names_are_derived_the_same_way_every_time() {
    let policy = policy(
        r#"
limits:
  - {endpoint: "/users/{id}/*", by: [ip, "header:X-Device"], bucket: 1/s}
  - {endpoint: /files/**, by: global, bucket: 1/s}
  - {endpoint: /files/**, by: user, bucket: 1/s, name: files-all-by-global-2}
  - {endpoint: /files/**, by: global, bucket: 1/s, method: POST}
  - {endpoint: /, by: ip, bucket: 1/s}
  - {endpoint: /a-very-long-path/that-goes-on/and-on/until-nobody/can-read-it-any-more, by: ip, bucket: 1/s}
  - {endpoint: /a-very-long-path/that-goes-on/and-on/until-nobody/can-read-it-any-more, by: user, bucket: 1/s}
"#,
    );
    let names: Vec<&str> = policy.limits().iter().map(tollgate_policy::Limit::name).collect();
    assert_eq!(
        names,
        [
            "users-id-any-by-ip-and-x-device",
            "files-all-by-global",
            "files-all-by-global-2",
            "post-files-all-by-global",
            "root-by-ip",
            "a-very-long-path-that-goes-on-and-on-until-nobody-can-read-it-an",
            "a-very-long-path-that-goes-on-and-on-until-nobody-can-read-it-2",
        ]
    );
    assert!(names.iter().all(|name| name.len() <= 64));
}

#[test]
fn ten_thousand_overrides_and_addresses_are_looked_up_at_once() {
    let mut text = String::from("deny:\n");
    for i in 0..10_000_u32 {
        writeln!(text, "  - ip: {}.{}.0.0/20", 1 + i / 256, i % 256).unwrap();
    }
    text.push_str("limits:\n  - name: l\n    by: api_key\n    bucket: 10/minute\n    overrides:\n");
    for i in 0..10_000 {
        writeln!(text, "      key-{i}: {}/minute", i + 1).unwrap();
    }
    let policy = policy(&text);
    let mut checks = Checks::new();
    assert!(matches!(
        policy.match_request(&Call::new("GET", "/").ip([3, 7, 15, 255]), &mut checks),
        Matched::Denied(_)
    ));
    assert_eq!(
        policy.match_request(&Call::new("GET", "/").ip([3, 7, 16, 0]).api_key("key-77"), &mut checks),
        Matched::Applies
    );
    assert_eq!(checks[0].rule.quota.capacity(), 78);
}
