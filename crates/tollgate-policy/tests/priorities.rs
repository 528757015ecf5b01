//! Priority classes: which request gets which class, and that no caller can raise its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate_core::Quota;
use tollgate_policy::{Call, Checks, Descriptor, Matched, Mode, OnOutage, Policy, PriorityClass};

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[track_caller]
fn check(policy: &Policy, call: &Call<'_>, expected: &str) {
    let mut checks = Checks::new();
    policy.match_request(call, &mut checks);
    assert_eq!(checks.priority().map(PriorityClass::name), Some(expected), "{call:?}");
}

/// The classes of the documentation.
const CLASSES: &str = "
priorities:
  - {name: critical, endpoint: [/payments/**, /charges/**]}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
limits: [{by: ip, bucket: 10/minute}]
";

#[test]
fn a_policy_without_priorities_has_no_classes() {
    let policy = policy("limits: [{by: ip, bucket: 10/minute}]");
    let mut checks = Checks::new();
    policy.match_request(&Call::new("GET", "/"), &mut checks);
    assert!(checks.priority().is_none() && policy.priorities().is_empty());
}

#[test]
fn the_first_class_that_matches_wins_and_a_class_without_conditions_is_everything_else() {
    let policy = policy(CLASSES);
    let names: Vec<_> = policy.priorities().iter().map(|class| (class.name(), class.rank())).collect();
    assert_eq!(names, [("critical", 0), ("normal", 1), ("bulk", 2)]);
    check(&policy, &Call::new("POST", "/payments/7"), "critical");
    check(&policy, &Call::new("GET", "/"), "normal");
    check(&policy, &Call::new("GET", "/").header("x-priority", "bulk"), "bulk");
}

#[test]
fn a_request_that_matches_no_class_is_of_the_last_class_if_every_class_has_conditions() {
    let policy = policy("priorities: [{name: high, endpoint: /a}, {name: low, endpoint: /b}]\nlimits: []");
    for (path, expected) in [("/a", "high"), ("/b", "low"), ("/c", "low")] {
        check(&policy, &Call::new("GET", path), expected);
    }
}

#[test]
fn every_condition_of_a_class_must_hold() {
    let policy = policy(
        "
plans: {from: 'header:x-plan', default: free}
priorities:
  - {name: a, endpoint: /a/**, except: /a/slow, method: GET, host: '*.example.com'}
  - {name: b, plan: [pro, max]}
  - {name: c, ip: 10.0.0.0/8, tenant: acme}
  - {name: d, 'claim:scope': admin}
  - {name: e, plan: free, method: PUT}
  - {name: rest}
limits: []
",
    );
    let at = |method, path| Call::new(method, path).host("api.EXAMPLE.com:443");
    check(&policy, &at("GET", "/a/x"), "a");
    check(&policy, &at("head", "/a/x"), "a");
    check(&policy, &at("POST", "/a/x"), "rest");
    check(&policy, &at("GET", "/a/slow"), "rest");
    check(&policy, &at("GET", "/b"), "rest");
    check(&policy, &Call::new("GET", "/a/x").host("example.com"), "rest");
    check(&policy, &Call::new("GET", "/a/x").host("badexample.com"), "rest");
    check(&policy, &Call::new("GET", "/a/x"), "rest");
    check(&policy, &Call::new("GET", "/").plan("max"), "b");
    check(&policy, &Call::new("GET", "/").header("x-plan", "pro"), "rest");
    check(&policy, &Call::new("GET", "/").ip([10, 1, 2, 3]).tenant("acme"), "c");
    check(&policy, &Call::new("GET", "/").ip([10, 1, 2, 3]).tenant("other"), "rest");
    check(&policy, &Call::new("GET", "/").claim("scope", "admin"), "d");
    check(&policy, &Call::new("PUT", "/"), "e");
}

#[test]
fn a_header_lowers_the_class_and_raises_it_only_if_the_class_trusts_headers() {
    let claims = |trust: &str| {
        policy(&format!(
            "
priorities:
  - {{name: critical, headers: {{x-priority: critical}}{trust}}}
  - {{name: cookie, 'cookie:p': critical{trust}}}
  - {{name: query, 'query:p': critical{trust}}}
  - {{name: normal}}
  - {{name: bulk, headers: {{x-priority: bulk}}}}
limits: []
"
        ))
    };
    let call = || Call::new("GET", "/");
    let careful = claims("");
    check(&careful, &call().header("x-priority", "critical"), "normal");
    check(&careful, &call().header("cookie", "p=critical"), "normal");
    check(&careful, &Call::new("GET", "/?p=critical"), "normal");
    check(&careful, &call().header("x-priority", "bulk"), "bulk");
    check(&careful, &call().header("x-priority", "bulk, critical"), "bulk");
    let trusting = claims(", trust_headers: true");
    check(&trusting, &call().header("x-priority", "critical"), "critical");
    check(&trusting, &call().header("cookie", "p=critical"), "cookie");
    check(&trusting, &Call::new("GET", "/?p=critical"), "query");
    // Two values: one of them may be the client's.
    check(&trusting, &call().header("x-priority", "critical").header("x-priority", "bulk"), "bulk");
    check(&trusting, &call().header("x-priority", "normal").header("x-priority", "critical"), "normal");
}

#[test]
fn a_header_lowers_a_class_that_is_matched_by_endpoint() {
    let policy = policy(
        "
priorities:
  - {name: critical, endpoint: /pay/**}
  - {name: partner, headers: {x-partner: '*'}, trust_headers: true}
  - {name: normal}
  - {name: batch, endpoint: /pay/**, 'query:batch': '1'}
  - {name: bulk, headers: {x-priority: bulk}}
limits: []
",
    );
    let pay = || Call::new("GET", "/pay/7");
    check(&policy, &pay(), "critical");
    check(&policy, &pay().header("x-priority", "bulk"), "bulk");
    check(&policy, &pay().header("x-priority", "bulk").header("x-priority", "critical"), "bulk");
    check(&policy, &pay().header("x-priority", "normal"), "critical");
    check(&policy, &Call::new("GET", "/pay/7?batch=1"), "batch");
    // The least important of several claims counts.
    check(&policy, &Call::new("GET", "/pay/7?batch=1").header("x-priority", "bulk"), "bulk");
    // Of trusted headers, which no client sends, the first match wins.
    check(&policy, &pay().header("x-partner", "1"), "critical");
    check(&policy, &Call::new("GET", "/").header("x-partner", "1"), "partner");
    check(&policy, &Call::new("GET", "/").header("x-partner", "1").header("x-priority", "bulk"), "bulk");
}

#[test]
fn credentials_and_plans_in_headers_lower_the_class_and_raise_it_only_if_the_class_trusts_headers() {
    let classes = |trust: &str| {
        policy(&format!(
            "
identify: {{user: ['claim:sub', 'header:x-user-id']}}
plans: {{from: 'header:x-plan', default: free}}
priorities:
  - {{name: pay, endpoint: /pay}}
  - {{name: gold, plan: gold{trust}}}
  - {{name: acme, tenant: acme{trust}}}
  - {{name: ann, user: ann{trust}}}
  - {{name: key, api_key: k1{trust}}}
  - {{name: normal, method: POST}}
  - {{name: rest}}
  - {{name: free, plan: free}}
limits: []
"
        ))
    };
    let (untrusted, trusting) = (classes(""), classes(", trust_headers: true"));
    let post = || Call::new("POST", "/").plan("silver");
    let named = |name, value| Call::new("POST", "/").header(name, value);
    for (name, value, class) in [
        ("x-plan", "gold", "gold"),
        ("x-tenant-id", "acme", "acme"),
        ("x-user-id", "ann", "ann"),
        ("x-api-key", "k1", "key"),
        ("authorization", "Bearer k1", "key"),
    ] {
        check(&untrusted, &named(name, value), "normal");
        check(&trusting, &named(name, value), class);
        // A class by another property comes first, and is not lowered: the plan of a caller is no wish.
        check(&untrusted, &Call::new("GET", "/pay").header(name, value), "pay");
    }
    // Verified values raise the class.
    for policy in [&untrusted, &trusting] {
        check(policy, &Call::new("POST", "/").plan("gold"), "gold");
        check(policy, &post().tenant("acme"), "acme");
        check(policy, &post().user("ann"), "ann");
        check(policy, &post().claim("sub", "ann"), "ann");
        check(policy, &post().api_key("k1"), "key");
    }
    // Another plan in a header does not lift a caller out of the class of the default plan.
    check(&untrusted, &Call::new("GET", "/"), "free");
    check(&untrusted, &Call::new("GET", "/").header("x-plan", "silver"), "free");
    let slow = policy("priorities: [{name: normal}, {name: slow, tenant: slow}]\nlimits: []");
    check(&slow, &Call::new("GET", "/").header("x-tenant-id", "slow"), "slow");
}

#[test]
fn an_endpoint_with_a_header_is_no_way_around_the_rule() {
    let policy = policy(
        "
priorities:
  - {name: a, endpoint: /pay, headers: {x-vip: '*'}}
  - {name: b, endpoint: /pay}
  - {name: rest}
limits: []
",
    );
    check(&policy, &Call::new("GET", "/pay").header("x-vip", "1"), "b");
    check(&policy, &Call::new("GET", "/pay"), "b");
}

#[test]
fn another_spelling_of_a_path_does_not_raise_the_class() {
    let policy = policy(CLASSES);
    for path in [
        "/payments/../search",
        "/search/%2e%2e/search",
        "//search",
        "/payments%2f..%2fsearch",
        "/payments/..;/search",
    ] {
        check(&policy, &Call::new("GET", path), "normal");
    }
    // Under every reading, it is a payment.
    for path in ["/payments//7", "/payments/./7", "/x/../payments/7"] {
        let mut checks = Checks::new();
        policy.match_request(&Call::new("GET", path), &mut checks);
        let name = checks.priority().map(PriorityClass::name);
        assert!(matches!(name, Some("critical" | "normal")), "{path}: {name:?}");
    }
}

#[test]
fn an_ambiguous_path_gets_the_least_important_class_of_its_readings() {
    let policy = policy(
        "
priorities:
  - {name: critical, endpoint: /pay/**}
  - {name: normal}
  - {name: bulk, endpoint: /export/**}
limits: []
",
    );
    check(&policy, &Call::new("GET", "/pay/..%2fexport/x"), "bulk");
    check(&policy, &Call::new("GET", "/export/..%2fpay/x"), "bulk");
    let folded = Policy::parse(
        "paths: {case: ignore}\npriorities: [{name: a, endpoint: /Pay}, {name: b}]\nlimits: []",
    );
    check(&folded.unwrap(), &Call::new("GET", "/PAY"), "a");
}

#[test]
fn several_values_of_a_property_do_not_raise_the_class_and_may_lower_it() {
    let policy = policy(
        "
plans: {from: 'header:x-plan'}
priorities:
  - {name: vip, user: ann, trust_headers: true}
  - {name: paid, plan: pro, trust_headers: true}
  - {name: normal}
  - {name: slow, user: bob}
limits: []
",
    );
    let users = |one, two| Call::new("GET", "/").header("x-user-id", one).header("x-user-id", two);
    check(&policy, &Call::new("GET", "/").header("x-user-id", "ann"), "vip");
    check(&policy, &users("ann", "carl"), "normal");
    check(&policy, &users("ann", "bob"), "slow");
    check(&policy, &Call::new("GET", "/").header("x-plan", "pro").header("x-plan", "free"), "normal");
}

#[test]
fn listed_and_refused_requests_have_a_class_too() {
    let policy = policy(&format!("allow: [{{user: ann}}]\ndeny: [{{user: eve}}]\n{CLASSES}"));
    for user in ["ann", "eve"] {
        check(&policy, &Call::new("GET", "/payments/1").user(user), "critical");
    }
}

#[test]
fn a_descriptor_is_matched_by_its_entries_and_has_no_path_method_or_header() {
    let policy = policy(
        "
priorities:
  - {name: a, endpoint: /**}
  - {name: b, method: GET}
  - {name: c, 'descriptor:kind': checkout}
  - {name: d, plan: pro}
  - {name: rest}
limits: [{descriptor: [kind], bucket: 10/minute}]
",
    );
    for (entries, expected) in [
        (&[("kind", "checkout")][..], "c"),
        (&[("kind", "other")], "rest"),
        (&[("kind", "other"), ("plan", "pro")], "d"),
    ] {
        let mut checks = Checks::new();
        policy.match_descriptor(&Descriptor::new("edge", entries), &mut checks);
        assert_eq!(checks.priority().map(PriorityClass::name), Some(expected));
    }
    let both =
        [Descriptor::new("edge", &[("kind", "checkout")]), Descriptor::new("edge", &[("kind", "other")])];
    let mut checks = Checks::new();
    policy.match_batch(&both, &[], &mut checks);
    assert_eq!(checks.priority().map(PriorityClass::name), Some("rest"), "the least important");
}

#[test]
fn the_fleet_shedder_gives_each_class_its_maximum_on_one_state() {
    let policy = policy(
        "
priorities: [{name: critical, endpoint: /pay}, {name: paid, endpoint: /paid}, {name: free}]
shed: {fleet: {slots: 101, reserve: {critical: 20%, paid: 10}, mode: shadow}}
limits: [{by: ip, bucket: 10/minute}]
",
    );
    let shedder = policy.limit("shed.fleet").unwrap();
    assert!(shedder.is_shed() && !policy.limits()[0].is_shed());
    assert_eq!((shedder.mode(), shedder.on_outage()), (Mode::Shadow, OnOutage::Allow));
    for (path, slots) in [("/pay", 101), ("/paid", 80), ("/", 70)] {
        let mut checks = Checks::new();
        let matched = policy.match_request(&Call::new("GET", path), &mut checks);
        let check = checks.iter().find(|check| check.limit.is_shed()).unwrap();
        assert_eq!((check.rule.quota.capacity(), check.rule.id), (slots, shedder.rules()[0].id), "{path}");
        // A decision that waits finds the same rule again.
        let detached = policy.detach(matched, checks.clone());
        let mut attached = Checks::new();
        assert_eq!(policy.attach(&detached, &mut attached), Matched::Applies);
        assert_eq!(attached.last().unwrap().rule.quota.capacity(), slots);
        assert_eq!(attached.priority(), checks.priority());
    }
    let key = policy.key(shedder, &[]).unwrap();
    let mut checks = Checks::new();
    policy.match_limit(shedder, key, None, None, &mut checks);
    assert_eq!(checks[0].rule.quota.capacity(), 70, "a limit by its name is of the last class");
}

#[test]
fn a_rate_of_the_fleet_is_one_bucket_with_a_smaller_capacity_for_each_class() {
    let policy = policy(
        "
priorities: [{name: critical, endpoint: /pay}, {name: free}]
shed: {fleet: {rate: 100/second, reserve: {critical: 25%}, on_outage: local}}
limits: []
",
    );
    let shedder = policy.limit("shed.fleet").unwrap();
    let capacities: Vec<_> = shedder.class_rules().iter().map(|rule| rule.quota.capacity()).collect();
    assert_eq!(capacities, [100, 75]);
    assert!(shedder.class_rules().iter().all(|rule| rule.id == shedder.rules()[0].id));
    assert!(matches!(&shedder.rules()[0].quota, Quota::Bucket(it) if it.is_shared()));
    assert_eq!(shedder.on_outage(), OnOutage::Local);
}

#[test]
fn a_shedder_needs_neither_classes_nor_limits() {
    let policy = policy("shed: {fleet: {slots: 10}}");
    let mut checks = Checks::new();
    policy.match_request(&Call::new("GET", "/"), &mut checks);
    assert_eq!((checks.len(), checks[0].limit.name()), (1, "shed.fleet"));
}
