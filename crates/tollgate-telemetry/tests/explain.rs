//! Every refusal can be explained by its id, and the explanation agrees with the decision.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tollgate::policy::Key;
use tollgate::throttle::Throttle;
use tollgate::{
    Call, Clock as _, Decision, Descriptor, Input as _, Limiter, ManualClock, MemoryStore, Mode, Policy,
    Quota, Span, Timestamp, Verdict,
};
use tollgate_telemetry::{Record, RecordFate, WatchSettings, Watcher};

use crate::gone::UnreachableStore;

type Watched = Limiter<MemoryStore<ManualClock>>;

fn watched(policy: &str) -> (Watched, Watcher, ManualClock) {
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{}", wrong.render("policy")));
    let clock = ManualClock::at(Timestamp::from_secs(1_731_672_000)); // 12:00
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter = Limiter::with_store(policy, MemoryStore::with_clock(100_000, clock.clone()));
    (limiter.with_observer_on(Arc::new(watcher.clone()), clock.clone()), watcher, clock)
}

fn record_of(limiter: &Watched, watcher: &Watcher, decision: &Decision<'_>) -> Arc<Record> {
    watcher.record(limiter.id_of(decision)).unwrap_or_else(|| panic!("{decision:?} is not remembered"))
}

const MANY: &str = "
deny: [{ip: 198.51.100.0/24}]
limits:
  - {name: bucket, endpoint: '/a/**', by: user, bucket: 7/minute}
  - {name: windows, endpoint: '/a/**', by: ip, windows: [20/s, 300/hour]}
  - {name: fixed, endpoint: /b, by: user, rate: 30/minute, algorithm: fixed-window}
  - {name: sliding, endpoint: /c, by: user, rate: 30/minute, algorithm: sliding-window}
  - {name: log, endpoint: /d, by: user, rate: 30/minute, algorithm: sliding-log}
  - {name: strict, endpoint: /e, by: user, bucket: 5/minute, count_denied: true}
  - {name: quiet, endpoint: '/**', by: user, bucket: 2/minute, mode: shadow}
  - {name: keyed, endpoint: /f, by: api_key, bucket: 100/s, missing: refuse}
";

#[test]
fn every_refusal_of_ten_thousand_requests_has_a_correct_explanation() {
    let (limiter, watcher, clock) = watched(MANY);
    let (mut refusals, mut fates) = (0, std::collections::BTreeMap::new());
    for request in 0..10_000_u32 {
        clock.advance(Span::from_millis(13));
        let user = format!("user-{}", request % 17);
        let path = ["/a/x", "/b", "/c", "/d", "/e", "/f"][(request / 7 % 6) as usize];
        let net = if request % 101 == 0 { [198, 51, 100, 7] } else { [203, 0, 113, 9] };
        let call = Call::new("GET", path).user(&user).ip(net).cost(u64::from(request % 9));
        let decision = limiter.check(&call);
        if decision.is_allowed() {
            continue;
        }
        refusals += 1;
        let record = record_of(&limiter, &watcher, &decision);
        *fates.entry(record.fate.as_str()).or_insert(0) += 1;
        assert!(!record.allowed && &*record.path == path && &*record.method == "GET");
        assert_eq!(record.retry_after, decision.retry_after().map(Span::from));
        assert_eq!(record.limits.len(), decision.limits().len());
        let summary = record.summary();
        assert!(summary.starts_with("Refused"), "{summary}");
        for (limit_record, answer) in record.limits.iter().zip(decision.limits()) {
            assert_eq!(
                (&*limit_record.name, limit_record.outcome),
                (answer.limit().name(), *answer.outcome())
            );
            let lines = limit_record.arithmetic(record.counted_at);
            let is_short = lines[2].ends_with(" short");
            let refused = matches!(limit_record.outcome.verdict, Verdict::Refused { .. });
            let is_charged = lines[2].ends_with(" asked for: refused, and charged all the same");
            assert_eq!(is_short, refused && !limit_record.count_denied, "{lines:?}");
            assert_eq!(is_charged, refused && limit_record.count_denied, "{lines:?}");
        }
        if record.fate == RecordFate::Refused {
            let limiting = &record.limits[record.limiting.unwrap()];
            assert_eq!(limiting.outcome.retry_after(), decision.retry_after().map(Span::from));
            assert!(summary.contains(&*limiting.name), "{summary}");
            let wait = limiting.arithmetic(record.counted_at)[3].clone();
            let wait = wait.rsplit(" in ").next().unwrap().split(',').next().unwrap().to_owned();
            let helps = decision.retry_after().is_some();
            let expected = if helps { format!("passes in {wait}.") } else { format!("{wait}.") };
            assert!(summary.ends_with(&expected), "{summary} against {wait}");
        }
    }
    assert!(refusals > 2_000, "{refusals}");
    assert_eq!(fates.keys().copied().collect::<Vec<_>>(), ["blocked", "deny_listed", "refused"]);
    let kept = watcher.kept();
    assert_eq!((kept.refusals, kept.since.is_some()), (refusals, true));
}

#[track_caller]
fn check(policy: &str, calls: &[Call<'_>], expected: &str) {
    let (limiter, watcher, _) = watched(policy);
    let mut last = String::new();
    for call in calls {
        last = record_of(&limiter, &watcher, &limiter.check(call)).summary();
    }
    assert_eq!(last, expected);
}

#[test]
fn a_summary_is_one_sentence() {
    let ann = || Call::new("GET", "/").user("ann").ip([203, 0, 113, 9]);
    let two = "limits: [{name: api, by: user, bucket: 2/minute}]";
    check(two, &[ann()], "Admitted by `api`: 2 of 2 tokens were left and 1 was asked for.");
    check(
        two,
        &[ann(), ann(), ann()],
        "Refused by `api`: 0 of 2 tokens were left and 1 was asked for; it passes in 30 s.",
    );
    check(
        two,
        &[ann().cost(3)],
        "Refused by `api`: 3 were asked for and it never holds more than 2; waiting does not help.",
    );
    check(
        "limits: [{name: api, endpoint: /x, by: user, bucket: 2/minute}]",
        &[ann()],
        "Admitted: no limit applies.",
    );
    check(
        "limits: [{name: api, by: user, windows: [1/s, 2/hour]}]",
        &[ann(), ann()],
        "Refused by `api/1s`: 0 of 1 tokens were left and 1 was asked for; it passes in 1 s.",
    );
    check(
        "limits: [{name: api, by: user, bucket: 1/minute, mode: shadow}, {name: all, by: global, bucket: 9/s}]",
        &[ann(), ann()],
        "Admitted by `all`: 8 of 9 tokens were left and 1 was asked for. `api` would have refused, and only counts.",
    );
    check(
        "deny: [{ip: 203.0.113.0/24}]\nlimits: [{by: ip, bucket: 1/s}]",
        &[ann()],
        "Refused: deny-listed in line 1 of the policy.",
    );
    check(
        "allow: [{ip: 203.0.113.0/24}]\nlimits: [{by: ip, bucket: 1/s}]",
        &[ann()],
        "Admitted: allow-listed in line 1 of the policy: no limit applies.",
    );
    check(
        "limits: [{name: api, by: user, bucket: 2/minute, overrides: {ann: blocked}}]",
        &[ann()],
        "Refused by `api`: `overrides` of limit `api` closes it to this key.",
    );
    check(
        "limits: [{name: api, by: user, bucket: 2/minute, count_denied: true}]",
        &[ann(), ann().cost(2)],
        "Refused by `api`: 2 were asked for, and charged all the same; after that 0 of 2 tokens were left; \
         it passes in 1 min.",
    );
    check(
        "limits: [{name: slots, by: user, slots: 1, ttl: 30s}]",
        &[ann(), ann()],
        "Refused by `slots`: 0 of 1 slots were free and 1 was asked for; one is free in 30 s at the latest.",
    );
}

#[test]
fn a_summary_names_shadow_limits_that_would_have_refused() {
    let ann = || Call::new("GET", "/").user("ann").ip([203, 0, 113, 9]);
    let one = "{name: use, by: user, bucket: 1/minute, mode: shadow}";
    let keyed = "{name: keyed, by: api_key, bucket: 9/s, missing: refuse, mode: shadow}";
    let blocked = "`keyed` (limit `keyed` counts by `api_key`, which this request does not have)";
    for (limits, calls, expected) in [
        (one.to_owned(), 1, "Admitted: `use` has room, and only counts.".to_owned()),
        (one.to_owned(), 2, "Admitted: `use` would have refused, and only counts.".to_owned()),
        (keyed.to_owned(), 1, format!("Admitted: {blocked} would have refused, and only counts.")),
        (
            format!("{one}, {keyed}"),
            2,
            format!("Admitted: `use` and {blocked} would have refused, and only count."),
        ),
        (
            format!("{keyed}, {{name: all, by: global, bucket: 9/s}}"),
            1,
            format!(
                "Admitted by `all`: 9 of 9 tokens were left and 1 was asked for. \
                 {blocked} would have refused, and only counts."
            ),
        ),
        (
            "{name: api, by: user, bucket: 1/s, mode: off}".to_owned(),
            1,
            "Admitted: every limit is switched off.".to_owned(),
        ),
    ] {
        check(&format!("limits: [{limits}]"), &vec![ann(); calls], &expected);
    }
    let (limiter, watcher, _) = watched(&format!("limits: [{keyed}]"));
    let shadowed = &record_of(&limiter, &watcher, &limiter.check(&ann())).shadowed;
    assert_eq!(shadowed.iter().map(|it| &*it.limit).collect::<Vec<_>>(), ["keyed"]);
}

#[test]
fn a_record_has_the_wait_that_the_caller_was_given() {
    let (limiter, watcher, _) = watched(
        "limits: [{name: slots, by: user, slots: 1, ttl: 30s}, {name: api, by: user, bucket: '1/10s, burst 2'}]",
    );
    let ann = Call::new("GET", "/").user("ann");
    drop(limiter.check(&ann));
    let decision = limiter.check(&ann);
    let record = record_of(&limiter, &watcher, &decision);
    assert_eq!((record.limit.as_deref(), record.retry_after), (Some("slots"), Some(Span::from_secs(1))));
    assert_eq!(decision.advised_wait().map(Span::from), record.retry_after);
    let decision = limiter.check(&Call::new("GET", "/").user("ann").cost(2));
    let record = record_of(&limiter, &watcher, &decision);
    assert_eq!((record.limit.as_deref(), record.retry_after), (Some("api"), Some(Span::from_secs(10))));
    let mut metrics = String::new();
    watcher.metrics(Timestamp::EPOCH, &mut metrics);
    assert!(metrics.contains("tollgate_retry_after_seconds_sum 11"), "{metrics}");
}

#[test]
fn a_record_names_the_plan_or_override_that_set_the_quota() {
    let (limiter, watcher, _) = watched(
        "limits: [{name: api, by: user, bucket: 1/minute, plans: {pro: 6/minute, same: 1/minute}, overrides: {bob: 3/minute}}]",
    );
    for (user, plan, expected) in [
        ("ann", None, None),
        ("ann", Some("pro"), Some("plan pro")),
        ("ann", Some("same"), Some("plan same")),
        ("ann", Some("none such"), None),
        ("bob", Some("pro"), Some("override")),
    ] {
        let call = Call::new("GET", "/").user(user);
        let call = match plan {
            Some(plan) => call.plan(plan),
            None => call,
        };
        let record = record_of(&limiter, &watcher, &limiter.check(&call));
        assert_eq!(record.limits[0].granted_by.as_deref(), expected, "{user} on {plan:?}");
    }
}

#[test]
fn a_quota_that_the_call_sets_is_marked_as_such() {
    let (limiter, watcher, clock) = watched("limits: [{name: api, by: user, bucket: 1/minute}]");
    let rule = Throttle { capacity: 1, count: 30, period: Span::from_secs(60).into() }.rule().unwrap();
    let ask = || pollster::block_on(limiter.decide_rule(&rule, Key::named(b"user:ann"), 1));
    drop(ask());
    let record = record_of(&limiter, &watcher, &ask());
    let limit = &record.limits[0];
    assert_eq!((record.limit.as_deref(), &*limit.name, &limit.window), (Some("throttle"), "throttle", &None));
    assert_eq!(limit.granted_by.as_deref(), Some("call"));
    assert_eq!(limit.promise(), "30 a minute, as the call said, at most 1 at once");
    assert!(record.summary().starts_with("Refused by `throttle`: "), "{}", record.summary());
    let top = watcher.top(clock.now(), 10);
    assert_eq!((&*top.keys[0].limit, &*top.keys[0].key), ("throttle", "user:ann"));
}

#[test]
fn a_key_in_the_path_is_redacted_unless_keys_are_shown() {
    let limits = "
limits:
  - {name: mail, endpoint: '/users/{email}/**', by: 'path:email', bucket: 2/minute}
  - {name: shop, by: 'header:host', bucket: 1000/s}
";
    for (privacy, path, host) in [
        ("plain", "/users/ann@example.com/a", "ann.example.com"),
        ("truncated", "/users/{email}/a", "{host}"),
        ("hashed", "/users/{email}/a", "{host}"),
    ] {
        let (limiter, watcher, clock) = watched(&format!("privacy: {{keys: {privacy}}}{limits}"));
        let call = Call::new("GET", "/users/ann@example.com/a")
            .host("ann.example.com")
            .header("host", "ann.example.com")
            .ip([203, 0, 113, 9]);
        let admitted = record_of(&limiter, &watcher, &limiter.check(&call));
        drop(limiter.check(&call));
        let refused = record_of(&limiter, &watcher, &limiter.check(&call));
        let considered =
            watcher.describe(limiter.policy(), 1, Some(call.subject()), &limiter.check(&call), clock.now());
        for record in [&*admitted, &*refused, &considered] {
            assert_eq!((&*record.path, record.host.as_deref()), (path, Some(host)), "{privacy}");
        }
        let top = watcher.top(clock.now(), 9);
        assert_eq!(top.routes.iter().map(|it| &*it.path).collect::<Vec<_>>(), [path]);
        let spenders = watcher.spenders(limiter.policy(), &refused.limits[0]);
        assert_eq!(spenders.iter().map(|it| &*it.path).collect::<Vec<_>>(), [path]);
        let all = format!("{admitted:?} {refused:?} {considered:?} {top:?} {spenders:?}");
        assert_eq!(all.contains("ann@example") || all.contains("ann.example"), privacy == "plain", "{all}");
    }
}

#[test]
fn stored_paths_are_dropped_when_a_new_policy_makes_them_keys() {
    let hashed = "privacy: {keys: hashed}\nlimits: [{name: api, by: user, bucket: 1/day}]";
    let (limiter, watcher, clock) = watched(hashed);
    let ann = Call::new("GET", "/users/ann").user("ann");
    drop(limiter.check(&ann));
    let record = record_of(&limiter, &watcher, &limiter.check(&ann));
    let by_path = ", {name: mail, endpoint: '/users/{email}', by: 'path:email', bucket: 2/minute}]";
    let limiter = limiter.with_policy(Policy::parse(&hashed.replace(']', by_path)).unwrap());
    assert_eq!((watcher.kept().refusals, watcher.top(clock.now(), 9).routes.len()), (0, 0));
    assert_eq!(watcher.spenders(limiter.policy(), &record.limits[0]), []);
}

#[test]
fn spenders_include_charged_refusals_and_checks_by_name() {
    let (limiter, watcher, clock) =
        watched("limits: [{name: api, by: user, bucket: 5/minute, count_denied: true}]");
    let ann = Call::new("GET", "/a").user("ann");
    drop(limiter.check(&Call::new("GET", "/a").user("ann").cost(5)));
    let limit = &limiter.policy().limits()[0];
    let key = limiter.policy().key(limit, &["ann"]).unwrap();
    for _ in 0..3 {
        drop(pollster::block_on(limiter.decide_named(limit, key.clone(), None, Some(2))));
    }
    let record = record_of(&limiter, &watcher, &limiter.check(&ann));
    let units_by_route = |watcher: &Watcher| {
        let spenders = watcher.spenders(limiter.policy(), &record.limits[0]);
        spenders
            .into_iter()
            .map(|it| (it.method.to_string(), it.path.to_string(), it.units))
            .collect::<Vec<_>>()
    };
    let by_name = (String::new(), String::new(), 6);
    assert_eq!(units_by_route(&watcher), [("GET".to_owned(), "/a".to_owned(), 6), by_name.clone()]);
    // After two minutes the earlier spending has expired.
    clock.advance(Span::from_secs(120));
    drop(limiter.check(&ann));
    assert_eq!(units_by_route(&watcher), [("GET".to_owned(), "/a".to_owned(), 1)]);
}

#[test]
fn a_considered_request_is_described_and_not_stored() {
    let (limiter, watcher, clock) =
        watched("limits: [{name: api, by: user, bucket: 1/minute, count_denied: true}]");
    let ann = Call::new("GET", "/hypothetical?secret=1").user("ann");
    drop(limiter.check(&ann));
    let before = watcher.kept();
    let decision = limiter.check(&ann);
    let record =
        watcher.describe(limiter.policy(), limiter.version(), Some(ann.subject()), &decision, clock.now());
    assert_eq!((record.seq, record.allowed, &*record.path), (0, false, "/hypothetical"));
    assert!(!record.limits[0].count_denied, "a considered request charges nothing");
    let kept = watcher.record(limiter.id_of(&decision)).unwrap();
    assert_eq!(kept.limits[0].key_hash, record.limits[0].key_hash);
    assert_eq!(watcher.kept().last, before.last + 1, "only the check is stored");
    let spenders = watcher.spenders(limiter.policy(), &record.limits[0]);
    assert_eq!(spenders.iter().map(|it| (&*it.path, it.units)).collect::<Vec<_>>(), [("/hypothetical", 2)]);
}

#[test]
fn a_descriptor_is_recorded_with_its_client_an_empty_method_and_the_path_of_the_root() {
    let by_path = "{name: mail, endpoint: '/users/{email}', by: 'path:email', bucket: 1/s}";
    for privacy in ["plain", "hashed"] {
        let (limiter, watcher, clock) = watched(&format!(
            "privacy: {{keys: {privacy}}}\nlimits: [{by_path}, {{name: user, descriptor: [user, remote_address], \
             by: 'descriptor:user', bucket: 1/minute}}]"
        ));
        let entries = [("user", "ann"), ("remote_address", "203.0.113.9")];
        let ann = Descriptor::new("edge", &entries);
        assert!(limiter.check(&ann).is_allowed());
        let record = record_of(&limiter, &watcher, &limiter.check(&ann));
        assert_eq!((record.limit.as_deref(), record.fate), (Some("user"), RecordFate::Refused));
        assert_eq!((&*record.method, &*record.path, record.host.as_deref()), ("", "/", None));
        let client = record.client.as_deref().unwrap();
        assert!(client == "203.0.113.9" || privacy == "hashed" && client.starts_with("hash:"), "{client}");
        assert!(record.trace.is_none());
        let routes = watcher.top(clock.now(), 9).routes;
        assert_eq!(routes.iter().map(|it| (&*it.method, &*it.path)).collect::<Vec<_>>(), [("", "/")]);
        let spenders = watcher.spenders(limiter.policy(), &record.limits[0]);
        assert_eq!(spenders.iter().map(|it| (&*it.method, &*it.path)).collect::<Vec<_>>(), [("", "/")]);
    }
}

#[test]
fn keys_and_addresses_are_stored_as_privacy_shows_them() {
    for (privacy, key, client) in
        [("plain", "annabel", "203.0.113.9"), ("truncated", "anna…", "203.0.…"), ("hashed", "hash:", "hash:")]
    {
        let policy =
            format!("privacy: {{keys: {privacy}}}\nlimits: [{{name: api, by: user, bucket: 1/minute}}]");
        let (limiter, watcher, clock) = watched(&policy);
        let call = Call::new("GET", "/").user("annabel").ip([203, 0, 113, 9]);
        drop(limiter.check(&call));
        let record = record_of(&limiter, &watcher, &limiter.check(&call));
        let shows =
            |text: &str, wanted: &str| text == wanted || (privacy == "hashed" && text.starts_with(wanted));
        assert!(shows(&record.limits[0].key, key), "{record:?}");
        assert!(shows(record.client.as_deref().unwrap(), client), "{record:?}");
        let spenders = watcher.spenders(limiter.policy(), &record.limits[0]);
        assert_eq!(spenders[0].client, record.client);
        let top = watcher.top(clock.now(), 10);
        assert_eq!((&*top.keys[0].limit, &top.keys[0].key), ("api", &record.limits[0].key));
        assert_eq!((top.keys[0].refused, top.keys[0].refused_at_least, top.refused), (1, 1, 1));
        let limit = &limiter.policy().limits()[0];
        let same = limiter.policy().key(limit, &["annabel"]).unwrap();
        assert_eq!(limiter.policy().show_key(limit, &same, watcher.secret()), *record.limits[0].key);
    }
}

#[test]
fn records_are_dropped_when_privacy_changes() {
    let plain = "limits: [{name: api, by: user, bucket: 1/day}]";
    let (limiter, watcher, clock) = watched(plain);
    let ann = Call::new("GET", "/").user("annabel");
    for _ in 0..400 {
        drop(limiter.check(&ann));
        clock.advance(Span::from_secs(1));
    }
    let policy = limiter.policy().clone();
    let limiter = limiter.with_policy(policy);
    assert_eq!(watcher.alerts(clock.now()).len(), 1, "the same privacy");
    let last = watcher.kept().last;
    let limiter = limiter.with_policy(Policy::parse(&format!("privacy: {{keys: hashed}}\n{plain}")).unwrap());
    assert_eq!((watcher.kept().refusals, watcher.kept().last), (0, last));
    assert!(watcher.top(clock.now(), 9).keys.is_empty() && watcher.alerts(clock.now()).is_empty());
    let record = record_of(&limiter, &watcher, &limiter.check(&ann));
    assert!(record.seq > last && record.limits[0].key.starts_with("hash:"), "{record:?}");
}

#[test]
fn a_record_knows_its_trace_its_mode_and_its_policy() {
    let (limiter, watcher, _) = watched(
        "limits: [{name: api, by: user, bucket: 1/minute}, {name: quiet, by: user, bucket: 1/minute, mode: shadow}]",
    );
    let limiter = limiter.with_policy(limiter.policy().clone());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let call = Call::new("GET", "/").user("ann").host("example.com").header("traceparent", parent);
    drop(limiter.check(&call));
    let record = record_of(&limiter, &watcher, &limiter.check(&call));
    assert_eq!(record.trace.map(|it| (it.span, it.sampled)), Some((0x00f0_67aa_0ba9_02b7, true)));
    assert_eq!((record.policy_version, record.host.as_deref()), (2, Some("example.com")));
    assert_eq!(record.limits.iter().map(|it| it.mode).collect::<Vec<_>>(), [Mode::Enforce, Mode::Shadow]);
    assert_eq!(record.limit.as_deref(), Some("api"));
    assert!(matches!(record.limits[0].quota, Quota::Bucket(_)));
}

#[test]
fn a_decision_without_the_store_is_marked_as_degraded() {
    let policy = "
limits:
  - {name: counts, endpoint: /a, by: user, bucket: 10/minute}
  - {name: passes, endpoint: /b, by: user, bucket: 10/minute, on_outage: allow}
  - {name: bars, endpoint: /c, by: user, bucket: 10/minute, on_outage: deny}
";
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter =
        Limiter::with_store(Policy::parse(policy).unwrap(), UnreachableStore).with_observer(watcher.clone());
    let summary = |path: &str| {
        let decision = pollster::block_on(limiter.decide(&Call::new("GET", path).user("ann")));
        let record = watcher.record(limiter.id_of(&decision)).unwrap();
        assert!(record.degraded);
        record.summary()
    };
    let decision = pollster::block_on(limiter.decide(&Call::new("GET", "/c").user("ann")));
    let record = watcher.record(limiter.id_of(&decision)).unwrap();
    assert_eq!(record.retry_after, Some(Span::from_secs(1)), "the same wait as in the response");
    let decision = pollster::block_on(limiter.decide(&Call::new("GET", "/a").user("bob")));
    let record = watcher.record(limiter.id_of(&decision)).unwrap();
    assert_eq!(
        record.limits[0].promise(),
        "10 a minute, at most 10 at once in the file; \
         in this outage this node grants its share: 1 in 30 s, at most 2 at once"
    );
    // The share of this node is a fifth of the capacity and of the rate.
    assert_eq!(
        summary("/a"),
        "Admitted by `counts`: 2 of 2 tokens were left and 1 was asked for. \
         The store gave no answer: it was counted on this node alone, by its share."
    );
    assert_eq!(
        summary("/b"),
        "Admitted: the store does not answer: admitted without counting, as `on_outage` says."
    );
    assert_eq!(
        summary("/c"),
        "Refused by `bars`: the store does not answer, and this limit refuses during an outage: \
         try again shortly."
    );
}
