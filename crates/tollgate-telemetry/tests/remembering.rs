//! Which records are stored and for how long, also during a flood.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tollgate::{Call, Clock as _, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_telemetry::{Record, WatchSettings, Watcher};

struct Scene {
    limiter: Limiter<MemoryStore<ManualClock>>,
    watcher: Watcher,
    clock: ManualClock,
}

fn scene(policy: &str, settings: &WatchSettings) -> Scene {
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{}", wrong.render("policy")));
    let clock = ManualClock::at(Timestamp::from_secs(1_731_672_000));
    let watcher = Watcher::new(settings);
    let limiter = Limiter::with_store(policy, MemoryStore::with_clock(100_000, clock.clone()));
    let limiter = limiter.with_observer_on(Arc::new(watcher.clone()), clock.clone());
    Scene { limiter, watcher, clock }
}

impl Scene {
    /// Checks one request, and returns its record if there is one.
    fn ask(&self, user: &str) -> Option<Arc<Record>> {
        let decision = self.limiter.check(&Call::new("GET", "/").user(user));
        self.watcher.record(self.limiter.id_of(&decision))
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn small() -> WatchSettings {
    WatchSettings { records: 100, ..WatchSettings::default() }
}

const BLOCKED: &str = "limits: [{name: api, by: user, bucket: 1/day}]";

#[test]
fn a_flood_of_one_key_does_not_evict_other_keys() {
    let scene = scene(BLOCKED, &small());
    let users: Vec<_> = (0..20).map(|user| format!("user-{user}")).collect();
    let first: Vec<_> = users
        .iter()
        .map(|user| {
            scene.ask(user);
            scene.ask(user).unwrap().id
        })
        .collect();
    scene.ask("flood");
    let flood: Vec<_> = (0..10_000).map(|_| scene.ask("flood").unwrap().id).collect();
    for id in first {
        assert!(scene.watcher.record(id).is_some(), "the first refusal of its key");
    }
    assert!(scene.watcher.record(flood[0]).is_some(), "the first refusal of the flood");
    assert!(scene.watcher.record(flood[5_000]).is_none());
    assert!(flood[9_900..].iter().all(|&id| scene.watcher.record(id).is_some()), "the last hundred");
    let kept = scene.watcher.kept();
    assert_eq!((kept.refusals, kept.most), (121, 125));
}

#[test]
fn a_key_has_a_first_refusal_again_after_a_minute() {
    let scene = scene(BLOCKED, &small());
    scene.ask("ann");
    let mut firsts = Vec::new();
    for _ in 0..3 {
        firsts.push(scene.ask("ann").unwrap().id);
        (0..500).for_each(|_| drop(scene.ask("ann")));
        scene.clock.advance(Span::from_secs(61));
    }
    assert!(firsts.iter().all(|&id| scene.watcher.record(id).is_some()));
}

#[test]
fn a_reader_sees_every_record_or_the_number_that_it_missed() {
    let scene = scene(BLOCKED, &small());
    let (mut seen, mut last, mut missed) = (0, 0, 0);
    for turn in 0..50 {
        // Sometimes more arrive than are kept.
        let many = if turn % 10 == 9 { 300 } else { 17 };
        (0..many).for_each(|_| drop(scene.ask("ann")));
        loop {
            let (records, gone) = scene.watcher.records_after(last, 10);
            missed += gone;
            let Some(newest) = records.last() else { break };
            assert!(records.len() <= 10 && records.is_sorted_by_key(|it| it.seq));
            assert!(records[0].seq > last);
            (seen, last) = (seen + records.len() as u64, newest.seq);
        }
    }
    assert_eq!(last, scene.watcher.kept().last);
    assert_eq!(seen + missed, last, "each record is either seen or counted as missed");
    assert!(missed > 500, "{missed}");
    assert_eq!(scene.watcher.records_after(last + 1, 5).0.len(), 5, "a number of another process");
    let latest: Vec<_> = scene.watcher.latest_records(7, false).iter().map(|it| it.seq).collect();
    assert_eq!(latest, (last - 6..=last).collect::<Vec<_>>());
}

#[test]
fn concurrent_refusals_lose_no_record_and_no_sequence_number() {
    let scene = scene(BLOCKED, &WatchSettings::default());
    scene.ask("ann");
    let first = scene.watcher.kept().last;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2_000).for_each(|_| assert!(scene.ask("ann").is_some())));
        }
        // A concurrent reader sees each record once, in order.
        let mut last = first;
        while last < first + 8_000 {
            let (records, missed) = scene.watcher.records_after(last, 100);
            assert_eq!(missed, 0);
            for record in records {
                assert_eq!(record.seq, last + 1);
                last = record.seq;
            }
        }
    });
    let top = scene.watcher.top(scene.now(), 1);
    assert_eq!((top.keys[0].refused, top.refused, scene.watcher.kept().refusals), (8_000, 8_000, 8_000));
}

#[test]
fn admitted_requests_are_sampled_and_never_evict_refusals() {
    let scene = scene(
        "limits: [{name: api, by: user, bucket: 1000000/s}, {name: one, endpoint: /one, by: user, bucket: 1/day}]",
        &small(),
    );
    let one = Call::new("GET", "/one").user("ann");
    drop(scene.limiter.check(&one));
    let refused = scene.limiter.id_of(&scene.limiter.check(&one));
    let kept = (0..10_000).filter(|_| scene.ask("ann").is_some()).count();
    assert_eq!(kept, 19, "twenty in a second, and one was before");
    scene.clock.advance(Span::from_secs(1));
    assert_eq!((0..10_000).filter(|_| scene.ask("ann").is_some()).count(), 20);
    for _ in 0..1_000 {
        scene.clock.advance(Span::from_secs(1));
        (0..20).for_each(|_| drop(scene.ask("ann")));
    }
    assert!(scene.watcher.record(refused).is_some());
    assert_eq!(scene.watcher.latest_records(10, true).len(), 1);
    assert_eq!(scene.watcher.latest_records(10, false).len(), 10);
    assert_eq!(scene.watcher.latest_records(usize::MAX, false).len(), 1_024 + 1);
}

#[test]
fn requests_that_a_shadow_limit_would_have_refused_are_sampled() {
    let scene = scene("limits: [{name: quiet, by: user, bucket: 1/day, mode: shadow}]", &small());
    let kept = (0..200).filter(|_| scene.ask("ann").is_some()).count();
    assert_eq!(kept, 100 + 20);
    assert_eq!(scene.watcher.top(scene.now(), 10).keys, [], "no request was refused");
}

#[test]
fn the_top_lists_have_refused_keys_and_requested_routes() {
    let scene = scene(
        "limits: [{name: api, by: user, windows: [1/s, 3/day]}, {name: shut, endpoint: /shut, by: api_key, bucket: 1/s, missing: refuse}]",
        &small(),
    );
    for turn in 0..30 {
        for user in ["ann", "ann", "bob"] {
            let path = if turn % 2 == 0 { "/even?q=1" } else { "/odd" };
            drop(scene.limiter.check(&Call::new("GET", path).user(user)));
        }
        scene.clock.advance(Span::from_secs(1));
    }
    (0..5).for_each(|_| drop(scene.limiter.check(&Call::new("PUT", "/shut").ip([203, 0, 113, 9]))));
    let top = scene.watcher.top(scene.now(), 10);
    let keys: Vec<_> =
        top.keys.iter().map(|it| (&*it.limit, &*it.key, it.refused, it.refused_at_least)).collect();
    // Both windows of a limit are listed as one key.
    assert_eq!(keys, [("api", "ann", 57, 57), ("api", "bob", 27, 27), ("shut", "client 203.0.113.9", 5, 5)]);
    assert_eq!((top.refused, top.error_at_most, top.window), (89, 0, Span::from_secs(300)));
    let routes: Vec<_> =
        top.routes.iter().map(|it| (&*it.method, &*it.path, it.requests, it.refused)).collect();
    assert_eq!(routes[2], ("PUT", "/shut", 5, 5));
    assert_eq!(routes[..2].iter().map(|it| it.2).collect::<Vec<_>>(), [45, 45]);
    assert_eq!((top.requests, routes[0].3 + routes[1].3), (95, 84));
    assert_eq!(scene.watcher.top(scene.now(), 1).keys.len(), 1);
    scene.clock.advance(Span::from_secs(301));
    assert_eq!(scene.watcher.top(scene.now(), 10).refused, 0);
}

#[test]
fn admitted_routes_are_scaled_up_from_a_sample_at_high_rates() {
    let scene = scene("limits: [{name: api, by: user, bucket: 1000000000/s}]", &small());
    let paths = [("/often", 3), ("/seldom", 1)];
    for turn in 0..200_000_u64 {
        let path = paths[usize::from(turn % 4 == 0)].0;
        drop(scene.limiter.check(&Call::new("GET", path).user("ann")));
        if turn % 20_000 == 0 {
            scene.watcher.tick(scene.now());
        }
    }
    let top = scene.watcher.top(scene.now(), 10);
    for ((path, quarters), route) in paths.iter().zip(&top.routes) {
        assert_eq!(&*route.path, *path);
        let (truth, estimate) = (50_000 * quarters, route.requests);
        assert!(estimate.abs_diff(truth) < truth / 4, "{estimate} for {truth}");
    }
}

#[test]
fn a_key_that_is_exhausted_for_five_minutes_is_an_alert() {
    let scene = scene(
        "
limits:
  - {name: api, endpoint: '/**', by: user, bucket: 10/hour}
  - {name: quiet, endpoint: '/**', by: user, bucket: 5/hour, mode: shadow}
  - {name: one, endpoint: /one, by: user, bucket: '60/minute, burst 1'}
",
        &small(),
    );
    let names = |scene: &Scene| {
        let alerts = scene.watcher.alerts(scene.now());
        alerts.iter().map(|it| format!("{} {}", it.limit, it.key)).collect::<Vec<_>>()
    };
    for second in 0..330 {
        scene.ask("ann");
        // At the permitted rate, and at twice that rate.
        drop(scene.limiter.check(&Call::new("GET", "/one").user("slow").cost(u64::from(second % 2 == 0))));
        if second < 299 {
            assert_eq!(names(&scene), [""; 0], "after {second} s");
        }
        scene.clock.advance(Span::from_secs(1));
    }
    assert_eq!(names(&scene), ["api ann", "api slow"]);
    let alert = &scene.watcher.alerts(scene.now())[0];
    assert!(alert.refused > 300, "{alert:?}");
    scene.clock.advance(Span::from_secs(61));
    assert_eq!(names(&scene), [""; 0], "requests have stopped");
}

#[test]
fn a_bucket_of_one_is_an_alert_only_while_it_refuses() {
    let scene = scene("limits: [{name: one, by: user, bucket: '60/minute, burst 1'}]", &small());
    for _ in 0..330 {
        scene.ask("behaves");
        scene.ask("twice as fast");
        scene.ask("twice as fast");
        scene.clock.advance(Span::from_secs(1));
    }
    let alerts = scene.watcher.alerts(scene.now());
    assert_eq!(alerts.iter().map(|it| (&*it.key, it.refused)).collect::<Vec<_>>(), [("twice as fast", 330)]);
    drop(scene.limiter.check(&Call::new("GET", "/").user("twice as fast").cost(2)));
    assert_eq!(scene.watcher.alerts(scene.now()), [], "the cost exceeds the capacity, and one unit is left");
}

/// Sends requests for longer than the alert threshold.
fn keep_asking(scene: &Scene, user: &str) {
    for _ in 0..=310 {
        scene.ask(user);
        scene.clock.advance(Span::from_secs(1));
    }
}

#[test]
fn an_alert_ends_when_the_key_gets_a_grant() {
    let policy = "
limits:
  - name: api
    by: user
    windows: [5/hour, 7/day]
    plans: {pro: [6/hour, 8/day]}
    overrides: {bob: [2/hour, 3/day]}
";
    let scene = scene(policy, &small());
    for user in ["ann", "bob"] {
        keep_asking(&scene, user);
        let limit = &scene.limiter.policy().limits()[0];
        let key = |user| scene.limiter.policy().key(limit, &[user]).unwrap();
        let alerts = scene.watcher.alerts(scene.now());
        assert!(!alerts.is_empty() && alerts.iter().all(|it| &*it.key == user), "{alerts:?}");
        scene.watcher.forget_key(limit, &key("somebody else"));
        assert_eq!(scene.watcher.alerts(scene.now()), alerts);
        scene.watcher.forget_key(limit, &key(user));
        assert_eq!(scene.watcher.alerts(scene.now()), []);
    }
}

#[test]
fn an_alert_ends_when_its_limit_no_longer_refuses() {
    let policy = "limits: [{name: api, by: user, bucket: 10/hour}, {name: other, by: user, bucket: 9999/s}]";
    for (changed, remain) in [
        (policy.to_owned(), 1),
        (policy.replace("9999/s", "8888/s"), 1),
        (policy.replace("10/hour", "20/hour"), 0),
        (policy.replace("10/hour", "10/hour, mode: shadow"), 0),
        (policy.replace("10/hour", "10/hour, mode: off"), 0),
        (policy.replace("name: api", "name: new"), 0),
    ] {
        let scene = scene(policy, &small());
        keep_asking(&scene, "ann");
        assert_eq!(scene.watcher.alerts(scene.now()).len(), 1);
        let _limiter = scene.limiter.with_policy(Policy::parse(&changed).unwrap());
        assert_eq!(scene.watcher.alerts(scene.now()).len(), remain, "{changed}");
    }
}

#[test]
fn a_caller_at_its_limit_that_is_never_refused_is_no_alert() {
    let scene = scene("limits: [{name: api, by: user, bucket: '60/minute, burst 2'}]", &small());
    scene.ask("ann");
    keep_asking(&scene, "ann");
    assert_eq!(scene.watcher.top(scene.now(), 1).refused, 0);
    assert_eq!(scene.watcher.alerts(scene.now()), []);
}

#[test]
fn routes_are_ranked_by_their_lower_bound_when_there_are_many_paths() {
    let scene = scene("limits: [{name: api, by: user, bucket: 1000000/s}]", &small());
    for turn in 0..6_000 {
        let path = if turn % 20 == 0 { "/checkout".to_owned() } else { format!("/once/{turn}") };
        drop(scene.limiter.check(&Call::new("GET", &path).user("ann")));
        if turn % 200 == 0 {
            scene.clock.advance(Span::from_secs(1));
        }
    }
    let top = scene.watcher.top(scene.now(), 10);
    let (first, others) = top.routes.split_first().unwrap();
    assert_eq!(&*first.path, "/checkout");
    assert!(first.requests_at_least <= 300 && first.requests >= 300, "{first:?}");
    assert!(first.requests_at_least > 200, "{first:?}");
    assert!(others.iter().all(|it| it.requests_at_least == 1 && it.requests > 1), "{others:?}");
    assert!(others.iter().all(|it| it.requests - it.requests_at_least <= top.routes_error_at_most));
}

#[test]
fn truncated_texts_end_in_an_ellipsis() {
    let scene = scene(BLOCKED, &small());
    let (method, path, host) = ("M".repeat(50), format!("/{}", "p".repeat(300)), "h".repeat(200));
    let call = Call::new(&method, &path).host(&host).user("ann");
    drop(scene.limiter.check(&call));
    let refused = scene.limiter.check(&call);
    let record = scene.watcher.record(scene.limiter.id_of(&refused)).unwrap();
    let sizes = [(&*record.method, 32), (&*record.path, 256), (record.host.as_deref().unwrap(), 128)];
    assert!(sizes.iter().all(|(text, size)| text.ends_with('…') && text.len() == *size), "{record:?}");
    let route = &scene.watcher.top(scene.now(), 1).routes[0];
    assert!(route.method.ends_with('…') && route.path.ends_with('…'), "{route:?}");
    let spender = &scene.watcher.spenders(scene.limiter.policy(), &record.limits[0])[0];
    assert!(spender.method.ends_with('…') && spender.path.ends_with('…'), "{spender:?}");
}

/// Returns the latest records as text.
fn texts(watcher: &Watcher) -> Vec<String> {
    watcher.latest_records(usize::MAX, false).iter().map(|record| format!("{record:?}")).collect()
}

#[test]
fn records_of_a_replaced_policy_are_read_as_before() {
    let policy = "
limits:
  - {name: api, by: user, windows: [1/hour, 9/day], plans: {pro: [2/hour, 9/day]}, overrides: {bob: [1/hour, 2/day]}}
  - {name: all, by: global, bucket: 100/day}
";
    let scene = scene(policy, &small());
    for user in ["ann", "bob", "ann", "bob", "cat", "cat"] {
        scene.ask(user);
        drop(scene.limiter.check(&Call::new("PUT", "/pro?q=1").user(user).plan("pro").host("example.com")));
    }
    let before = texts(&scene.watcher);
    assert_eq!(before.len(), 12);
    let Scene { limiter, watcher, clock } = scene;
    // Each policy is replaced by one with other limits, after it has refused once.
    let mut limiter = limiter;
    for turn in 0..5 {
        let next = format!("limits: [{{name: other-{turn}, by: user, bucket: 1/day}}]");
        limiter = limiter.with_policy(Policy::parse(&next).unwrap());
        assert_eq!(texts(&watcher)[..12], before, "turn {turn}");
        if turn % 2 == 0 {
            watcher.tick(clock.now());
        }
        drop(limiter.check(&Call::new("GET", "/").user("ann")));
        drop(limiter.check(&Call::new("GET", "/").user("ann")));
    }
    drop(limiter);
    watcher.tick(clock.now());
    let after = watcher.latest_records(usize::MAX, false);
    assert_eq!(after.len(), 12 + 10);
    assert_eq!(texts(&watcher)[..12], before);
    assert_eq!((&*after[21].limits[0].name, after[21].allowed), ("other-4", false));
    let found = watcher.record(after[0].id).map(|record| format!("{record:?}"));
    assert_eq!(found.as_ref(), before.first());
}

#[test]
fn records_are_selected_by_their_heads() {
    let scene = scene(BLOCKED, &small());
    let ids: Vec<_> = (0..10).filter_map(|_| scene.ask("ann")).map(|record| record.id).collect();
    assert_eq!(ids.len(), 10);
    let page = scene.watcher.select_records_after(2, 5, |head| head.seq % 2 == 0 && !head.allowed);
    assert_eq!(page.records.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[3], ids[5]]);
    assert_eq!((page.read, page.last, page.missed), (5, Some(7), 0));
    (0..500).for_each(|_| drop(scene.ask("ann")));
    let page = scene.watcher.select_records_after(2, 5, |_| false);
    assert!(page.records.is_empty() && page.missed > 300, "{page:?}");
}
