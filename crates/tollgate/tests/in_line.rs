//! Requests that wait in line for a slot.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "a wait is measured")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pollster::block_on;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, Decision, Event, Fate, HoldEnd, Limiter, ManualClock, MemoryStore, Observer, Outcome,
    Policy, Rule, SharedLimiter, Sleeper, Store, StoreError, Timestamp, Watch,
};

const DB: &str = "
limits:
  - {name: rate, by: user, bucket: 5/hour}
  - {name: db, by: global, slots: 1, queue: {length: 3, wait: 60s}, fair_by: tenant}
";

/// A limiter whose sleeps never end: only a wake can end a wait.
fn sleepless(policy: &str) -> Limiter {
    Limiter::from_policy(policy).unwrap().with_sleeper(Sleeper::new(|_| pending()))
}

fn call(user: &'static str) -> Call<'static> {
    Call::new("GET", "/").user(user).tenant(user)
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A task that is polled by hand.
struct Task<F> {
    future: Pin<Box<F>>,
    woken: Arc<Flag>,
}

impl<F: Future> Task<F> {
    /// Polls for the first time; the task has to wait.
    fn waiting(future: F) -> Self {
        let mut task = Self { future: Box::pin(future), woken: Arc::default() };
        assert!(task.poll().is_pending());
        task
    }

    fn poll(&mut self) -> Poll<F::Output> {
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }

    /// Polls after a wake.
    fn finish(mut self) -> F::Output {
        assert!(self.is_woken(), "no wake");
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it still waits"),
        }
    }
}

fn left(limiter: &Limiter, user: &'static str) -> u64 {
    let decision = block_on(limiter.consider(&call(user))).unwrap();
    decision.limits().find(|it| it.name() == "rate").unwrap().remaining()
}

#[test]
fn a_release_wakes_the_next_request_without_a_timer() {
    let limiter = sleepless(DB);
    let (ann, bob, cy) = (call("ann"), call("bob"), call("cy"));
    let running = limiter.acquire_now(&ann).unwrap();
    let mut second = Task::waiting(limiter.acquire_when_ready(&bob));
    let third = Task::waiting(limiter.acquire_when_ready(&cy));
    assert_eq!(limiter.waiting(), 2);
    assert!(second.poll().is_pending() && !second.is_woken());
    drop(running);
    assert!(second.is_woken() && !third.is_woken());
    let permit = second.finish().unwrap();
    assert!(third.is_woken(), "there may be more slots");
    let mut third = third;
    assert!(third.poll().is_pending());
    drop(permit);
    drop(third.finish().unwrap());
    assert_eq!(limiter.waiting(), 0);
    assert!(limiter.acquire_now(&ann).is_ok());
}

#[test]
fn a_request_that_waits_charges_nothing_and_may_be_refused_by_another_limit_after_its_wait() {
    let limiter = sleepless(DB);
    let (ann, bob) = (call("ann"), call("bob"));
    let running = limiter.acquire_now(&ann).unwrap();
    let task = Task::waiting(limiter.until_ready(&bob));
    assert_eq!(left(&limiter, "bob"), 5);
    // All units of bob are spent while the request waits.
    let rate = limiter.policy().limit("rate").unwrap();
    let key = limiter.policy().key(rate, &["bob"]).unwrap();
    assert!(block_on(limiter.decide_named(rate, key, None, Some(5))).is_allowed());
    drop(running);
    // `until_ready` would wait for the units; the policy of a server does not.
    drop(task);
    let hold = |_| Some(pending::<Result<HoldEnd, Infallible>>());
    let refused = match limiter.try_decide_or_wait(&bob, Decision::is_allowed) {
        Ok(allowed) => allowed,
        Err(pending) => block_on(pending.finish_waiting(Some(&bob), hold)).unwrap().is_allowed(),
    };
    assert!(!refused);
    assert!(limiter.acquire_now(&ann).is_ok(), "the refused request holds no slot");
}

#[test]
fn requests_wait_in_line_and_a_newcomer_does_not_pass_them() {
    let limiter = sleepless(DB);
    let (ann, bob) = (call("ann"), call("bob"));
    let running = limiter.acquire_now(&ann).unwrap();
    let waiting = Task::waiting(limiter.acquire_when_ready(&bob));
    drop(running);
    // The slot is free, and bob has been woken.
    let refused = limiter.check(&ann);
    assert_eq!(refused.limiting().map(|it| it.name().to_owned()).as_deref(), Some("db"));
    assert_eq!(refused.advised_wait(), Some(Duration::from_secs(1)));
    assert_eq!(refused.limits().len(), 1);
    assert_eq!(left(&limiter, "ann"), 4, "only the first request is charged");
    drop(waiting.finish().unwrap());
    assert!(limiter.check(&ann).is_allowed());
}

#[test]
fn a_full_line_refuses_and_a_request_that_leaves_frees_its_place() {
    let limiter = sleepless(DB);
    let calls = [call("ann"), call("bob"), call("cy"), call("dan")];
    let running = limiter.acquire_now(&calls[0]).unwrap();
    let mut tasks: Vec<_> =
        calls[1..].iter().map(|call| Task::waiting(limiter.acquire_when_ready(call))).collect();
    assert_eq!(limiter.waiting(), 3);
    let hold = |_| Some(pending::<Result<HoldEnd, Infallible>>());
    let decide = |call: &Call<'static>| {
        let pending = limiter.try_decide_or_wait(call, Decision::is_allowed).unwrap_err();
        let future = pending.finish_waiting(Some(call), hold);
        let mut future = pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(decision)) => {
                assert_eq!(decision.fate(), Fate::Refused);
                assert_eq!(decision.limiting().unwrap().name(), "db");
                false
            }
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => true,
        }
    };
    assert!(!decide(&calls[0]), "the line is full");
    drop(tasks.remove(1));
    assert!(decide(&calls[0]), "it waits");
    assert_eq!(limiter.waiting(), 2, "it was dropped");
    drop(running);
    assert!(tasks[0].is_woken());
    // The request that was woken leaves: the next one is woken.
    drop(tasks.remove(0));
    assert!(tasks[0].is_woken());
    drop(tasks.remove(0).finish().unwrap());
}

#[test]
fn keys_of_fair_by_are_served_in_turn() {
    let policy = "limits: [{name: db, by: global, slots: 1, queue: {length: 9}, fair_by: tenant}]";
    let limiter = sleepless(policy);
    let calls: Vec<_> = ["ann", "ann", "ann", "bob"].map(call).into();
    let running = limiter.acquire_now(&calls[0]).unwrap();
    let mut tasks: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(at, call)| (at, Task::waiting(limiter.acquire_when_ready(call))))
        .collect();
    drop(running);
    let mut order = Vec::new();
    while !tasks.is_empty() {
        for at in 0..tasks.len() {
            if tasks[at].1.is_woken()
                && let Poll::Ready(permit) = tasks[at].1.poll()
            {
                order.push(tasks.remove(at).0);
                drop(permit.unwrap());
                break;
            }
        }
    }
    assert_eq!(order, [0, 3, 1, 2]);
}

#[test]
fn a_wait_ends_at_its_bound() {
    let limiter = Limiter::from_policy(DB).unwrap();
    let ann = call("ann");
    let running = limiter.acquire_now(&ann).unwrap();
    let (bound, since) = (Duration::from_millis(60), Instant::now());
    let refused = block_on(limiter.acquire_within(&ann, bound)).unwrap_err();
    assert!(since.elapsed() >= bound);
    assert_eq!(refused.limiting().unwrap().name(), "db");
    assert!(refused.advised_wait().is_some());
    assert_eq!(limiter.waiting(), 0);
    drop((refused, running));
    assert!(limiter.acquire_now(&ann).is_ok());
}

#[test]
fn a_lease_that_ends_admits_the_next_request() {
    let policy = "limits: [{name: db, by: global, slots: 1, ttl: 50ms, queue: {length: 3}}]";
    let limiter = Limiter::from_policy(policy).unwrap();
    let ann = call("ann");
    assert!(limiter.check(&ann).is_allowed(), "its slot is never released");
    assert!(block_on(limiter.wait(&ann, Duration::from_secs(600))).is_allowed());
}

#[test]
fn a_removed_limit_frees_the_requests_that_wait_for_it() {
    let shared = SharedLimiter::from(sleepless(DB));
    let limiter = shared.load();
    let (ann, bob) = (call("ann"), call("bob"));
    let _running = limiter.acquire_now(&ann).unwrap();
    let mut task = Task::waiting(limiter.until_ready(&bob));
    shared.replace(Policy::parse(DB).unwrap());
    assert!(task.poll().is_pending(), "the limit stays");
    shared.replace(Policy::parse("limits: [{name: rate, by: user, bucket: 5/hour}]").unwrap());
    let decision = task.finish();
    assert!(decision.is_allowed());
    let names: Vec<_> = decision.limits().map(|it| it.name().to_owned()).collect();
    assert_eq!(names, ["rate"], "the other limits are charged");
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn threads_never_run_more_than_the_slots_and_all_are_served() {
    let policy = "limits: [{name: db, by: global, slots: 3, queue: {length: 100}, fair_by: tenant}]";
    let limiter = Limiter::from_policy(policy).unwrap();
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for at in 0..12 {
            let (limiter, running, most) = (&limiter, &running, &most);
            scope.spawn(move || {
                let call = call(["ann", "bob", "cy"][at % 3]);
                for _ in 0..300 {
                    let permit = block_on(limiter.acquire_when_ready(&call)).unwrap();
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn a_request_that_waits_is_decided_with_the_slots_of_the_policy_in_force() {
    let db = |slots: usize| {
        let limit = format!("{{name: db, by: global, slots: {slots}, queue: {{length: 9, wait: 60s}}}}");
        Policy::parse(&format!("limits: [{limit}]")).unwrap()
    };
    let limiter = Limiter::new(db(1)).with_sleeper(Sleeper::new(|_| pending()));
    let shared = SharedLimiter::from(limiter);
    let (limiter, ann) = (shared.load(), call("ann"));
    let running = limiter.acquire_now(&ann).unwrap();
    let first = Task::waiting(limiter.acquire_when_ready(&ann));
    let mut second = Task::waiting(limiter.acquire_when_ready(&ann));
    // A raise admits the first one, and newcomers do not wait behind requests that can never start.
    shared.replace(db(2));
    let permit = first.finish().unwrap();
    assert!(second.poll().is_pending(), "both slots are taken");
    // A lowered number binds, too.
    shared.replace(db(1));
    drop(permit);
    assert!(second.is_woken() && second.poll().is_pending(), "the one slot is taken");
    drop(running);
    drop(second.finish().unwrap());
    assert!(shared.load().acquire_now(&ann).is_ok());
}

#[test]
fn a_request_in_line_is_not_in_flight_on_its_node() {
    let policy = "
shed: {node: {inflight: 1000}}
limits: [{name: db, by: global, slots: 1, queue: {length: 9, wait: 60s}}]
";
    let limiter = Limiter::with_store(Policy::parse(policy).unwrap(), Mortal::new(100));
    let limiter = limiter.with_sleeper(Sleeper::new(|_| pending()));
    let ann = call("ann");
    let running = block_on(limiter.acquire(&ann)).unwrap();
    let tasks: Vec<_> = (0..3).map(|_| Task::waiting(limiter.acquire_when_ready(&ann))).collect();
    assert_eq!((limiter.waiting(), limiter.node_shedder().in_flight()), (3, 0));
    drop((tasks, running));
}

#[test]
fn the_attempts_of_a_node_are_bounded_whatever_the_number_of_lines() {
    const LINES: usize = 2_000;
    let policy = Policy::parse("limits: [{by: tenant, slots: 1, queue: {length: 9, wait: 60s}}]").unwrap();
    let sleeps = Arc::new(Mutex::new(Vec::new()));
    let slept = Arc::clone(&sleeps);
    let limiter = Limiter::with_store(policy, Mortal::new(10_000)).with_sleeper(Sleeper::new(move |time| {
        slept.lock().unwrap().push(time);
        pending()
    }));
    let tenants: Vec<String> = (0..LINES).map(|number| format!("tenant-{number}")).collect();
    let calls: Vec<_> = tenants.iter().map(|tenant| Call::new("GET", "/").tenant(tenant)).collect();
    let permits: Vec<_> = calls.iter().map(|call| block_on(limiter.acquire(call)).unwrap()).collect();
    let tasks: Vec<_> = calls.iter().map(|call| Task::waiting(limiter.acquire_when_ready(call))).collect();
    let sleeps = sleeps.lock().unwrap();
    let usual = Duration::from_millis(20)..Duration::from_millis(40);
    assert!(sleeps.len() == LINES && sleeps[..500].iter().all(|time| usual.contains(time)));
    // 40,000 attempts per second.
    assert!(sleeps[LINES - 1] >= Duration::from_millis(50), "{:?}", sleeps[LINES - 1]);
    drop((tasks, permits));
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn a_clock_that_steps_while_requests_wait_loses_no_slot_and_grants_none() {
    let policy = "limits: [{name: db, by: global, slots: 1, ttl: 30s, queue: {length: 9, wait: 60s}}]";
    let (start, ann) = (Timestamp::from_secs(1_700_000_000), call("ann"));
    for stepped in [1_700_000_000 - 86_400, 1_700_000_000 - 31, 1_700_000_000 + 29] {
        let clock = ManualClock::at(start);
        let store = MemoryStore::with_clock(100, clock.clone());
        let limiter = Limiter::with_store(Policy::parse(policy).unwrap(), store)
            .with_sleeper(Sleeper::new(|_| pending()));
        let running = limiter.acquire_now(&ann).unwrap();
        let waiting = Task::waiting(limiter.acquire_when_ready(&ann));
        clock.set(Timestamp::from_secs(stepped));
        let mut later = Task::waiting(limiter.acquire_when_ready(&ann));
        assert!(limiter.acquire_now(&ann).is_err() && later.poll().is_pending());
        drop(running);
        let permit = waiting.finish().unwrap();
        assert!(later.poll().is_pending(), "one slot");
        clock.set(start);
        drop(permit);
        drop(later.finish().unwrap());
        assert_eq!(limiter.waiting(), 0);
    }
}

#[test]
fn a_hundred_thousand_requests_wait_leave_and_are_served() {
    const REQUESTS: usize = 100_000;
    let policy = "limits: [{name: db, by: global, slots: 1, queue: {length: 100000, wait: 60s}}]";
    let (limiter, ann) = (sleepless(policy), call("ann"));
    let running = limiter.acquire_now(&ann).unwrap();
    let mut tasks: VecDeque<_> =
        (0..REQUESTS).map(|_| Task::waiting(limiter.acquire_when_ready(&ann))).collect();
    assert_eq!(limiter.waiting(), REQUESTS);
    let mut number = 0;
    tasks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    assert_eq!(limiter.waiting(), REQUESTS / 2);
    let mut permit = running;
    for _ in 0..1_000 {
        drop(permit);
        permit = tasks.pop_front().unwrap().finish().unwrap();
    }
    assert_eq!(tasks.iter().filter(|task| task.is_woken()).count(), 1, "one request is woken at a time");
    drop((permit, tasks));
    assert_eq!(limiter.waiting(), 0);
    assert!(limiter.acquire_now(&ann).is_ok());
}

/// Counts the decisions that an observer sees.
#[derive(Default)]
struct Counter(Arc<AtomicUsize>);

impl Observer for Counter {
    fn watch(&self, _: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
        Arc::new(Self(Arc::clone(&self.0)))
    }
}

impl Watch for Counter {
    fn decided(&self, _: &Event<'_, '_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_observer_sees_a_request_that_waits_once() {
    let counter = Counter::default();
    let count = Arc::clone(&counter.0);
    let limiter = sleepless(DB).with_observer(counter);
    let (ann, bob) = (call("ann"), call("bob"));
    let running = limiter.acquire_now(&ann).unwrap();
    let task = Task::waiting(limiter.acquire_when_ready(&bob));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(running);
    drop(task.finish().unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn an_observer_sees_a_request_whose_server_stops_and_no_limit_charges_it() {
    let counter = Counter::default();
    let count = Arc::clone(&counter.0);
    let limiter = sleepless(&DB.replace("5/hour", "5/hour, count_denied: true")).with_observer(counter);
    let ann = call("ann");
    let _running = limiter.acquire_now(&ann).unwrap();
    let pending = limiter.try_decide_or_wait(&ann, Decision::is_allowed).unwrap_err();
    let stops = |_| Some(ready(Err::<HoldEnd, _>("the server stops")));
    let ended = block_on(pending.finish_waiting(Some(&ann), stops));
    assert_eq!(ended.map(|_| ()), Err("the server stops"));
    assert_eq!((count.load(Ordering::SeqCst), left(&limiter, "ann"), limiter.waiting()), (2, 4, 0));
}

#[test]
fn a_limit_that_counts_refusals_counts_a_request_that_waits_once() {
    let policy = "
limits:
  - {name: rate, by: user, bucket: 5/hour, count_denied: true}
  - {name: db, by: global, slots: 1, queue: {length: 3}}
";
    let limiter = sleepless(policy);
    let (ann, bob) = (call("ann"), call("bob"));
    let running = limiter.acquire_now(&ann).unwrap();
    let task = Task::waiting(limiter.until_ready(&bob));
    assert_eq!(left(&limiter, "bob"), 5);
    drop(running);
    assert!(task.finish().is_allowed());
    assert_eq!(left(&limiter, "bob"), 4);
    // One that is refused after its wait is counted then.
    let refuse = |_| Some(ready(Ok::<HoldEnd, Infallible>(HoldEnd::TimeOver)));
    let pending = limiter.try_decide_or_wait(&bob, Decision::is_allowed).unwrap_err();
    assert!(!block_on(pending.finish_waiting(Some(&bob), refuse)).unwrap().is_allowed());
    assert_eq!(left(&limiter, "bob"), 3);
}

/// A store that stops answering.
struct Mortal {
    store: MemoryStore,
    is_dead: AtomicBool,
    calls: AtomicUsize,
}

impl Mortal {
    fn new(max_keys: usize) -> Self {
        let store = MemoryStore::new(max_keys);
        Self { store, is_dead: AtomicBool::new(false), calls: AtomicUsize::new(0) }
    }
}

impl Store for Mortal {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(StoreError::Refused("gone".into()));
        }
        self.store.decide(checks).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.store.adjust(rule, key, adjustment).await
    }
}

#[test]
fn the_outage_rules_decide_about_requests_that_wait_when_the_store_dies() {
    for (on_outage, expected) in
        [("allow", Fate::Admitted), ("deny", Fate::Uncountable), ("local", Fate::Admitted)]
    {
        let policy = format!(
            "limits: [{{name: db, by: global, slots: 1, queue: {{length: 3, wait: 60s}}, on_outage: {on_outage}}}]"
        );
        let store = Arc::new(Mortal::new(100));
        let limiter = Limiter::with_shared_store(Policy::parse(&policy).unwrap(), Arc::clone(&store));
        let ann = call("ann");
        let _running = block_on(limiter.acquire(&ann)).unwrap();
        thread::scope(|scope| {
            let waiting =
                scope.spawn(|| block_on(limiter.wait(&ann, Duration::from_secs(3))).fate() == expected);
            while limiter.waiting() == 0 {
                thread::yield_now();
            }
            store.is_dead.store(true, Ordering::SeqCst);
            assert!(waiting.join().unwrap(), "{on_outage}");
        });
    }
}

#[test]
fn the_requests_of_one_key_share_one_attempt_on_a_shared_store() {
    let policy = "limits: [{name: db, by: global, slots: 1, queue: {length: 1000, wait: 60s}}]";
    let store = Arc::new(Mortal::new(100));
    let limiter = Limiter::with_shared_store(Policy::parse(policy).unwrap(), Arc::clone(&store));
    let limiter = limiter.with_sleeper(Sleeper::new(|_| pending()));
    let ann = call("ann");
    let running = block_on(limiter.acquire(&ann)).unwrap();
    let mut tasks: Vec<_> = (0..1_000).map(|_| Task::waiting(limiter.acquire_when_ready(&ann))).collect();
    // The first attempts twice: before it joins and as the first of the line.
    let calls = store.calls.load(Ordering::SeqCst);
    assert!(calls <= 4, "{calls} calls for 1000 requests that wait");
    for task in &mut tasks {
        assert!(task.poll().is_pending());
    }
    assert_eq!(store.calls.load(Ordering::SeqCst), calls);
    block_on(running.release()).unwrap();
    let woken: Vec<_> = tasks.iter().map(Task::is_woken).collect();
    assert_eq!(woken.iter().filter(|it| **it).count(), 1);
    assert!(woken[0]);
}

#[test]
fn a_permit_keeps_its_slot_for_longer_than_the_lease() {
    let policy = "limits: [{name: db, by: global, slots: 1, ttl: 1500ms}]";
    let limiter = Limiter::from_policy(policy).unwrap();
    let ann = call("ann");
    let permit = limiter.acquire_now(&ann).unwrap();
    let receipt = permit.receipt().unwrap().clone();
    thread::sleep(Duration::from_secs(4));
    assert!(limiter.acquire_now(&ann).is_err());
    drop(permit);
    assert_eq!(limiter.try_renew_receipt(&receipt), Some(0), "it was released");
    // A decision without a permit is not renewed.
    assert!(limiter.check(&ann).is_allowed());
    thread::sleep(Duration::from_millis(1_600));
    assert!(limiter.check(&ann).is_allowed());
}

#[test]
fn reconcile_renews_the_permits_of_a_store_that_waits() {
    let policy = Policy::parse("limits: [{name: db, by: global, slots: 1, ttl: 1500ms}]").unwrap();
    let limiter = Limiter::with_store(policy, Mortal::new(100));
    let ann = call("ann");
    let permit = block_on(limiter.acquire(&ann)).unwrap();
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(500));
        block_on(limiter.reconcile());
    }
    assert!(block_on(limiter.acquire(&ann)).is_err());
    block_on(permit.release()).unwrap();
    assert!(block_on(limiter.acquire(&ann)).is_ok());
}
