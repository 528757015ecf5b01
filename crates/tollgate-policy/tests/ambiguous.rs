//! Requests with several different credentials gain nothing from them.
#![allow(clippy::unwrap_used, reason = "tests")]

use tollgate_policy::{BlockReason, Call, Checks, Key, Matched, Policy};

/// Returns the displayed key of the only check; `refused` and `no check` otherwise.
fn key_of(policy: &Policy, call: &Call<'_>) -> String {
    let mut checks = Checks::new();
    match policy.match_request(call, &mut checks) {
        Matched::Applies if checks.is_empty() => "no check".to_owned(),
        Matched::Applies => checks[0].key.display().to_string(),
        Matched::Allowed(_) => "allowed".to_owned(),
        Matched::Denied(_) => "denied".to_owned(),
        Matched::AmbiguousPath => "ambiguous path".to_owned(),
        Matched::Blocked(block) => format!("{:?}", block.reason),
    }
}

fn by(source: &str, more: &str) -> Policy {
    Policy::parse(&format!("limits: [{{name: it, by: '{source}', bucket: 5/hour{more}}}]")).unwrap()
}

fn get<'a>(target: &'a str, headers: &[(&'a str, &'a str)]) -> Call<'a> {
    let call = Call::new("GET", target).ip([203, 0, 113, 9]);
    headers.iter().fold(call, |call, (name, value)| call.header(name, *value))
}

const ADDRESS: &str = "client 203.0.113.9";

/// Checks how limits count a request, for all values of `missing`.
#[track_caller]
fn check(source: &str, target: &str, headers: &[(&str, &str)], expected: &str) {
    let call = get(target, headers);
    assert_eq!(key_of(&by(source, ""), &call), expected, "{source} {target} {headers:?}");
    if expected == ADDRESS {
        for missing in ["skip", "shared", "ip"] {
            let policy = by(source, &format!(", missing: {missing}"));
            assert_eq!(key_of(&policy, &call), ADDRESS, "{missing}: {source} {target} {headers:?}");
        }
        assert_eq!(key_of(&by(source, ", missing: refuse"), &call), "Ambiguous", "{source} {headers:?}");
    }
}

#[test]
fn a_key_with_several_values_counts_by_address_and_never_by_another_source() {
    for lines in [
        &[("x-api-key", "a"), ("x-api-key", "b")][..],
        &[("x-api-key", "a"), ("x-api-key", "b"), ("authorization", "Bearer fresh")],
        &[("X-API-Key", "a"), ("x-api-key", "a"), ("X-Api-Key", "b")],
        &[("x-api-key", ""), ("x-api-key", "fresh")],
        &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
        &[("authorization", "Basic a"), ("authorization", "Bearer fresh")],
        &[("authorization", "Bearer fresh"), ("authorization", "Digest a")],
        &[("authorization", "Bearer a fresh")],
        &[("authorization", "Bearer a;fresh")],
        &[("authorization", "Bearer a,fresh")],
        &[("authorization", "Bearer a, Basic fresh")],
        &[("authorization", "Basic fresh Bearer a")],
    ] {
        check("api_key", "/", lines, ADDRESS);
    }
    check("user", "/", &[("x-user-id", "a"), ("x-user-id", "b")], ADDRESS);
    check("tenant", "/", &[("x-tenant-id", "a"), ("x-tenant-id", "b")], ADDRESS);
    check("header:x-device", "/", &[("x-device", "a"), ("x-device", "b")], ADDRESS);
    check("cookie:sid", "/", &[("cookie", "sid=a; sid=b")], ADDRESS);
    check("cookie:sid", "/", &[("cookie", "sid=a"), ("cookie", "x=1"), ("cookie", "sid=b")], ADDRESS);
    check("cookie:sid", "/", &[("cookie", "sid=a sid=b")], ADDRESS);
    check("query:user", "/?user=a&user=b", &[], ADDRESS);
    check("query:user", "/?user=a&us%65r=b", &[], ADDRESS);
    check("query:user", "/?user=a;user=b", &[], ADDRESS);
    check("query:user", "/?user=&user=b", &[], ADDRESS);
}

#[test]
fn a_spelling_that_only_some_servers_understand_names_no_caller() {
    check("query:user", "/?x=1;user=fresh", &[], ADDRESS);
    check("query:user", "/?USER=fresh", &[], ADDRESS);
    check("query:user", "/?user[]=fresh", &[], ADDRESS);
    check("cookie:sid", "/", &[("cookie", "x=1 sid=fresh")], ADDRESS);
    check("cookie:sid", "/", &[("cookie", "x=\"; sid=fresh; y=\"")], ADDRESS);
    check("cookie:sid", "/", &[("cookie", "x=\""), ("cookie", "sid=fresh; y=\"")], ADDRESS);
    check("query:user", "/??user=fresh", &[], ADDRESS);
}

#[test]
fn blanks_that_only_some_servers_remove_make_no_new_caller() {
    let denied =
        Policy::parse("deny: [{'cookie:sid': S}, {'header:x-device': S}]\nlimits: [{by: ip, bucket: 1/s}]")
            .unwrap();
    for (source, name, value) in [
        ("cookie:sid", "cookie", &b"sid=S\xA0"[..]),
        ("cookie:sid", "cookie", b"sid=S\x85\x85; a=1"),
        ("cookie:sid", "cookie", b"sid=\xA0S"),
        ("cookie:sid", "cookie", b"sid=\"S\"\xA0"),
        ("cookie:sid", "cookie", b"\xA0sid=S"),
        ("cookie:sid", "cookie", b"a=1;\x85 sid\xA0=S"),
        ("cookie:sid", "cookie", b"sid=S\xC2\xA0"),
        ("header:x-device", "x-device", b"S\xA0"),
        ("header:x-device", "x-device", b"S\xE3\x80\x80"),
    ] {
        let call = get("/", &[]).header(name, value);
        assert_eq!(key_of(&by(source, ", missing: skip"), &call), ADDRESS, "{}", value.escape_ascii());
        assert_eq!(key_of(&denied, &call), "denied", "{}", value.escape_ascii());
    }
    check("header:x-device", "/", &[("x-device", "voil\u{E0}")], "voil\u{E0}");
}

#[test]
fn a_repeated_value_is_not_ambiguous() {
    check("api_key", "/", &[("x-api-key", "a"), ("x-api-key", "a")], "a");
    check("api_key", "/", &[("authorization", "Bearer a"), ("authorization", "bearer  a")], "a");
    check("api_key", "/", &[("x-api-key", ""), ("authorization", "Bearer a")], "a");
    check("api_key", "/", &[("authorization", "Bearer 1|a:b.c-_~+/==")], "1|a:b.c-_~+/==");
    check("api_key", "/", &[("x-api-key", "a"), ("authorization", "Bearer b")], "a");
    check("header:x-dn", "/", &[("x-dn", "cn=ann, o=acme")], "cn=ann, o=acme");
    check("cookie:sid", "/", &[("cookie", "sid=a; x=1"), ("cookie", "sid=\"a\"")], "a");
    check("query:user", "/?user=a+b&user=a%20b", &[], "a b");
}

#[test]
fn a_cookie_is_found_in_any_number_of_lines() {
    let filler: Vec<_> = (0..500).map(|_| ("cookie", "x=1")).collect();
    let lines = [&filler[..], &[("cookie", "sid=stolen")]].concat();
    check("cookie:sid", "/", &lines, "stolen");
    let policy = Policy::parse("deny: [{'cookie:sid': stolen}]\nlimits: [{by: ip, bucket: 1/s}]").unwrap();
    assert_eq!(key_of(&policy, &get("/", &lines)), "denied");
}

#[test]
fn a_part_of_several_is_replaced_by_the_address() {
    let policy = Policy::parse("limits: [{by: [user, api_key], bucket: 1/s}]").unwrap();
    let call = get("/", &[("x-api-key", "a"), ("x-api-key", "b"), ("x-user-id", "ann")]);
    assert_eq!(key_of(&policy, &call), format!("ann, {ADDRESS}"));
}

#[test]
fn a_claim_with_several_values_names_no_caller() {
    let policy = by("claim:org", "");
    let call = get("/", &[]).claim("org", "a");
    assert_eq!(key_of(&policy, &call.clone().claim("org", "a")), "a");
    assert_eq!(key_of(&policy, &call.claim("org", "b")), ADDRESS);
}

#[test]
fn values_from_the_application_are_not_ambiguous() {
    let call = get("/", &[("x-api-key", "a"), ("x-api-key", "b")]);
    assert_eq!(key_of(&by("api_key", ""), &call.api_key("settled")), "settled");
}

const LISTS: &str = "
deny:
  - api_key: stolen
  - 'header:x-device': lost
  - 'cookie:sid': stolen
  - 'query:user': mallory
  - {user: eve, 'header:x-app': old}
allow:
  - api_key: vip
  - 'header:x-device': own
  - 'cookie:sid': vip
  - 'query:user': root
limits: [{by: ip, bucket: 1/s}]
";

#[test]
fn a_denied_value_is_found_among_others() {
    let policy = Policy::parse(LISTS).unwrap();
    for (target, headers) in [
        ("/", &[("x-api-key", "a"), ("x-api-key", "stolen")][..]),
        ("/", &[("x-api-key", "stolen"), ("x-api-key", "a")]),
        ("/", &[("x-api-key", "a, stolen")]),
        ("/", &[("x-api-key", "a"), ("authorization", "Bearer stolen")]),
        ("/", &[("authorization", "Bearer a, Bearer stolen")]),
        ("/", &[("authorization", "Basic a"), ("authorization", "Bearer stolen")]),
        ("/", &[("authorization", "Bearer stolen fresh")]),
        ("/", &[("authorization", "Bearer stolen;fresh")]),
        ("/", &[("authorization", "Bearer stolen,fresh")]),
        ("/", &[("authorization", "Bearer stolen, Basic fresh")]),
        ("/", &[("authorization", "Basic fresh Bearer stolen")]),
        ("/", &[("x-device", "a"), ("x-device", "lost")]),
        ("/", &[("cookie", "sid=a; sid=stolen")]),
        ("/", &[("cookie", "sid=a"), ("cookie", "sid=\"stol%65n\"")]),
        ("/", &[("cookie", "x=1 sid=stolen")]),
        ("/?user=a&user=mallory", &[]),
        ("/?user=a;user=mallory", &[]),
        ("/?user=a&USER=mallory", &[]),
        ("/??user=mallory", &[]),
        ("/", &[("x-user-id", "ann"), ("x-user-id", "eve"), ("x-app", "new"), ("x-app", "old")]),
    ] {
        assert_eq!(key_of(&policy, &get(target, headers)), "denied", "{target} {headers:?}");
    }
    assert_ne!(key_of(&policy, &get("/", &[("x-user-id", "eve"), ("x-app", "new")])), "denied");
}

#[test]
fn an_allowed_value_among_others_allows_nothing() {
    let policy = Policy::parse(LISTS).unwrap();
    for (target, headers) in [
        ("/", &[("x-api-key", "vip"), ("x-api-key", "a")][..]),
        ("/", &[("x-api-key", "a"), ("x-api-key", "vip")]),
        ("/", &[("x-api-key", "a"), ("x-api-key", "b"), ("authorization", "Bearer vip")]),
        ("/", &[("x-device", "own"), ("x-device", "a")]),
        ("/", &[("cookie", "sid=vip; sid=a")]),
        ("/", &[("cookie", "x=1 sid=vip")]),
        ("/?user=root&user=a", &[]),
        ("/?x=1;user=root", &[]),
    ] {
        assert_eq!(key_of(&policy, &get(target, headers)), "203.0.113.9", "{target} {headers:?}");
    }
    for (target, headers) in [("/", &[("x-api-key", "vip"), ("x-api-key", "vip")][..]), ("/?user=root", &[])]
    {
        assert_eq!(key_of(&policy, &get(target, headers)), "allowed", "{target} {headers:?}");
    }
}

/// Checks the smallest capacity of all checks.
#[track_caller]
fn check_capacity(policy: &str, headers: &[(&str, &str)], expected: Option<u64>) {
    let policy = Policy::parse(policy).unwrap();
    let mut checks = Checks::new();
    let matched = policy.match_request(&get("/", headers), &mut checks);
    let capacity = checks.iter().map(|check| check.rule.quota.capacity()).min();
    assert_eq!((matched == Matched::Applies, capacity), (expected.is_some(), expected), "{headers:?}");
}

#[test]
fn of_overrides_that_are_named_together_the_strictest_applies() {
    const POLICY: &str = "
limits:
  - by: api_key
    bucket: 10/hour
    overrides: {bad: blocked, slow: 2/hour, fast: 1000/hour, free: unlimited}
";
    let two = |one, other| [("x-api-key", one), ("x-api-key", other)];
    check_capacity(POLICY, &two("a", "b"), Some(10));
    check_capacity(POLICY, &two("fast", "a"), Some(10));
    check_capacity(POLICY, &two("free", "a"), Some(10));
    check_capacity(POLICY, &two("fast", "free"), Some(10));
    check_capacity(POLICY, &two("slow", "fast"), Some(2));
    check_capacity(POLICY, &two("a", "bad"), None);
    check_capacity(POLICY, &two("bad", "free"), None);
    check_capacity(POLICY, &[("x-api-key", "fast"), ("authorization", "Bearer bad")], None);
    check_capacity(POLICY, &[("x-api-key", "a, bad")], None);
    check_capacity(POLICY, &[("authorization", "Bearer bad fresh")], None);
    check_capacity(POLICY, &[("authorization", "Basic fresh Bearer bad")], None);
    check_capacity(POLICY, &[("x-api-key", "fast")], Some(1000));
}

#[test]
fn of_plans_that_are_named_together_the_strictest_applies() {
    const POLICY: &str = "
plans: {from: 'header:X-Plan', default: basic}
limits:
  - by: user
    bucket: 10/hour
    plans: {basic: 20/hour, slow: 2/hour, pro: 1000/hour, free: unlimited, gone: blocked}
    overrides: {ann: 7/hour}
";
    let two = |one, other| [("x-plan", one), ("x-plan", other)];
    check_capacity(POLICY, &two("pro", "basic"), Some(10));
    check_capacity(POLICY, &two("free", "pro"), Some(10));
    check_capacity(POLICY, &two("pro", "unknown"), Some(10));
    check_capacity(POLICY, &two("slow", "pro"), Some(2));
    check_capacity(POLICY, &two("pro", "gone"), None);
    check_capacity(POLICY, &two("pro", "pro"), Some(1000));
    check_capacity(POLICY, &[("x-plan", "pro"), ("x-plan", "free"), ("x-user-id", "ann")], Some(7));
}

/// Returns the capacities of all checks, in order.
fn capacities(policy: &Policy, headers: &[(&str, &str)]) -> Vec<u64> {
    let mut checks = Checks::new();
    policy.match_request(&get("/", headers), &mut checks);
    checks.iter().map(|check| check.rule.quota.capacity()).collect()
}

#[test]
fn a_named_override_or_plan_is_charged_beside_the_allowance_of_the_limit_and_never_instead() {
    const POLICY: &str = "
plans: {from: 'header:X-Plan', default: basic}
limits:
  - by: api_key
    bucket: 10/hour
    plans: {basic: 6/hour, slow: 4/hour, pro: 1000/hour}
    overrides: {lower: 5/hour, lowest: 1/hour, fast: 1000/hour}
";
    let policy = Policy::parse(POLICY).unwrap();
    let with = |one, other, plans: &[(&'static str, &'static str)]| {
        capacities(&policy, &[&[("x-api-key", one), ("x-api-key", other)], plans].concat())
    };
    assert_eq!(with("a", "b", &[]), [10, 6]);
    assert_eq!(with("a", "b", &[("x-plan", "pro")]), [10]);
    assert_eq!(with("fast", "b", &[]), [10, 6]);
    assert_eq!(with("lower", "b", &[]), [10, 6, 5]);
    assert_eq!(with("lower", "lowest", &[("x-plan", "slow")]), [10, 4, 1]);
    assert_eq!(with("a", "b", &[("x-plan", "pro"), ("x-plan", "slow")]), [10, 6, 4]);
    assert_eq!(with("a", "a", &[("x-plan", "pro"), ("x-plan", "slow")]), [10, 6, 4]);
    assert_eq!(with("lower", "lower", &[("x-plan", "pro"), ("x-plan", "slow")]), [5]);
    assert_eq!(with("a", "a", &[("x-plan", "slow")]), [4]);
}

#[test]
fn of_several_windows_each_is_as_strict_as_the_strictest_named_one() {
    let policy =
        "limits: [{by: api_key, windows: [5/second, 100/day], overrides: {slow: [10/second, 7/day]}}]";
    let policy = Policy::parse(policy).unwrap();
    assert_eq!(capacities(&policy, &[("x-api-key", "slow"), ("x-api-key", "b")]), [5, 100, 7]);
    assert_eq!(capacities(&policy, &[("x-api-key", "a"), ("x-api-key", "b")]), [5, 100]);
}

#[test]
fn a_plan_gives_no_advantage_to_an_ambiguous_caller() {
    const POLICY: &str = "
plans: {from: 'header:X-Plan'}
limits: [{by: api_key, bucket: 10/hour, plans: {pro: 1000/hour, slow: 2/hour, free: unlimited}}]
";
    let keys = [("x-api-key", "a"), ("x-api-key", "b")];
    for (plan, capacity) in [("pro", 10), ("free", 10), ("slow", 2)] {
        check_capacity(POLICY, &[&keys[..], &[("x-plan", plan)]].concat(), Some(capacity));
    }
}

#[test]
fn a_header_condition_looks_at_every_line_and_member() {
    let policy = Policy::parse("limits: [{headers: {x-kind: heavy}, by: ip, bucket: 1/s}]").unwrap();
    for headers in [
        &[("x-kind", "light"), ("x-kind", "heavy")][..],
        &[("x-kind", "heavy"), ("x-kind", "light")],
        &[("x-kind", "light, heavy")],
        &[("x-kind", "light,heavy ,x")],
    ] {
        assert_eq!(key_of(&policy, &get("/", headers)), "203.0.113.9", "{headers:?}");
    }
    assert_eq!(key_of(&policy, &get("/", &[("x-kind", "light, heavyweight")])), "no check");
}

#[test]
fn of_several_costs_the_largest_counts() {
    let policy = Policy::parse("limits: [{by: ip, cost: 'header:x-cost', bucket: 100/s}]").unwrap();
    for (headers, cost) in [
        (&[("x-cost", "1"), ("x-cost", "9")][..], 9),
        (&[("x-cost", "9"), ("x-cost", "0"), ("x-cost", "x")], 9),
        (&[("x-cost", "1, 9")], 9),
        (&[("x-cost", "x")], 1),
    ] {
        let mut checks = Checks::new();
        policy.match_request(&get("/", headers), &mut checks);
        assert_eq!(checks[0].cost, cost, "{headers:?}");
    }
}

#[test]
fn ambiguous_credentials_are_refused_where_the_policy_says_so() {
    const POLICY: &str = "
identify: {ambiguous: refuse}
plans: {from: 'header:X-Plan'}
deny: [{api_key: stolen}]
limits:
  - {name: keys, endpoint: /api/**, by: api_key, missing: skip, bucket: 5/hour, plans: {pro: 9/hour}}
  - {name: trial, endpoint: /trial, by: api_key, mode: shadow, bucket: 5/hour}
";
    let policy = Policy::parse(POLICY).unwrap();
    let keys = [("x-api-key", "a"), ("x-api-key", "b")];
    assert_eq!(key_of(&policy, &get("/api/x", &keys)), "Ambiguous");
    assert_eq!(key_of(&policy, &get("/api/x", &[("authorization", "Bearer a fresh")])), "Ambiguous");
    assert_eq!(key_of(&policy, &get("/api/x", &[("x-api-key", "a"), ("x-api-key", "stolen")])), "denied");
    let plans = [("x-api-key", "a"), ("x-plan", "pro"), ("x-plan", "x")];
    assert_eq!(key_of(&policy, &get("/api/x", &plans)), "Ambiguous");
    assert_eq!(key_of(&policy, &get("/api/x", &[("x-api-key", "a"), ("x-api-key", "a")])), "a");
    assert_eq!(key_of(&policy, &get("/other", &keys)), "no check");
    let mut checks = Checks::new();
    assert_eq!(policy.match_request(&get("/trial", &keys), &mut checks), Matched::Applies);
    assert_eq!(checks.shadowed()[0].reason, BlockReason::Ambiguous);
}

#[test]
fn an_ambiguous_caller_shares_the_allowance_of_callers_without_a_key() {
    let key = |headers: &[(&'static str, &'static str)]| -> Key {
        let policy = by("api_key", "");
        let mut checks = Checks::new();
        policy.match_request(&get("/", headers), &mut checks);
        checks[0].key.clone()
    };
    assert_eq!(key(&[("x-api-key", "a"), ("x-api-key", "b")]), key(&[]));
}
