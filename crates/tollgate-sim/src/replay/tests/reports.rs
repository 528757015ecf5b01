//! The contents of reports besides the totals.

use super::*;

fn at(second: u64, client: u8, path: &'static str) -> Request {
    Request { at: (1_700_000_000 + second) * 1_000_000, client, path, cost: 1 }
}

#[test]
fn lists_blocks_shadow_and_disabled_limits_decide_as_in_production() {
    let policy = "
deny: [{ip: 203.0.113.9}]
allow: [{ip: 203.0.113.8}]
limits:
  - {name: live, by: ip, bucket: 1/hour, overrides: {203.0.113.3: blocked, 203.0.113.4: unlimited, 203.0.113.5: 2/hour}}
  - {name: tried, by: ip, bucket: 2/hour, mode: shadow}
  - {name: idle, by: ip, bucket: 1/hour, mode: off}
  - {name: busy, by: ip, slots: 1}
  - {name: other, endpoint: /nowhere, by: ip, bucket: 1/hour}
";
    let log: Vec<_> = [9, 8, 8, 3, 4, 4, 5, 5, 5, 1, 1]
        .iter()
        .zip(0..)
        .map(|(&client, second)| at(second, client, "/"))
        .collect();
    let report = replayed(&[policy], Settings::default(), &log);
    let policy = &report.policy;
    assert_eq!((policy.requests, policy.refused, policy.deny_listed, policy.allow_listed), (11, 4, 1, 2));
    let [live, tried, idle, busy, other] = &policy.limits[..] else { panic!("five limits") };
    assert_eq!((live.checked, live.refused, live.decided, live.blocked), (6, 3, 3, 1));
    // The third request of client 5: its override refused it, so the shadow limit was not charged and has no room
    // either.
    assert_eq!((tried.mode.as_str(), tried.checked, tried.refused, tried.decided), ("shadow", 7, 1, 0));
    assert_eq!((idle.checked, busy.checked, other.checked), (0, 0, 0));
    assert!(report.notes.iter().any(|note| note.contains("limit `busy`: left out")), "{:?}", report.notes);
    assert!(
        report.notes.iter().any(|note| note.contains("limit `other`: never asked")),
        "{:?}",
        report.notes
    );
    assert!(!report.notes.iter().any(|note| note.contains("`idle`")), "{:?}", report.notes);
    // Only client 1 was under the limit's own numbers.
    assert_eq!(live.curve.as_ref().map(|curve| (curve.requests, curve.keys)), Some((2, 1)));
}

#[test]
fn two_policies_are_compared_request_by_request() {
    let (strict, lax) = (
        "limits: [{name: tight, by: ip, bucket: 1/hour}]",
        "limits: [{name: login, endpoint: /login, by: global, bucket: 1/hour}]",
    );
    let log = [
        at(0, 1, "/search"),
        at(1, 1, "/search"),
        at(2, 2, "/login"),
        at(3, 3, "/login"),
        at(4, 3, "/login"),
    ];
    let report = replayed(&[strict, lax], Settings::default(), &log);
    let [other] = &report.compared[..] else { panic!("one beside the first") };
    assert_eq!((report.policy.refused, other.policy.refused), (2, 2));
    // The second search is newly admitted and the first login of client 3 newly refused; both policies refuse its
    // second login.
    assert_eq!((other.newly_refused, other.newly_admitted), (1, 1));
    let moved = |list: &[crate::replay::ChangedRequests]| -> Vec<(String, u64, u64)> {
        list.iter().map(|it| (it.name.clone(), it.newly_refused, it.newly_admitted)).collect()
    };
    assert_eq!(moved(&other.limits_moved), [("login".to_owned(), 1, 0), ("tight".to_owned(), 0, 1)]);
    assert_eq!(
        moved(&other.clients_moved),
        [("203.0.113.1".to_owned(), 0, 1), ("203.0.113.3".to_owned(), 1, 0)]
    );
    assert_eq!(
        moved(&other.endpoints_moved),
        [("GET /login".to_owned(), 1, 0), ("GET /search".to_owned(), 0, 1)]
    );
    let fates: Vec<_> = other.examples.iter().map(|it| (it.before.as_str(), it.after.as_str())).collect();
    assert_eq!(fates, [("refused by tight", "admitted"), ("admitted", "refused by login")]);
    assert_eq!(other.examples[0].at, "2023-11-14T22:13:21Z");
}

#[test]
fn keys_follow_the_privacy_setting_and_missing_keys_are_counted() {
    let hidden = "
privacy: {keys: hashed}
limits: [{name: a, endpoint: '/users/{name}', by: 'path:name', bucket: 1/hour}]";
    let plain = "limits: [{name: a, by: api_key, bucket: 5/hour}]";
    let log = [at(0, 1, "/users/ann"), at(1, 1, "/users/ann")];
    let report = replayed(&[hidden, plain], Settings::default(), &log);
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("ann\"") && !json.contains("/ann"), "{json}");
    assert!(json.contains("hash:") && !report.compared[0].examples.is_empty());
    assert_eq!(report.compared[0].policy.limits[0].without_key, 2);
    assert!(report.notes.iter().any(|note| note.contains("--field api_key=NAME")), "{:?}", report.notes);
}

#[test]
fn an_empty_log_gives_an_empty_report() {
    let report = replayed(&["limits: [{name: a, by: ip, bucket: 1/s}]"], Settings::default(), &[]);
    assert_eq!((report.policy.requests, report.policy.limits.len(), report.notes.len()), (0, 1, 0));
    assert!(report.from.is_none() && report.policy.limits[0].curve.is_none());
}

#[test]
fn a_report_of_one_limit_does_not_disable_the_others() {
    let policy = "limits: [{name: a, by: ip, bucket: 1/hour}, {name: b, by: global, bucket: 1/hour}]";
    let settings = Settings { limit: Some("b".to_owned()), ..Settings::default() };
    let report = replayed(&[policy], settings, &[at(0, 1, "/"), at(1, 1, "/"), at(2, 2, "/")]);
    assert_eq!(report.policy.refused, 2);
    let names: Vec<_> = report.policy.limits.iter().map(|it| (it.name.as_str(), it.refused)).collect();
    assert_eq!(names, [("b", 2)]);
}

#[test]
fn a_gap_of_decades_and_a_request_that_is_late_are_counted() {
    let policy = "limits: [{name: a, by: ip, bucket: 1/hour}]";
    let mut log = vec![Request { at: 5, client: 1, path: "/", cost: 1 }, at(0, 1, "/"), at(1, 1, "/")];
    log.push(Request { at: 7, client: 1, path: "/", cost: 1 });
    log.push(at(4_000, 1, "/"));
    let report = replayed(&[policy], Settings::default(), &log);
    assert_eq!((report.policy.requests, report.policy.refused), (5, 2));
    assert_eq!(report.policy.heat.requests.iter().sum::<u64>(), 5);
}

/// Several windows, counted refusals, parts of a sliding window: a candidate with the limit's own numbers decides as
/// the limit does.
#[test]
fn a_limit_alone_refuses_as_many_as_its_own_point_of_the_curve() {
    for amount in [
        "windows: [3/2s, 8/20s], algorithm: fixed-window",
        "windows: [3/2s, 8/20s]",
        "rate: 4/10s, algorithm: fixed-window, count_denied: true",
        "bucket: 4/10s, count_denied: true",
        "rate: 6/10s, algorithm: sliding-window, parts: 7",
        "rate: 6/10s, algorithm: fixed-window, align: first-request",
        "rate: 60/hour, algorithm: fixed-window, align: calendar",
        "rate: 6/10s, algorithm: sliding-log, cost: {reserve: 2, settle: 'response:x-cost'}",
        "rate: 6/10s, algorithm: fixed-window, cost: {reserve: 1, settle: 'response:x-cost'}",
        "bucket: 6/10s, cost: {reserve: 2, settle: 'response:x-cost'}",
        "windows: [4/2s, 9/20s], cost: {reserve: 1, settle: 'response:x-cost'}",
    ] {
        for seed in 0..4 {
            let policy = format!("limits: [{{name: a, by: ip, {amount}}}]");
            let report = replayed(&[&policy], Settings::default(), &log(seed, 800, 3));
            let curve = report.policy.limits[0].curve.as_ref().unwrap();
            let own =
                curve.rates.iter().find(|point| point.amount == report.policy.limits[0].amount).unwrap();
            assert_eq!(own.refused, report.policy.refused, "seed {seed}: {amount}");
            assert!(own.refused > 0 && curve.rates[0].refused > own.refused, "seed {seed}: {amount}");
        }
    }
}

#[test]
fn a_sliding_log_with_three_windows_never_differs_from_the_exact_log() {
    let policy = "limits: [{name: a, by: ip, windows: [3/2s, 8/20s, 12/60s], algorithm: sliding-log}]";
    for seed in 0..4 {
        let report = replayed(&[policy], Settings::default(), &log(seed, 800, 3));
        let closed = report.policy.limits[0].exactness.unwrap().closed;
        assert!(closed.requests > 500 && closed.refused_by_log > 0, "{closed:?}");
        assert_eq!((closed.too_lax, closed.too_strict), (0, 0), "seed {seed}");
    }
}

/// The estimate decides, and the cost of the log is charged afterwards, into debt if needed. A limit that counts
/// requests is not affected.
#[test]
fn limits_that_settle_charge_the_cost_of_the_log_after_the_decision() {
    let policy = "
limits:
  - {name: requests, by: ip, rate: 3/minute, algorithm: sliding-log}
  - {name: tokens, endpoint: /login, by: ip, bucket: 10/hour, cost: {reserve: 1, settle: 'response:x-cost'}}";
    let four = |second, client, path| Request { cost: 4, ..at(second, client, path) };
    let log = [
        four(0, 1, "/login"),
        four(1, 1, "/login"),
        four(2, 1, "/login"),
        four(100, 1, "/login"),
        // No limit that settles applies: all limits charge the cost, which is more than three.
        four(101, 2, "/search"),
    ];
    let report = replayed(&[policy], Settings::default(), &log);
    let [requests, tokens] = &report.policy.limits[..] else { panic!("two limits") };
    assert_eq!((report.policy.refused, requests.refused, tokens.refused), (2, 1, 1));
    let curve = tokens.curve.as_ref().unwrap();
    let own = curve.rates.iter().find(|point| point.amount == tokens.amount).unwrap();
    assert_eq!((curve.requests, own.refused), (4, 1));
    assert!(tokens.exactness.is_none() && requests.exactness.is_some());
    let notes = report.notes.join("\n");
    assert!(notes.contains("limit `tokens`: charged the estimate first"), "{notes}");
    assert!(notes.contains("limit `requests`: charged the cost that the log states"), "{notes}");
    let silent = log.iter().map(|request| {
        let mut entry = entry(request);
        entry.cost = None;
        entry
    });
    let mut replay = Replay::new(vec![(String::new(), Policy::parse(policy).unwrap())], Settings::default());
    silent.for_each(|entry| replay.request(&entry));
    let notes = replay.finish(&Tally::default()).notes.join("\n");
    assert!(notes.contains("4 of 4 requests have no cost in the log"), "{notes}");
}

#[test]
fn several_gaps_of_years_are_as_exact_as_one() {
    let policy = "limits: [{name: a, by: ip, bucket: 1/hour}]";
    let years = (0..6).map(|gap| gap * 8 * 365 * 86_400);
    let log: Vec<_> = years.flat_map(|year| [0, 1, 7_200].map(|second| at(year + second, 1, "/"))).collect();
    let report = replayed(&[policy], Settings::default(), &log);
    assert_eq!((report.policy.requests, report.policy.refused), (18, 6));
}

#[test]
fn the_waits_of_a_queue_are_reported() {
    let policy = "
limits:
  - {name: queue, by: ip, algorithm: leaky-queue, rate: 10/second, queue: {length: 10, free: 2}}
  - {name: plain, by: ip, bucket: 100/second}
";
    // Of twenty at once, three start immediately, eight wait for 100 ms to 800 ms, and nine are refused.
    let log: Vec<_> = (0..20).map(|_| at(0, 1, "/")).collect();
    let report = replayed(&[policy], Settings::default(), &log);
    let [queue, plain] = &report.policy.limits[..] else { panic!("two limits") };
    assert_eq!((queue.algorithm.as_str(), queue.checked, queue.refused), ("leaky-queue", 20, 9));
    let waits = queue.waits.expect("it has a queue");
    assert_eq!((waits.delayed, waits.max_ms), (8, 800));
    assert!((400..=404).contains(&waits.p50_ms), "one part in 128 too large at most: {waits:?}");
    assert_eq!(plain.waits, None);
}
