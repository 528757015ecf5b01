//! Limits with a queue: waits of decisions, places that are given back, and waiting.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollster::block_on;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Bucket, Call, Event, Gate, Limiter, ManualClock, MemoryStore, NotHeld, Observer, Outcome,
    Policy, Queue, Rate, Rule, Sleeper, Spawner, Store, StoreError, Timestamp, Watch,
};
use tollgate_testkit::poll_once;

use crate::permits::Remote;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

const REPORTS: &str = "
limits:
  - {name: reports, endpoint: /reports/**, by: tenant, algorithm: leaky-queue, rate: 10/second, queue: {length: 50, wait: 2s, free: 5}}
";

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(1_000, ManualClock::at(START))
}

fn limiter(policy: &str) -> Limiter<MemoryStore<ManualClock>> {
    Limiter::with_store(Policy::parse(policy).unwrap(), memory())
}

fn queue(of: &str) -> String {
    format!("limits: [{{name: q, by: user, algorithm: leaky-queue, rate: 10/second, queue: {of}}}]")
}

fn call() -> Call<'static> {
    Call::new("GET", "/reports/7").user("ann").tenant("acme")
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A sleeper that records its sleeps, which end at the second poll.
fn recording() -> (Sleeper, Arc<Mutex<Vec<Duration>>>) {
    let sleeps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sleeps);
    let sleeper = Sleeper::new(move |duration| {
        seen.lock().unwrap().push(duration);
        let mut is_over = false;
        std::future::poll_fn(move |context| {
            if std::mem::replace(&mut is_over, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
    });
    (sleeper, sleeps)
}

#[test]
fn requests_above_the_rate_wait_and_the_rest_is_refused() {
    let limiter = limiter(REPORTS);
    let decisions: Vec<_> = (0..1_000).map(|_| limiter.check(&call())).collect();
    let waits: Vec<_> =
        decisions.iter().filter(|it| it.is_allowed()).map(|it| it.wait().as_millis()).collect();
    assert_eq!(waits[..6], [0; 6], "one starts, and five places are free");
    assert_eq!(waits[6..], (1..=20).map(|nth| nth * 100).collect::<Vec<_>>(), "up to two seconds");
    assert!(decisions[26..].iter().all(|it| !it.is_allowed() && it.wait().is_zero()));
    assert_eq!(decisions[26].retry_after(), Some(millis(100)));
}

#[test]
fn the_longest_wait_of_binding_limits_counts() {
    let limiter = limiter(
        "
limits:
  - {name: slow, by: user, rate: 2/second, queue: {length: 9}}
  - {name: fast, by: user, rate: 10/second, queue: {length: 9}}
  - {name: trial, by: user, rate: 1/hour, queue: {length: 9}, mode: shadow}
  - {name: bucket, by: user, bucket: 100/second}
",
    );
    let waits: Vec<_> = (0..3).map(|_| limiter.check(&call()).wait()).collect();
    assert_eq!(waits, [Duration::ZERO, millis(500), millis(1_000)]);
    let decision = limiter.check(&call());
    let each: Vec<_> = decision.limits().map(|it| (it.name(), it.wait())).collect();
    let hours = Duration::from_secs(3 * 3_600);
    assert_eq!(each[..2], [("slow", millis(1_500)), ("fast", millis(300))]);
    assert_eq!(each[2..], [("trial", hours), ("bucket", Duration::ZERO)]);
}

#[test]
fn a_request_that_another_limit_refuses_takes_no_place() {
    let limiter = limiter(
        "
limits:
  - {name: q, by: user, rate: 10/second, queue: {length: 9}}
  - {name: closed, by: user, bucket: 1/hour}
",
    );
    assert!(limiter.check(&call()).is_allowed());
    for _ in 0..20 {
        let refused = limiter.check(&call());
        assert!(!refused.is_allowed() && refused.wait().is_zero());
        assert!(refused.limits().all(|it| it.wait().is_zero()));
    }
    assert_eq!(limiter.check(&call()).limits().next().unwrap().remaining(), 9);
}

#[test]
fn considering_a_request_shows_its_wait_and_takes_no_place() {
    let limiter = limiter(&queue("{length: 5}"));
    let considered = || block_on(limiter.consider(&call())).unwrap().wait();
    assert_eq!(considered(), Duration::ZERO);
    for nth in 1..4 {
        assert!(limiter.check(&call()).is_allowed());
        assert_eq!(considered(), millis(nth * 100));
        assert_eq!(considered(), millis(nth * 100));
    }
}

#[test]
fn a_dropped_place_is_given_back_once() {
    let limiter = limiter(&queue("{length: 2}"));
    let places: Vec<_> = (0..3).map(|_| limiter.queue_place(&limiter.check(&call()))).collect();
    assert!(places[0].is_none(), "the first starts immediately");
    assert!(!limiter.check(&call()).is_allowed());
    let [Some(second), Some(third)] =
        <[_; 2]>::try_from(places.into_iter().skip(1).collect::<Vec<_>>()).unwrap()
    else {
        panic!("both wait")
    };
    let last = third.wait_time();
    drop(third);
    let newcomer = limiter.check(&call());
    assert_eq!(newcomer.wait(), last, "the last place of the queue");
    assert!(!limiter.check(&call()).is_allowed(), "one place, and no more");
    drop(second);
    assert!(!limiter.check(&call()).is_allowed(), "the newcomer behind the second keeps its time");
    drop(limiter.queue_place(&newcomer).unwrap().start());
    assert!(!limiter.check(&call()).is_allowed(), "a request that has started keeps its charge");
}

#[test]
fn a_place_that_is_dropped_on_a_remote_store_comes_back_with_the_next_reconciliation() {
    let policy = Policy::parse(&queue("{length: 1}")).unwrap();
    let limiter = Limiter::with_store(policy, Remote(memory()));
    let decide = || block_on(limiter.decide(&call()));
    assert!(decide().is_allowed());
    let second = decide();
    drop(limiter.queue_place(&second));
    assert!(!decide().is_allowed(), "the store has not been asked yet");
    block_on(limiter.reconcile());
    let third = decide();
    assert_eq!(third.wait(), second.wait());
    block_on(limiter.queue_place(&third).unwrap().leave()).unwrap();
    assert!(decide().is_allowed(), "a caller that waits for the store needs no reconciliation");
    assert!(!decide().is_allowed());
}

#[test]
fn a_place_waits_as_long_as_its_decision_says() {
    let limiter = limiter(&queue("{length: 3}"));
    let (sleeper, sleeps) = recording();
    for _ in 0..3 {
        let decision = limiter.check(&call());
        if let Some(place) = limiter.queue_place(&decision) {
            drop(block_on(place.wait_with(&sleeper)));
        }
    }
    assert_eq!(*sleeps.lock().unwrap(), [millis(100), millis(200)]);
    let waiting = limiter.queue_place(&limiter.check(&call())).unwrap();
    let mut waiting = Box::pin(waiting.wait_with(&sleeper));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(!limiter.check(&call()).is_allowed());
    drop(waiting);
    assert!(limiter.check(&call()).is_allowed(), "a canceled wait gives its place back");
}

#[test]
fn acquiring_waits_in_the_queue_and_returns_a_permit_or_the_refusal() {
    let limiter = limiter(
        "
limits:
  - {name: q, by: user, rate: 1000/second, queue: {length: 1}}
  - {name: slots, by: user, slots: 2}
",
    );
    let first = block_on(limiter.acquire_when_ready(&call())).unwrap();
    let second = block_on(limiter.acquire_when_ready(&call())).unwrap();
    assert_eq!((first.slots(), second.slots()), (1, 1), "the second has waited for a millisecond");
    let refused = block_on(limiter.acquire_within(&call(), Duration::ZERO)).unwrap_err();
    assert!(!refused.is_allowed());
}

#[test]
fn acquiring_without_waiting_refuses_a_place_in_the_queue() {
    let limiter = limiter(&queue("{length: 2}"));
    let _first = limiter.acquire_now(&call()).unwrap();
    for refused in [limiter.acquire_now(&call()), block_on(limiter.acquire(&call()))] {
        assert_eq!(refused.unwrap_err().retry_after(), Some(millis(100)), "no request is before it");
    }
    let bucket = Bucket::new(Rate::per_second(10)).unwrap().with_queue(Queue::new(2)).unwrap();
    let gate = Gate::with_store("g", bucket, memory());
    let _first = gate.acquire("ann").unwrap();
    for _ in 0..2 {
        assert_eq!(gate.acquire("ann").unwrap_err().retry_after, Some(millis(100)));
    }
}

#[test]
fn until_ready_keeps_its_slots_and_sleeps_out_the_wait() {
    let (sleeper, sleeps) = recording();
    let policy = "
limits:
  - {name: q, by: user, rate: 10/second, queue: {length: 5}}
  - {name: slots, by: user, slots: 2}
";
    let limiter = limiter(policy).with_sleeper(sleeper);
    assert!(block_on(limiter.until_ready(&call())).is_allowed());
    assert!(block_on(limiter.until_ready(&call())).is_allowed());
    assert_eq!(*sleeps.lock().unwrap(), [millis(100)]);
    assert!(!limiter.check(&call()).is_allowed(), "both slots are taken");
}

#[test]
fn a_task_that_waits_in_a_queue_holds_no_slot_and_gives_its_place_back() {
    let policy = "
limits:
  - {name: q, by: user, rate: 10/second, queue: {length: 5}}
  - {name: slots, by: user, slots: 1}
";
    let limiter = limiter(policy).with_sleeper(Sleeper::new(|_| std::future::pending()));
    let left = || -> Vec<u64> {
        let free = call().cost(0);
        let peeked = limiter.check(&free);
        peeked.limits().map(|it| it.outcome().remaining).collect()
    };
    let request = call();
    let first = block_on(limiter.acquire_when_ready(&request)).unwrap();
    let mut second = Box::pin(limiter.acquire_when_ready(&request));
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(left(), [4, 0]);
    drop(first);
    assert_eq!(left(), [4, 1], "only the first had a slot");
    drop(second);
    assert_eq!(left(), [5, 1]);
}

#[test]
fn a_turn_after_the_deadline_is_a_refusal_that_gives_the_place_back() {
    let (sleeper, sleeps) = recording();
    let limiter = limiter(&queue("{length: 2}")).with_sleeper(sleeper);
    assert!(block_on(limiter.wait(&call(), Duration::ZERO)).is_allowed());
    let refused = block_on(limiter.wait(&call(), millis(40)));
    let retry_after = refused.retry_after().expect("the turn comes later");
    // The deadline is by the clock of this process.
    assert!(!refused.is_allowed() && retry_after >= millis(60) && retry_after <= millis(100));
    assert!(refused.receipt().is_none(), "nothing is left to settle");
    // Long enough for any delay of this thread.
    assert!(block_on(limiter.wait(&call(), Duration::from_secs(3_600))).is_allowed());
    assert_eq!(*sleeps.lock().unwrap(), [millis(100)], "its place is the first again");
}

#[test]
fn a_reload_keeps_the_order_of_a_queue_and_takes_places_back() {
    let long = limiter(&queue("{length: 9}"));
    let decisions: Vec<_> = (0..10).map(|_| long.check(&call())).collect();
    let short = long.with_policy(Policy::parse(&queue("{length: 4, free: 2}")).unwrap());
    assert_eq!(short.check(&call()).retry_after(), Some(millis(600)), "five more leave before");
    for decision in decisions[4..].iter().rev() {
        drop(long.queue_place(decision));
    }
    let newcomer = short.check(&call());
    assert_eq!(newcomer.wait(), millis(200), "the fifth place, of which two are free");
}

#[test]
fn an_outage_grants_a_share_of_the_queue() {
    struct Gone;

    impl Store for Gone {
        async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
            Err(StoreError::TimedOut(Duration::ZERO))
        }

        async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
            Err(StoreError::TimedOut(Duration::ZERO))
        }
    }

    let limiter = Limiter::with_store(Policy::parse(&queue("{length: 49}")).unwrap(), Gone);
    let decisions: Vec<_> = (0..60).map(|_| block_on(limiter.decide(&call()))).collect();
    let allowed: Vec<_> = decisions.iter().filter(|it| it.is_allowed()).collect();
    assert!(allowed.len() < 50 && allowed.len() > 1, "{} of a share", allowed.len());
    assert!(allowed[1].is_degraded() && allowed[1].wait() > millis(100), "spaced by the rate of the share");
    let before = decisions.len();
    drop(limiter.queue_place(allowed[allowed.len() - 1]));
    assert!(block_on(limiter.decide(&call())).is_allowed(), "given back on this node, {before} decided");
    assert!(!block_on(limiter.decide(&call())).is_allowed());
}

#[test]
fn a_gate_with_a_queue_says_how_long_to_wait_and_waits() {
    let (sleeper, sleeps) = recording();
    let quota = Bucket::new(Rate::per_second(10)).unwrap().with_queue(Queue::new(2)).unwrap();
    let gate = Gate::with_store("gate", quota, memory()).with_sleeper(sleeper);
    assert_eq!(gate.check("ann").unwrap().wait, Duration::ZERO);
    assert_eq!(gate.check("ann").unwrap().wait, millis(100));
    assert_eq!(block_on(gate.until_ready("ann")).unwrap().wait, Duration::ZERO);
    assert_eq!(*sleeps.lock().unwrap(), [millis(200)]);
    assert!(gate.check("ann").is_err());

    gate.check("bob").unwrap();
    gate.check("bob").unwrap();
    let refused = block_on(gate.wait("bob", 1, millis(150))).unwrap_err();
    assert_eq!(refused.retry_after, Some(millis(50)), "it would wait for 200 ms");
    assert_eq!(refused.remaining, 1, "and has given its place back");
    let mut waiting = Box::pin(gate.until_ready("bob"));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(gate.check("bob").is_err());
    drop(waiting);
    assert!(gate.check("bob").is_ok(), "a canceled wait gives its place back");
}

/// Work that a limiter wants to run in the background.
type Background = Arc<Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>>;

#[test]
fn places_that_are_dropped_on_a_remote_store_are_refunded_in_the_background() {
    let background = Background::default();
    let work = Arc::clone(&background);
    let policy = Policy::parse(&queue("{length: 3}")).unwrap();
    let limiter = Limiter::with_store(policy, Remote(memory()))
        .with_spawner(Spawner::new(move |future| work.lock().unwrap().push(future)));
    let decide = || block_on(limiter.decide(&call()));
    assert!(decide().is_allowed());
    let mut decisions: Vec<_> = (0..3).map(|_| decide()).collect();
    // The last one first: only the last place goes to others.
    while let Some(decision) = decisions.pop() {
        drop(limiter.queue_place(&decision));
    }
    let mut work: Vec<_> = background.lock().unwrap().drain(..).collect();
    assert_eq!(work.len(), 3);
    assert!(!decide().is_allowed(), "no store is awaited in `drop`");
    block_on(work.remove(0));
    assert_eq!(block_on(limiter.consider(&call())).unwrap().wait(), millis(300), "the last place");
    // A runtime that shuts down drops its tasks: the refunds are deferred.
    drop(work);
    assert_eq!(block_on(limiter.consider(&call())).unwrap().wait(), millis(300));
    block_on(limiter.reconcile());
    assert_eq!(decide().wait(), millis(100));
}

#[test]
fn a_request_that_cannot_be_held_is_reported_as_refused() {
    #[derive(Default)]
    struct Reports(Mutex<Vec<(bool, Option<NotHeld>)>>);

    impl Watch for Reports {
        fn decided(&self, event: &Event<'_, '_>) {
            self.0.lock().unwrap().push((event.decision.is_allowed(), None));
        }

        fn not_held(&self, event: &Event<'_, '_>, reason: NotHeld) {
            assert!(event.subject.is_some() && event.decision.retry_after() == Some(millis(100)));
            self.0.lock().unwrap().push((event.decision.is_allowed(), Some(reason)));
        }
    }

    struct Reporter(Arc<Reports>);

    impl Observer for Reporter {
        fn watch(&self, _: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
            self.0.clone()
        }
    }

    let reports = Arc::new(Reports::default());
    let limiter = limiter(&queue("{length: 2}")).with_observer(Reporter(Arc::clone(&reports)));
    assert!(limiter.check(&call()).is_allowed());
    let mut second = limiter.check(&call());
    let place = limiter.queue_place(&second);
    limiter.refuse_wait(Some(&call()), &mut second, millis(100), NotHeld::TooLong);
    assert!(second.is_allowed(), "it can be held for that long");
    limiter.refuse_wait(Some(&call()), &mut second, Duration::ZERO, NotHeld::NoPlace);
    assert!(!second.is_allowed());
    drop(place);
    let expected = [(true, None), (true, None), (false, Some(NotHeld::NoPlace))];
    assert_eq!(*reports.0.lock().unwrap(), expected);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a lease of a store on the system clock")]
fn slots_are_renewed_while_a_request_waits_in_a_queue() {
    let policy = "
limits:
  - {name: work, by: user, slots: 1, ttl: 1500ms}
  - {name: pace, by: user, algorithm: leaky-queue, rate: 1/minute, queue: {length: 5}}
";
    let limiter = Limiter::from_policy(policy).unwrap();
    let call = Call::new("GET", "/").user("ann");
    drop(limiter.acquire_now(&call).unwrap());
    let place = limiter.queue_place(&limiter.check(&call)).expect("it waits");
    std::thread::sleep(Duration::from_secs(4));
    let refused = limiter.check(&call);
    assert_eq!(refused.limiting().map(|it| it.name().to_owned()).as_deref(), Some("work"));
    drop(place);
    assert!(limiter.check(&call).is_allowed());
}
