//! How decisions are counted, in total and for each limit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tollgate::{
    Call, Clock as _, HoldEnd, Limiter, ManualClock, MemoryStore, NotHeld, Policy, Sleeper, Span, Timestamp,
};
use tollgate_telemetry::{Counts, LimitCounts, QueueView, WatchSettings, Watcher};

use crate::gone::UnreachableStore;

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

type Watched = Limiter<MemoryStore<ManualClock>>;

fn watched(policy: &str) -> (Watched, Watcher) {
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{}", wrong.render("policy")));
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter = Limiter::with_store(policy, MemoryStore::with_clock(10_000, clock()));
    (limiter.with_observer_on(Arc::new(watcher.clone()), clock()), watcher)
}

fn ann() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

fn ask(limiter: &Watched, times: usize, call: &Call<'_>) {
    for _ in 0..times {
        drop(limiter.check(call));
    }
}

fn limit(watcher: &Watcher, name: &str) -> LimitCounts {
    watcher.limit_totals(name).unwrap_or_else(|| panic!("{name} is not counted"))
}

#[test]
fn every_decision_is_counted_as_one_kind() {
    let (limiter, watcher) = watched(
        "
allow: [{user: root}]
deny: [{user: eve}]
limits:
  - {name: api, endpoint: '/api/**', by: user, bucket: 2/hour, overrides: {bob: blocked}}
",
    );
    for (times, user) in [(5, "ann"), (4, "bob"), (3, "eve"), (2, "root")] {
        ask(&limiter, times, &Call::new("GET", "/api/x").user(user));
    }
    ask(&limiter, 1, &ann());
    let wanted = Counts { allowed: 2, unlimited: 3, limited: 3, blocked: 7, ..Counts::default() };
    assert_eq!(watcher.totals(), wanted);
    let wanted = LimitCounts { allowed: 2, limited: 3, blocked: 4, exhausted: 1, ..LimitCounts::default() };
    assert_eq!(limit(&watcher, "api"), wanted);
}

#[test]
fn a_limit_with_several_windows_counts_once() {
    let (limiter, watcher) =
        watched("limits: [{name: api, by: user, windows: [4/second, 8/minute, 10/hour]}]");
    ask(&limiter, 6, &ann());
    let wanted = LimitCounts { allowed: 4, limited: 2, exhausted: 1, ..LimitCounts::default() };
    assert_eq!(limit(&watcher, "api"), wanted);
    assert_eq!(watcher.limit_window("api").unwrap().remaining_min, Some(0));
}

#[test]
fn a_refusal_by_another_limit_spends_nothing_and_is_not_counted_as_own() {
    let (limiter, watcher) = watched(
        "limits: [{name: wide, by: user, bucket: 3/hour}, {name: tight, by: global, bucket: 2/hour}]",
    );
    ask(&limiter, 5, &ann());
    let wanted = LimitCounts { allowed: 5, ..LimitCounts::default() };
    assert_eq!(limit(&watcher, "wide"), wanted);
    let wanted = LimitCounts { allowed: 2, limited: 3, exhausted: 1, ..LimitCounts::default() };
    assert_eq!(limit(&watcher, "tight"), wanted);
    assert_eq!(watcher.limit_window("wide").unwrap().remaining_min, Some(334), "one of three, rounded up");
}

#[test]
fn a_limit_in_shadow_mode_counts_what_it_would_have_refused() {
    let (limiter, watcher) = watched(
        "
limits:
  - {name: quiet, by: user, bucket: 1/hour, mode: shadow}
  - {name: bars, by: user, bucket: 9/hour, mode: shadow, overrides: {bob: blocked}}
  - {name: real, by: user, bucket: 3/hour}
",
    );
    ask(&limiter, 5, &ann());
    ask(&limiter, 1, &Call::new("GET", "/").user("bob"));
    assert_eq!(limit(&watcher, "quiet").shadow_limited, 4);
    assert_eq!((limit(&watcher, "quiet").limited, limit(&watcher, "bars").shadow_limited), (0, 1));
    // Two admitted requests and the blocked one; not the two that another limit refused.
    let wanted = Counts { allowed: 4, limited: 2, shadow_limited: 3, ..Counts::default() };
    assert_eq!(watcher.totals(), wanted);
}

#[test]
fn requests_beyond_a_soft_threshold_are_counted() {
    let (limiter, watcher) = watched("limits: [{name: api, by: user, bucket: 10/hour, soft: 80%}]");
    ask(&limiter, 12, &ann());
    let wanted = LimitCounts { allowed: 10, limited: 2, soft: 3, exhausted: 1, ..LimitCounts::default() };
    assert_eq!(limit(&watcher, "api"), wanted);
}

#[test]
fn a_candidate_is_compared_with_its_live_limit() {
    let check = |candidate: &str, wanted: [u64; 4]| {
        let (limiter, watcher) = watched(&format!(
            "limits: [{{name: api, by: user, bucket: 4/hour, plans: {{free: 4/hour}}, candidate: {candidate}}}]"
        ));
        ask(&limiter, 6, &Call::new("GET", "/").user("ann").plan("free"));
        assert_eq!(limit(&watcher, "api.candidate").agreement, wanted, "{candidate}");
        assert_eq!(limit(&watcher, "api").agreement, [0; 4], "{candidate}");
        assert_eq!(watcher.totals().shadow_limited, 0, "a candidate is not in shadow mode by itself");
    };
    check("{bucket: 4/hour}", [4, 0, 0, 2]);
    check("{bucket: 2/hour}", [2, 0, 2, 2]);
    check("{bucket: 5/hour}", [4, 1, 0, 1]);
    check("{windows: [5/hour, 3/day], plans: {free: [5/hour, 3/day]}}", [3, 0, 1, 2]);
    check("{bucket: 2/hour, plans: {free: unlimited}}", [4, 2, 0, 0]);
    check("{bucket: 2/hour, plans: {free: blocked}}", [0, 0, 4, 2]);
}

#[test]
fn a_comparison_starts_over_when_either_limit_changes() {
    let policy = "limits: [{name: api, by: user, bucket: 4/hour, candidate: {bucket: 2/hour}}]";
    for (changed, is_same) in [
        (policy.to_owned(), true),
        (policy.replace("4/hour", "5/hour"), false),
        (policy.replace("2/hour", "3/hour"), false),
        (policy.replace("2/hour}", "2/hour, plans: {pro: 9/hour}}"), false),
    ] {
        let (limiter, watcher) = watched(policy);
        assert_eq!(watcher.agreement_since("api.candidate"), None);
        ask(&limiter, 3, &ann());
        assert_eq!(limit(&watcher, "api.candidate").agreement, [2, 0, 1, 0]);
        assert_eq!(watcher.agreement_since("api.candidate"), Some(Timestamp::from_secs(1_700_000_000)));
        let _limiter = limiter.with_policy(Policy::parse(&changed).unwrap());
        let wanted = if is_same { [2, 0, 1, 0] } else { [0; 4] };
        assert_eq!(limit(&watcher, "api.candidate").agreement, wanted, "{changed}");
        assert_eq!(watcher.agreement_since("api.candidate").is_some(), is_same, "{changed}");
    }
}

#[test]
fn a_candidate_is_not_compared_without_the_store() {
    let policy = "limits: [{name: api, by: user, bucket: 100/hour, candidate: {bucket: 50/hour}}]";
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter =
        Limiter::with_store(Policy::parse(policy).unwrap(), UnreachableStore).with_observer(watcher.clone());
    for _ in 0..50 {
        drop(pollster::block_on(limiter.decide(&ann())));
    }
    assert_eq!(watcher.totals().degraded, 50);
    assert_eq!(limit(&watcher, "api.candidate").agreement, [0; 4]);
}

#[test]
fn a_limit_that_keeps_its_name_keeps_its_counts_over_reloads() {
    let (limiter, watcher) =
        watched("limits: [{name: a, by: user, bucket: 9/hour}, {name: b, by: user, bucket: 9/hour}]");
    ask(&limiter, 2, &ann());
    let text = "limits: [{name: new, by: user, bucket: 1/hour}, {name: a, by: user, bucket: 9/hour}]";
    let limiter = limiter.with_policy(Policy::parse(text).unwrap());
    ask(&limiter, 1, &ann());
    let allowed = ["a", "b", "new"].map(|name| limit(&watcher, name).allowed);
    assert_eq!(allowed, [3, 2, 1]);
    assert_eq!(watcher.totals().allowed, 3);
    assert_eq!(watcher.limit_totals("nobody"), None);
}

/// Returns a policy with one limit per name, each for one path.
fn policy_of(names: impl Iterator<Item = String>) -> String {
    let mut policy = "limits:\n".to_owned();
    for name in names {
        writeln!(policy, "  - {{name: {name}, endpoint: /{name}, by: user, bucket: 9/hour}}").unwrap();
    }
    policy
}

#[test]
fn names_are_bounded_and_removed_limits_are_evicted() {
    let (limiter, watcher) = watched(&policy_of((0..2100).map(|at| format!("old-{at}"))));
    let to = |path| Call::new("GET", path).user("ann");
    ask(&limiter, 1, &to("/old-0"));
    ask(&limiter, 2, &to("/old-2000"));
    ask(&limiter, 3, &to("/old-2099"));
    assert_eq!(limit(&watcher, "old-0").allowed, 1);
    assert_eq!(watcher.limit_totals("old-2000"), None);
    assert_eq!(limit(&watcher, "_other").allowed, 5);

    let names = (0..1990).map(|at| format!("old-{at}")).chain((0..20).map(|at| format!("new-{at}")));
    let limiter = limiter.with_policy(Policy::parse(&policy_of(names)).unwrap());
    ask(&limiter, 1, &to("/old-0"));
    ask(&limiter, 1, &to("/new-9"));
    ask(&limiter, 1, &to("/new-19"));
    assert_eq!(limit(&watcher, "old-0").allowed, 2);
    assert_eq!(limit(&watcher, "new-9").allowed, 1, "ten removed limits made room for ten new ones");
    assert_eq!(watcher.limit_totals("new-19"), None);
    assert_eq!(watcher.limit_totals("old-1995"), None);
    assert_eq!(limit(&watcher, "_other").allowed, 6);
}

#[test]
fn decisions_without_the_store_are_counted_as_degraded() {
    let policy = "
limits:
  - {name: counts, endpoint: /a, by: user, bucket: 100/hour}
  - {name: passes, endpoint: /b, by: user, bucket: 100/hour, on_outage: allow}
  - {name: bars, endpoint: /c, by: user, bucket: 100/hour, on_outage: deny}
";
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter =
        Limiter::with_store(Policy::parse(policy).unwrap(), UnreachableStore).with_observer(watcher.clone());
    for path in ["/a", "/b", "/c"] {
        drop(pollster::block_on(limiter.decide(&Call::new("GET", path).user("ann"))));
    }
    let wanted = Counts { allowed: 2, uncountable: 1, degraded: 3, ..Counts::default() };
    assert_eq!(watcher.totals(), wanted);
    let of = |name: &str| limit(&watcher, name);
    assert_eq!((of("counts").allowed, of("counts").degraded), (1, 1));
    assert_eq!(of("passes"), LimitCounts::default(), "it took no part");
    assert_eq!((of("bars").blocked, of("bars").degraded), (1, 1));
    let mut metrics = String::new();
    watcher.metrics(Timestamp::EPOCH, &mut metrics);
    assert!(metrics.contains("tollgate_store_seconds_count{answered=\"false\"} 3\n"), "{metrics}");
}

#[test]
fn concurrent_threads_lose_no_counts() {
    let (limiter, watcher) = watched("limits: [{name: api, by: user, bucket: 700/hour}]");
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| ask(&limiter, 50, &ann()));
        }
    });
    let wanted = Counts { allowed: 700, limited: 300, ..Counts::default() };
    assert_eq!(watcher.totals(), wanted);
    let api = limit(&watcher, "api");
    assert_eq!((api.allowed, api.limited, api.exhausted), (700, 300, 1));
    assert_eq!(watcher.limit_window("api").unwrap().counts, api);
}

const QUEUE: &str =
    "limits: [{name: reports, by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 4}}]";

#[test]
fn a_request_that_is_not_held_is_counted_and_explained_as_refused() {
    let (limiter, watcher) = watched(QUEUE);
    ask(&limiter, 1, &ann());
    let mut second = limiter.check(&ann());
    let (id, place) = (limiter.id_of(&second), limiter.queue_place(&second));
    limiter.refuse_wait(Some(&ann()), &mut second, Duration::ZERO, NotHeld::NoPlace);
    drop(place);
    assert_eq!(watcher.totals(), Counts { allowed: 1, limited: 1, ..Counts::default() });
    let counts = limit(&watcher, "reports");
    assert_eq!((counts.allowed, counts.limited), (1, 1));
    let record = watcher.record(id).expect("every refusal is recorded");
    assert_eq!((record.allowed, record.wait()), (false, None));
    assert_eq!(
        record.summary(),
        "Refused: the waiting room of this server was full; it would have had to wait in the queue of `reports`; it \
         passes in 100 ms."
    );
    let lines = record.limits[0].arithmetic(record.counted_at);
    assert!(lines[2].ends_with("there is room, but it would have to wait, and it was not held"), "{lines:?}");
    assert_eq!(watcher.queue("reports", clock().now()).unwrap().waiting, 0);
}

#[test]
fn a_request_that_finds_no_place_to_wait_for_a_slot_is_explained_by_the_full_waiting_room() {
    let (limiter, watcher) = watched(
        "limits: [{name: db, by: global, slots: 1, queue: {length: 3, wait: 60s}}, {name: day, by: global, bucket: 9/day}]",
    );
    let call = ann();
    let _running = limiter.acquire_now(&call).unwrap();
    let ends = [(None, ""), (Some(HoldEnd::Displaced), ", and a more important request took its place")];
    for (end, displaced) in ends {
        let pending = limiter.try_decide_or_wait(&call, |_| ()).unwrap_err();
        let hold = |_| end.map(|end| std::future::ready(Ok::<_, Infallible>(end)));
        let refused = pollster::block_on(pending.finish_waiting(Some(&call), hold)).unwrap();
        assert_eq!(refused.not_held().is_some(), !refused.is_allowed());
        let record = watcher.record(limiter.id_of(&refused)).expect("every refusal is recorded");
        assert_eq!(
            record.summary(),
            format!(
                "Refused: the waiting room of this server was full{displaced}; it would have had to wait for a slot of \
                 `db`; try again in 1 s."
            )
        );
        assert_eq!(record.reason.as_deref(), tollgate_telemetry::reason(&refused).as_deref());
    }
    // A wait that ends in vain is a refusal of the limit.
    let pending = limiter.try_decide_or_wait(&call, |_| ()).unwrap_err();
    let hold = |_| Some(std::future::ready(Ok::<_, Infallible>(HoldEnd::TimeOver)));
    let refused = pollster::block_on(pending.finish_waiting(Some(&call), hold)).unwrap();
    let record = watcher.record(limiter.id_of(&refused)).unwrap();
    assert!(
        record.reason.is_none() && record.summary().starts_with("Refused by `db`"),
        "{}",
        record.summary()
    );
    assert_eq!(watcher.totals(), Counts { allowed: 1, limited: 3, ..Counts::default() });
}

#[test]
fn slots_that_are_taken_at_the_start_are_counted_once_and_a_refusal_replaces_the_admission() {
    let (limiter, watcher) = watched(
        "limits: [{name: queue, by: global, algorithm: leaky-queue, rate: 1/second, queue: {length: 4}}, {name: slots, by: global, slots: 1}]",
    );
    let call = ann();
    let admit = || {
        let admitted = limiter.try_admit(&call, |it| (limiter.takes_slots_at_start(it), limiter.id_of(it)));
        let Ok((true, id)) = admitted else { panic!("it starts later") };
        id
    };
    let hold = |_| None::<std::future::Ready<Result<HoldEnd, Infallible>>>;
    let first = pollster::block_on(limiter.take_slots(&call, admit(), hold)).unwrap();
    assert!(first.is_allowed());
    let id = admit();
    assert_eq!((limit(&watcher, "queue").allowed, limit(&watcher, "slots").allowed), (2, 1));
    assert!(!pollster::block_on(limiter.take_slots(&call, id, hold)).unwrap().is_allowed());
    let slots = limit(&watcher, "slots");
    assert_eq!((slots.allowed, slots.limited), (1, 1));
    let Counts { allowed, limited, .. } = watcher.totals();
    assert_eq!((allowed, limited), (1, 1));
    let summary = watcher.record(id).expect("a refusal is remembered").summary();
    assert!(summary.contains("slots"), "{summary}");
}

#[test]
fn a_throttled_request_is_counted_explained_and_alerted_as_shed() {
    for (limits, was_limited) in [("[]", false), ("[{name: api, by: user, bucket: 9/hour}]", true)] {
        let classes = "[{name: critical, endpoint: /pay}, {name: normal}, {name: bulk, endpoint: /bulk}]";
        let (limiter, watcher) = watched(&format!("priorities: {classes}\nlimits: {limits}"));
        let admitted = limiter.check(&ann());
        let id = limiter.id_of(&admitted);
        assert_eq!(admitted.is_limited(), was_limited);
        let shed = tollgate::ThrottleShed::new(300.0, 12.0, 0.916);
        let refused = limiter.refuse_throttled(&ann(), Some((id, was_limited)), admitted.priority(), shed);
        assert!(refused.is_shed() && refused.advised_wait().is_some());
        assert_eq!(watcher.totals(), Counts { shed: 1, ..Counts::default() });
        let normal = watcher.classes().into_iter().find(|it| &*it.name == "normal").unwrap();
        assert_eq!((normal.allowed, normal.refused, normal.shed), (0, 0, 1));
        let record = watcher.record(id).expect("every refusal is recorded");
        assert_eq!((record.allowed, record.limit.as_deref()), (false, Some("shed.throttle")));
        let summary = record.summary();
        assert!(
            summary.contains(
                "accepted 12 of the last 300 requests, and 91.6 % of the requests of priority `normal`"
            ),
            "{summary}"
        );
        let alerts = watcher.alerts(clock().now());
        assert_eq!((&*alerts[0].limit, &*alerts[0].key), ("shed.throttle", "normal"));
        let mut metrics = String::new();
        watcher.metrics(clock().now(), &mut metrics);
        let line = "tollgate_important_class_shed{shedder=\"shed.throttle\",priority=\"normal\"} 1";
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn waits_for_slots_and_requests_in_line_are_counted() {
    let (clock, watcher) = (clock(), Watcher::new(&WatchSettings::default()));
    let policy =
        Policy::parse("limits: [{name: db, by: global, slots: 1, queue: {length: 3, wait: 60s}}]").unwrap();
    let limiter = Limiter::with_store(policy, MemoryStore::with_clock(10_000, clock.clone()))
        .with_observer_on(Arc::new(watcher.clone()), clock.clone())
        .with_sleeper(Sleeper::new(|_| pending()));
    let call = ann();
    let running = limiter.acquire_now(&call).unwrap();
    let wait = || {
        let waiting = limiter.try_decide_or_wait(&call, |_| ()).unwrap_err();
        let mut waiting =
            Box::pin(waiting.finish_waiting(Some(&call), |_| Some(pending::<Result<HoldEnd, Infallible>>())));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        waiting
    };
    let (mut first, second) = (wait(), wait());
    let view = || watcher.queue("db", clock.now()).unwrap();
    assert_eq!(view(), QueueView { waiting: 2, waits: None });
    clock.advance(Span::from_millis(300));
    drop(second);
    assert_eq!(view(), QueueView { waiting: 1, waits: None }, "a request that leaves has not been admitted");
    drop(running);
    let Poll::Ready(Ok(decision)) = first.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the slot is free");
    };
    assert!(decision.is_allowed());
    let bound = Span::from_millis(500);
    assert_eq!(view(), QueueView { waiting: 0, waits: Some([bound, bound]) }, "the bound of a bucket");
    let mut metrics = String::new();
    watcher.metrics(clock.now(), &mut metrics);
    for line in [
        "tollgate_limit_waiting{limit=\"db\"} 0",
        "tollgate_limit_wait_seconds_count{limit=\"db\"} 1",
        "tollgate_limit_wait_seconds_sum{limit=\"db\"} 0.3",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in\n{metrics}");
    }
}

#[test]
fn waits_and_waiting_requests_of_a_queue_are_counted() {
    let (limiter, watcher) = watched(QUEUE);
    let now = clock().now();
    assert_eq!(watcher.queue("reports", now), Some(QueueView::default()));
    let decisions: Vec<_> = (0..5).map(|_| limiter.check(&ann())).collect();
    assert_eq!(watcher.queue("reports", now).unwrap().waiting, 4);
    drop(limiter.queue_place(&decisions[2]));
    drop(limiter.queue_place(&decisions[4]));
    let view = watcher.queue("reports", now).unwrap();
    assert_eq!(view.waiting, 2, "two have left");
    assert_eq!(view.waits.map(|waits| waits.map(Span::as_micros)), Some([250_000, 500_000]));
    assert_eq!(watcher.queue("reports", now + Span::from_millis(200)).unwrap().waiting, 1);
    let mut metrics = String::new();
    watcher.metrics(now + Span::from_millis(200), &mut metrics);
    for line in [
        "tollgate_limit_waiting{limit=\"reports\"} 1",
        "tollgate_limit_wait_seconds_count{limit=\"reports\"} 4",
        "tollgate_limit_wait_seconds_sum{limit=\"reports\"} 1",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in\n{metrics}");
    }
    let (other, watcher) = watched("limits: [{name: api, by: user, bucket: 5/minute}]");
    ask(&other, 1, &ann());
    assert_eq!(watcher.queue("api", now), None, "it has no queue");
}
