//! Limits on descriptors: the limits that match a descriptor, and their keys.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::hash::RandomState;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate_core::Bucket;
use tollgate_policy::{
    BlockReason, Call, Checks, Descriptor, Input, KeySource, LimitBuilder, Matched, Mode, Policy,
};

type Entries<'a> = &'a [(&'a str, &'a str)];

fn in_domain<'a>(domain: &'a str, entries: Entries<'a>) -> Descriptor<'a> {
    Descriptor::new(domain, entries)
}

/// Returns the limits that match a request or descriptor, each with its key.
fn met(policy: &Policy, input: &impl Input) -> Vec<String> {
    let mut checks = Checks::new();
    input.add_checks(policy, &mut checks);
    checks.iter().map(|check| format!("{}: {}", check.rule.name, check.key.display())).collect()
}

#[track_caller]
fn check(policy: &str, entries: Entries<'_>, expected: &[&str]) {
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(met(&policy, &in_domain("edge", entries)), expected, "{entries:?}");
}

#[test]
fn a_descriptor_matches_every_limit_with_its_entries_in_order() {
    let policy = "limits:
  - {name: gold, descriptor: [plan=gold, user], by: descriptor:user, bucket: 1/s}
  - {name: any-plan, descriptor: [plan, user], bucket: 1/s}
  - {name: wild, descriptor: ['plan=g*d', 'user=*n'], by: global, bucket: 1/s}
  - {name: several, descriptor: [plan, user], by: [descriptor:user, descriptor:plan], windows: [1/s, 9/h]}
  - {name: plan, descriptor: plan, bucket: 1/s}
  - {name: again, descriptor: [plan=gold, user], bucket: 9/h}
";
    check(
        policy,
        &[("plan", "gold"), ("user", "ann")],
        &[
            "gold: ann",
            "any-plan: plan=gold, user=ann",
            "wild: everyone",
            "several/1s: ann, gold",
            "several/1h: ann, gold",
            "again: plan=gold, user=ann",
        ],
    );
    check(
        policy,
        &[("plan", "free"), ("user", "bob")],
        &["any-plan: plan=free, user=bob", "several/1s: bob, free", "several/1h: bob, free"],
    );
    check(policy, &[("plan", "gold")], &["plan: plan=gold"]);
    for none in [
        &[][..],
        &[("user", "ann")],
        &[("user", "ann"), ("plan", "gold")],
        &[("plan", "gold"), ("user", "ann"), ("path", "/")],
        &[("Plan", "gold"), ("user", "ann")],
    ] {
        check(policy, none, &[]);
    }
}

#[test]
fn a_domain_is_one_a_list_or_any() {
    let policy = Policy::parse(
        "limits:
  - {name: any, descriptor: [user], bucket: 1/s}
  - {name: edge, descriptor: [user], domain: edge, bucket: 2/s}
  - {name: both, descriptor: [user], domain: [mesh, edge], bucket: 3/s}
",
    )
    .unwrap();
    let names = |domain| met(&policy, &in_domain(domain, &[("user", "x")]));
    assert_eq!(names("edge"), ["any: user=x", "edge: user=x", "both: user=x"]);
    assert_eq!(names("mesh"), ["any: user=x", "both: user=x"]);
    assert_eq!(names("other"), ["any: user=x"]);
    assert_eq!(names(""), ["any: user=x"]);
    assert_eq!(policy.limits()[2].domains().collect::<Vec<_>>(), ["mesh", "edge"]);
}

#[test]
fn requests_match_no_limit_on_descriptors_and_vice_versa() {
    let policy = Policy::parse(
        "limits: [{name: paths, by: global, bucket: 1/s}, {name: users, descriptor: [user], by: global, bucket: 1/s}]",
    )
    .unwrap();
    assert_eq!(met(&policy, &Call::new("GET", "/").user("ann")), ["paths: everyone"]);
    assert_eq!(met(&policy, &in_domain("edge", &[("user", "ann")])), ["users: everyone"]);
    assert!(policy.limits()[1].endpoints().is_empty());
    assert!(policy.limits()[0].descriptor().is_none());
}

#[test]
fn lists_plans_overrides_and_modes_hold_for_descriptors() {
    let policy = Policy::parse(
        "deny: [{ip: 198.51.100.0/24}, {user: mallory}, {'descriptor:country': [xx, yy]}]
allow: [{ip: 10.0.0.0/8}]
limits:
  - name: users
    descriptor: [plan, user]
    by: descriptor:user
    bucket: 10/minute
    cost: 2
    plans: {gold: 100/minute, banned: blocked}
    overrides: {root: unlimited, eve: blocked}
    candidate: {bucket: 5/minute}
  - {name: quiet, descriptor: [plan, user], bucket: 1/s, mode: 'off'}
  - {name: one-open, descriptor: [job=mail, user], bucket: 5/s, overrides: {ann: 9/s, user=bob: blocked}}
",
    )
    .unwrap();
    let matched = |entries: Entries<'_>| {
        let mut checks = Checks::new();
        let matched = policy.match_descriptor(&in_domain("edge", entries), &mut checks);
        let found: Vec<_> =
            checks.iter().map(|it| format!("{} {} costs {}", it.rule.name, it.rule.quota, it.cost)).collect();
        let matched = match matched {
            Matched::Applies => "applies".to_owned(),
            Matched::Allowed(entry) => format!("allowed {entry}"),
            Matched::Denied(entry) => format!("denied {entry}"),
            Matched::Blocked(block) => format!("{} blocks: {:?}", block.limit.name(), block.reason),
            Matched::AmbiguousPath => "ambiguous".to_owned(),
        };
        (matched, found)
    };
    let free = ["users token-bucket 10/minute costs 2", "users.candidate token-bucket 5/minute costs 2"];
    assert_eq!(
        matched(&[("plan", "free"), ("user", "ann")]),
        ("applies".into(), free.map(Into::into).into())
    );
    let gold = matched(&[("plan", "gold"), ("user", "ann")]);
    assert_eq!(gold.1[0], "users token-bucket 100/minute costs 2");
    let override_ = format!("users blocks: {:?}", BlockReason::Override);
    assert_eq!(matched(&[("plan", "gold"), ("user", "eve")]).0, override_);
    assert_eq!(matched(&[("plan", "banned"), ("user", "a")]).0, "users blocks: Plan");
    assert_eq!(
        matched(&[("plan", "gold"), ("user", "root")]).1,
        ["users.candidate token-bucket 5/minute costs 2"]
    );
    assert_eq!(matched(&[("job", "mail"), ("user", "ann")]).1, ["one-open token-bucket 9/second costs 1"]);
    assert_eq!(matched(&[("job", "mail"), ("user", "bob")]).0, "one-open blocks: Override");
    assert_eq!(matched(&[("remote_address", "198.51.100.7")]).0, "denied ip: 198.51.100.0/24");
    assert_eq!(matched(&[("remote_address", "10.1.2.3")]).0, "allowed ip: 10.0.0.0/8");
    assert_eq!(matched(&[("plan", "gold"), ("user", "mallory")]).0, "denied user: mallory");
    assert!(matched(&[("country", "yy")]).0.starts_with("denied descriptor:country"));
}

#[test]
fn an_empty_value_counts_as_missing_and_never_bypasses_a_limit() {
    let policy = |missing: &str| {
        let text = format!(
            "limits:
  - {{descriptor: [user], by: 'descriptor:user', bucket: 1/s, missing: {missing}}}
  - {{descriptor: [user, remote_address], by: 'descriptor:user', bucket: 1/s, missing: {missing}}}
"
        );
        Policy::parse(&text).unwrap()
    };
    let empty = in_domain("edge", &[("user", "")]);
    assert_eq!(met(&policy("ip"), &empty), ["user-by-user: unknown client"]);
    let with_address = in_domain("edge", &[("user", ""), ("remote_address", "203.0.113.9")]);
    assert_eq!(met(&policy("ip"), &with_address), ["user-remote_address-by-user: client 203.0.113.9"]);
    assert_eq!(met(&policy("shared"), &empty), ["user-by-user: without"]);
    assert_eq!(met(&policy("skip"), &empty), [""; 0]);
    let refusing = policy("refuse");
    assert!(matches!(refusing.match_descriptor(&empty, &mut Checks::new()), Matched::Blocked(_)));
}

#[test]
fn a_cost_from_the_caller_takes_precedence() {
    let policy = Policy::parse("limits: [{descriptor: [user], cost: 3, bucket: 9/s}]").unwrap();
    let charged = |cost: Option<u64>| {
        let mut checks = Checks::new();
        policy.match_descriptor(&Descriptor { cost, ..in_domain("edge", &[("user", "ann")]) }, &mut checks);
        checks[0].cost
    };
    assert_eq!((charged(None), charged(Some(7)), charged(Some(0))), (3, 7, 0));
}

#[test]
fn operators_type_keys_as_shown_or_only_open_values() {
    let policy = Policy::parse(
        "limits:
  - {name: gold, descriptor: [plan=gold, user, 'path=/v1/*'], bucket: 1/s}
  - {name: users, descriptor: [user], bucket: 1/s}
  - {name: one, descriptor: [plan, user], by: descriptor:user, bucket: 1/s}
  - {name: fixed, descriptor: [plan=gold], bucket: 1/s}
",
    )
    .unwrap();
    let key = |limit: &str, values: &[&str]| {
        policy.key(policy.limit(limit).unwrap(), values).map(|key| key.display().to_string())
    };
    let whole = Some("plan=gold, user=ann, path=/v1/x".to_owned());
    assert_eq!(key("gold", &["plan=gold", "user=ann", "path=/v1/x"]), whole);
    assert_eq!(key("gold", &["gold", "ann", "/v1/x"]), whole);
    assert_eq!(key("gold", &["ann", "/v1/x"]), whole);
    assert_eq!(key("gold", &["plan=gold, user=ann, path=/v1/x"]), whole);
    assert_eq!(
        key("gold", &["plan=gold, user=a, b=c, path=/v1/x"]).unwrap(),
        "plan=gold, user=a, b=c, path=/v1/x"
    );
    assert_eq!(key("users", &["ann"]), Some("user=ann".into()));
    assert_eq!(key("users", &["user=ann"]), Some("user=ann".into()));
    assert_eq!(key("one", &["ann"]), Some("ann".into()));
    assert_eq!(key("fixed", &["plan=gold"]), Some("plan=gold".into()));
    assert_eq!(key("fixed", &[]), Some("plan=gold".into()));
    for (limit, wrong) in [
        ("gold", &["silver", "ann", "/v1/x"][..]),
        ("gold", &["ann", "/v2/x"]),
        ("gold", &["ann"]),
        ("gold", &["plan=silver, user=ann, path=/v1/x"]),
        ("gold", &["plan=gold, user=ann"]),
        ("gold", &[]),
        ("users", &[]),
        ("one", &[""]),
        ("one", &["gold", "ann"]),
    ] {
        assert_eq!(key(limit, wrong), None, "{limit} {wrong:?}");
    }
    let met = in_domain("edge", &[("plan", "gold"), ("user", "ann"), ("path", "/v1/x")]);
    let mut checks = Checks::new();
    policy.match_descriptor(&met, &mut checks);
    assert_eq!(policy.key(checks[0].limit, &["ann", "/v1/x"]).unwrap(), checks[0].key);
}

#[test]
fn names_are_shown_and_values_follow_privacy() {
    let shown = |privacy: &str, limit: &str, entries: Entries<'_>| {
        let policy =
            Policy::parse(&format!("privacy: {{keys: {privacy}}}\nlimits: [{{{limit}, bucket: 1/s}}]"));
        let policy = policy.unwrap();
        let mut checks = Checks::new();
        policy.match_descriptor(&in_domain("edge", entries), &mut checks);
        policy.show_key(checks[0].limit, &checks[0].key, &RandomState::new())
    };
    let users = "descriptor: [plan, user]";
    let ann = &[("plan", "gold"), ("user", "annabel\n")];
    assert_eq!(shown("plain", users, ann), "plan=gold, user=annabel\\n");
    assert_eq!(shown("truncated", users, ann), "plan=…, user=anna…");
    assert!(shown("hashed", users, ann).starts_with("hash:"));
    assert!(!shown("hashed", users, ann).contains("ann"));
    let secret = &[("plan", "gold"), ("X-Api-Key", "sk-live-51HzQ")];
    assert_eq!(shown("plain", "descriptor: [plan, X-Api-Key]", secret), "plan=gold, X-Api-Key=sk-l…");
    let by_secret = "descriptor: [plan, X-Api-Key], by: 'descriptor:X-Api-Key'";
    assert_eq!(shown("plain", by_secret, secret), "sk-l…");
    let policy = Policy::parse("limits: [{descriptor: [api_key=sk-live-51HzQ, user], bucket: 1/s}]").unwrap();
    assert_eq!(policy.limits()[0].name(), "api_key-user");
    assert_eq!(policy.limits()[0].descriptor().unwrap().to_string(), "api_key=sk-l…, user");
    let by_both = "descriptor: [plan, user], by: ['descriptor:user', 'descriptor:plan']";
    assert_eq!(shown("truncated", by_both, ann), "anna…, …");
}

#[test]
fn different_splits_into_entries_are_different_keys() {
    let policy = Policy::parse("limits: [{name: a, descriptor: [a_b, c], by: global, bucket: 1/s}]").unwrap();
    assert_eq!(met(&policy, &in_domain("edge", &[("a", "b"), ("c", "")])), [""; 0]);
    let two = Policy::parse("limits: [{descriptor: [a, b], bucket: 1/s}]").unwrap();
    let key = |entries: Entries<'_>| {
        let mut checks = Checks::new();
        two.match_descriptor(&in_domain("edge", entries), &mut checks);
        checks[0].key.clone()
    };
    assert_ne!(key(&[("a", "x"), ("b", "yz")]), key(&[("a", "xy"), ("b", "z")]));
    assert_ne!(key(&[("a", "x, b=y"), ("b", "")]), key(&[("a", "x"), ("b", "y")]));
}

#[test]
fn usage_is_carried_over_while_the_key_stays() {
    let parse = |descriptor: &str, by: &str| {
        Policy::parse(&format!("limits: [{{name: a, descriptor: {descriptor}, {by} bucket: 10/minute}}]"))
            .unwrap()
    };
    let before = parse("[plan=gold, user]", "by: 'descriptor:user',");
    let wider = parse("[plan, user]", "by: 'descriptor:user',").carry_over_from(&before);
    assert_eq!(wider.limits()[0].rules()[0].id, before.limits()[0].rules()[0].id);
    let other = parse("[plan=gold, user]", "").carry_over_from(&before);
    assert_ne!(other.limits()[0].rules()[0].id, before.limits()[0].rules()[0].id);
    assert_eq!(other.limits()[0].rules()[0].predecessors().count(), 0);
}

#[test]
fn names_are_derived_from_domain_entries_and_key() {
    let policy = Policy::parse(
        "limits:
  - {descriptor: [plan=gold, user], bucket: 1/s}
  - {descriptor: [plan=gold, user], domain: edge, by: descriptor:user, bucket: 1/s}
  - {descriptor: ['path=/v1/*', remote_address], domain: [edge, mesh], bucket: 1/s}
  - {descriptor: [generic_key=login], by: global, bucket: 1/s}
",
    )
    .unwrap();
    let names: Vec<_> = policy.limits().iter().map(tollgate_policy::Limit::name).collect();
    let expected = [
        "plan-gold-user",
        "edge-plan-gold-user-by-user",
        "edge-mesh-path-v1-remote_address",
        "generic_key-login-by-global",
    ];
    assert_eq!(names, expected);
    assert!(policy.warnings().is_empty(), "{}", policy.warnings());
}

#[test]
fn entries_that_may_never_match_are_warned_about() {
    for (text, message) in [
        (
            "limits: [{descriptor: ['plan:gold', user], bucket: 1/s}]",
            "proxies may never send the entry `plan:gold`",
        ),
        ("limits: [{descriptor: [user], bucket: 1/s, missing: skip}]", "`missing` has no effect here"),
        (
            "limits: [{name: a, descriptor: [user], bucket: 1/s}, {name: b, descriptor: [user], bucket: 9/m}]",
            "this limit counts the same requests by the same key as another",
        ),
    ] {
        let policy = Policy::parse(text).unwrap();
        let found: Vec<&str> = policy.warnings().iter().map(|it| it.message.as_str()).collect();
        assert_eq!(found, [message], "{text}");
    }
}

#[test]
fn a_built_limit_and_a_written_one_are_alike() {
    let quota = Bucket::new(tollgate_core::Rate::per_second(1)).unwrap();
    let built = LimitBuilder::new("gold")
        .descriptor(["plan=gold", "user"])
        .domain("edge")
        .ahead(20)
        .by(KeySource::Entry("user".into()))
        .quota(quota);
    let built = Policy::of([built]).unwrap();
    let written = "limits: [{name: gold, descriptor: [plan=gold, user], domain: edge, quota: 20, by: 'descriptor:user', bucket: 1/s}]";
    let written = Policy::parse(written).unwrap();
    for policy in [&built, &written] {
        let limit = &policy.limits()[0];
        assert_eq!(limit.ahead(), Some(20));
        assert_eq!(limit.descriptor().unwrap().to_string(), "plan=gold, user");
        assert_eq!(met(policy, &in_domain("edge", &[("plan", "gold"), ("user", "ann")])), ["gold: ann"]);
        assert_eq!(met(policy, &in_domain("mesh", &[("plan", "gold"), ("user", "ann")])), [""; 0]);
    }
    let later = LimitBuilder::new("later").descriptor(["user"]).quota(quota);
    let extended = written.extended([later]).unwrap();
    assert_eq!(met(&extended, &in_domain("mesh", &[("user", "ann")])), ["later: user=ann"]);
    assert_eq!(met(&extended, &in_domain("edge", &[("plan", "gold"), ("user", "ann")])), ["gold: ann"]);

    let limit = || LimitBuilder::new("x").quota(quota);
    for (wrong, why) in [
        (limit().descriptor(["plan = gold"]), "an entry has no blanks around its words"),
        (limit().descriptor(["user"]).endpoint("/"), "it covers paths or methods already"),
        (limit().descriptor(["user"]).by(KeySource::Ip), "descriptors cannot be counted by `ip`"),
        (
            limit().descriptor(["user"]).domain("tollgate"),
            "limits on paths apply to descriptors of the domain `tollgate`",
        ),
        (limit().by(KeySource::Descriptor), "the entries are missing"),
        (
            limit().descriptor(["a", "a"]).by(KeySource::Entry("a".into())),
            "no descriptor has exactly one entry `a` to count by",
        ),
    ] {
        let said = Policy::of([wrong]).unwrap_err().to_string();
        assert!(said.starts_with(&format!("limit `x` cannot cover descriptors: {why}")), "{said}");
    }
}

#[test]
fn a_limit_that_is_off_does_not_match_and_one_in_shadow_mode_only_notes() {
    let policy =
        Policy::parse("limits: [{descriptor: [user], by: 'descriptor:user', missing: refuse, bucket: 1/s}]");
    let policy = policy.unwrap();
    let off = policy.with_modes(|_| Mode::Off);
    assert_eq!(met(&off, &in_domain("edge", &[("user", "ann")])), [""; 0]);
    let shadow = policy.with_modes(|_| Mode::Shadow);
    let mut checks = Checks::new();
    assert_eq!(shadow.match_descriptor(&in_domain("edge", &[("user", "")]), &mut checks), Matched::Applies);
    assert_eq!(checks.shadowed().len(), 1);
}

/// Returns ten thousand limits of one shape, with exact values, prefixes and domains.
fn many() -> Policy {
    let mut text = String::from("limits:\n");
    for number in 0..10_000 {
        let (descriptor, domain) = match number % 4 {
            0 => (format!("[tenant=t{number}, user]"), ""),
            1 => (format!("['path=/v1/{number}/*', user]"), ""),
            2 => (format!("[k{number}, user]"), ""),
            _ => ("[tenant, user]".to_owned(), "domain: d"),
        };
        let domain = if domain.is_empty() { String::new() } else { format!(", {domain}{number}") };
        writeln!(text, "  - {{name: l{number}, descriptor: {descriptor}, bucket: 1/s{domain}}}").unwrap();
    }
    Policy::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[test]
fn ten_thousand_limits_cost_no_more_than_a_few() {
    let policy = many();
    let first = |domain: &str, entries: Entries<'_>| met(&policy, &in_domain(domain, entries)).join("; ");
    // Two hundred thousand descriptors: a scan over all limits would try two billion patterns.
    for _ in 0..50_000 {
        assert_eq!(first("x", &[("tenant", "t4000"), ("user", "a")]), "l4000: tenant=t4000, user=a");
        assert_eq!(first("x", &[("path", "/v1/4001/z"), ("user", "a")]), "l4001: path=/v1/4001/z, user=a");
        assert_eq!(first("x", &[("k4002", "z"), ("user", "a")]), "l4002: k4002=z, user=a");
        assert_eq!(first("d4003", &[("tenant", "z"), ("user", "a")]), "l4003: tenant=z, user=a");
    }
}

#[test]
fn hostile_descriptors_cause_bounded_work_and_keys() {
    let mut text = String::from("limits:\n");
    for number in 0..100 {
        let stars = "*a".repeat(number + 1);
        writeln!(text, "  - {{name: l{number}, descriptor: ['x={stars}*b'], bucket: 1/s}}").unwrap();
    }
    text.push_str("  - {name: any, descriptor: [x], bucket: 1/s}\n");
    let policy = Policy::parse(&text).unwrap();
    let long = "a".repeat(65_536);
    for _ in 0..20 {
        assert_eq!(met(&policy, &in_domain("edge", &[("x", &long)])).len(), 1);
    }
    let mut checks = Checks::new();
    policy.match_descriptor(&in_domain("edge", &[("x", &long)]), &mut checks);
    assert!(checks[0].key.as_bytes().len() < 64, "a long value is kept as its digest");
    let thousands = vec![("x", "y"); 100_000];
    assert_eq!(met(&policy, &in_domain("edge", &thousands)), [""; 0]);
    let odd = "\u{0}\u{202e}é€😀";
    assert_eq!(met(&policy, &in_domain(odd, &[(odd, odd)])), [""; 0]);
    assert_eq!(met(&policy, &in_domain(odd, &[("x", odd)])), ["any: x=\\0\\u{202e}é€😀"]);
}

fn pattern() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(("[ab]", prop::option::of("[xyé*]{1,4}")), 1..4).prop_map(|entries| {
        let written = |(key, value): (String, Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => key,
        };
        entries.into_iter().map(written).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(6), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_agrees_with_trying_each_pattern(
        limits in prop::collection::vec((pattern(), prop::option::of("[de]")), 1..30),
        descriptors in prop::collection::vec(
            ("[de]", prop::collection::vec(("[ab]", "[xyé]{0,4}"), 0..4)), 1..30),
    ) {
        let quota = Bucket::new(tollgate_core::Rate::per_second(1)).unwrap();
        let built = limits.iter().enumerate().map(|(at, (pattern, domain))| {
            let limit = LimitBuilder::new(format!("l{at}")).descriptor(pattern.clone()).quota(quota);
            match domain {
                Some(domain) => limit.domain(domain),
                None => limit,
            }
        });
        let policy = Policy::of(built).unwrap();
        for (domain, entries) in &descriptors {
            let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let mut checks = Checks::new();
            policy.match_descriptor(&in_domain(domain, &entries), &mut checks);
            let found: Vec<_> = checks.iter().map(|check| check.limit.name()).collect();
            let covers = |limit: &&tollgate_policy::Limit| {
                limit.descriptor().unwrap().covers(&entries)
                    && (limit.domains().next().is_none() || limit.domains().any(|it| it == domain))
            };
            let tried: Vec<_> = policy.limits().iter().filter(covers).map(tollgate_policy::Limit::name).collect();
            prop_assert_eq!(found, tried, "{:?}", entries);
        }
    }
}
