//! A single limit: answers, waiting in order, permits, settlement.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tollgate::{
    Admission, Bucket, Clock as _, Concurrency, Gate, ManualClock, MemoryStore, Quota, Rate, Refusal,
    Sleeper, Timestamp,
};
use tollgate_testkit::poll_once;

const SECOND: Duration = Duration::from_secs(1);
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A gate in virtual time, and the sleeps that its tasks asked for. A sleep ends when the clock has
/// moved; it wakes no task.
struct Subject {
    gate: Gate<ManualClock>,
    clock: ManualClock,
    sleeps: Arc<Mutex<Vec<Duration>>>,
}

fn subject(quota: impl Into<Quota>) -> Subject {
    let clock = ManualClock::at(START);
    let sleeps = Arc::new(Mutex::new(Vec::new()));
    let (timer, durations) = (clock.clone(), Arc::clone(&sleeps));
    let sleeper = Sleeper::new(move |duration: Duration| {
        durations.lock().unwrap().push(duration);
        let (timer, until) = (timer.clone(), timer.now() + duration.into());
        std::future::poll_fn(move |_| if timer.now() >= until { Poll::Ready(()) } else { Poll::Pending })
    });
    let gate = Gate::with_store("gate", quota, MemoryStore::with_clock(100, clock.clone()));
    Subject { gate: gate.with_sleeper(sleeper), clock, sleeps }
}

/// One unit each second, one at a time.
fn one_a_second() -> Bucket {
    Bucket::new(Rate::per_second(1)).unwrap().with_burst(1).unwrap()
}

fn slots(slots: u32) -> Concurrency {
    Concurrency::new(slots, Duration::from_secs(60)).unwrap()
}

/// A task that is polled by hand, and counts its wakes.
struct Task<'t, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 't>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'t, T> Task<'t, T> {
    fn new(future: impl Future<Output = T> + Send + 't) -> Self {
        Self { future: Box::pin(future), wakes: Arc::default() }
    }

    fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn take_wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }
}

fn is_admitted(poll: &Poll<Result<Admission, Refusal>>) -> bool {
    matches!(poll, Poll::Ready(Ok(_)))
}

#[test]
fn a_refusal_spends_nothing_and_shows_its_wait() {
    let Subject { gate, clock, .. } = subject(Bucket::new(Rate::per_hour(5)).unwrap());
    let admission = gate.check_n("ann", 4).unwrap();
    assert_eq!((admission.units, admission.remaining, admission.limit), (4, 1, 5));
    clock.advance(Duration::from_micros(50));
    let refusal = gate.check_n("ann", 2).unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_micros(719_999_950)));
    assert!(format!("{refusal:?}").contains("719.99995s"), "{refusal:?}");
    assert_eq!(refusal.to_string(), "refused by the limit of 5: try again in 12 min");
    assert_eq!(gate.peek("ann").remaining, 1);
    assert_eq!(gate.check_up_to("ann", 3).unwrap().units, 1);
    assert_eq!(gate.check_n("bob", 6).unwrap_err().retry_after, None);
}

#[test]
fn an_admission_is_settled_or_refunded() {
    let Subject { gate, .. } = subject(Bucket::new(Rate::per_minute(100)).unwrap());
    for (reserved, cost, remaining) in [(50, 20, 80), (20, 20, 80), (10, 90, 10)] {
        gate.adjust("ann", tollgate::Adjustment::Reset);
        let admission = gate.check_n("ann", reserved).unwrap();
        assert_eq!(gate.settle("ann", admission, cost).remaining, remaining, "{reserved} became {cost}");
    }
    gate.adjust("ann", tollgate::Adjustment::Reset);
    let admission = gate.check_n("ann", 100).unwrap();
    assert_eq!(gate.refund("ann", admission).remaining, 100);
    // More than the limit: the key repays it before the next request passes.
    let admission = gate.check_n("ann", 1).unwrap();
    gate.settle("ann", admission, 150);
    let wait = gate.check("ann").unwrap_err().retry_after.unwrap();
    assert!(wait > Duration::from_secs(30), "{wait:?}");
}

#[test]
fn a_task_that_waits_spends_at_the_rate_of_the_limit() {
    let clock = ManualClock::at(START);
    let timer = clock.clone();
    let store = MemoryStore::with_clock(100, clock.clone());
    let gate =
        Gate::with_store("gate", one_a_second(), store).with_sleeper(Sleeper::new(move |wait: Duration| {
            timer.advance(wait);
            std::future::ready(())
        }));
    for _ in 0..5 {
        pollster::block_on(gate.until_ready("ann")).unwrap();
    }
    assert_eq!(Duration::from(clock.now().since(START)), 4 * SECOND);
    let never = pollster::block_on(gate.until_ready_n("ann", 2)).unwrap_err();
    assert_eq!((never.retry_after, gate.waiting()), (None, 0));
}

#[test]
fn tasks_pass_in_the_order_of_their_arrival_and_one_is_woken_at_a_time() {
    let Subject { gate, clock, sleeps } = subject(one_a_second());
    gate.check("ann").unwrap();
    let mut tasks: Vec<_> = (0..4).map(|_| Task::new(gate.until_ready("ann"))).collect();
    for task in &mut tasks {
        assert!(task.poll().is_pending());
    }
    assert_eq!(*sleeps.lock().unwrap(), [SECOND], "only the first task has a timer");
    for turn in 0..4 {
        clock.advance(SECOND);
        for later in (turn + 1..4).rev() {
            assert!(tasks[later].poll().is_pending(), "task {later} passes task {turn}");
        }
        assert!(is_admitted(&tasks[turn].poll()), "task {turn}");
        let woken: Vec<_> = tasks.iter().map(Task::take_wakes).collect();
        let expected: Vec<_> = (0..4).map(|task| usize::from(task == turn + 1)).collect();
        assert_eq!(woken, expected, "after task {turn}");
        if let Some(next) = tasks.get_mut(turn + 1) {
            assert!(next.poll().is_pending());
        }
    }
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn tasks_of_another_key_do_not_wait() {
    let Subject { gate, .. } = subject(one_a_second());
    gate.check("ann").unwrap();
    let mut ann = Task::new(gate.until_ready("ann"));
    assert!(ann.poll().is_pending());
    assert!(is_admitted(&Task::new(gate.until_ready("bob")).poll()));
}

#[test]
fn a_task_that_leaves_wakes_the_next_one_and_spends_nothing() {
    let Subject { gate, clock, .. } = subject(one_a_second());
    gate.check("ann").unwrap();
    let [mut first, mut second, mut third] = [0; 3].map(|_| Task::new(gate.until_ready("ann")));
    for task in [&mut first, &mut second, &mut third] {
        assert!(task.poll().is_pending());
    }
    drop(second);
    assert_eq!((first.take_wakes(), third.take_wakes()), (0, 0), "it was not its turn");
    clock.advance(SECOND);
    drop(first);
    assert_eq!(third.take_wakes(), 1);
    assert!(is_admitted(&third.poll()));
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn a_wait_that_cannot_end_in_time_is_refused_immediately() {
    let Subject { gate, clock, sleeps } = subject(one_a_second());
    gate.check("ann").unwrap();
    let refused = Task::new(gate.wait("ann", 1, SECOND / 2)).poll();
    assert!(matches!(refused, Poll::Ready(Err(refusal)) if refusal.retry_after == Some(SECOND)));
    assert!(sleeps.lock().unwrap().is_empty());
    let mut in_time = Task::new(gate.wait("ann", 1, SECOND));
    assert!(in_time.poll().is_pending());
    clock.advance(SECOND);
    assert!(is_admitted(&in_time.poll()));
}

#[test]
fn a_task_behind_others_is_refused_at_its_deadline_and_does_not_pass_them() {
    let Subject { gate, clock, .. } = subject(one_a_second());
    gate.check("ann").unwrap();
    let mut first = Task::new(gate.until_ready("ann"));
    let mut second = Task::new(gate.wait("ann", 1, SECOND));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    clock.advance(SECOND);
    let refused = second.poll();
    assert!(matches!(refused, Poll::Ready(Err(_))), "{refused:?}");
    assert!(is_admitted(&first.poll()), "the unit was left to the first task");
}

#[test]
fn a_dropped_permit_releases_its_slot_and_wakes_the_first_task() {
    let Subject { gate, .. } = subject(slots(1));
    let permit = gate.acquire("ann").unwrap();
    assert!(gate.acquire("ann").is_err());
    assert!(gate.check("ann").unwrap_err().retry_after.is_none(), "slots have no units");
    let [mut first, mut second] = [0; 2].map(|_| Task::new(gate.acquire_when_ready("ann")));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(permit);
    assert_eq!((first.take_wakes(), second.take_wakes()), (1, 0));
    let Poll::Ready(Ok(permit)) = first.poll() else { panic!("the slot is free") };
    assert!(second.poll().is_pending());
    drop(permit);
    assert!(matches!(second.poll(), Poll::Ready(Ok(_))));
    assert_eq!(gate.peek("ann").remaining, 1);
}

#[test]
fn a_forgotten_permit_and_a_lost_one_end_with_their_lease() {
    let Subject { gate, clock, .. } = subject(slots(1));
    gate.acquire("ann").unwrap().forget();
    assert!(gate.acquire("ann").is_err());
    let mut late = Task::new(gate.acquire_within("ann", Duration::from_secs(59)));
    let mut patient = Task::new(gate.acquire_when_ready("ann"));
    assert!(late.poll().is_pending(), "a slot may become free before its lease ends");
    assert!(patient.poll().is_pending());
    clock.advance(Duration::from_secs(59));
    assert!(matches!(late.poll(), Poll::Ready(Err(_))));
    assert!(patient.poll().is_pending());
    clock.advance(SECOND);
    assert!(matches!(patient.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn a_permit_of_a_rate_spends_one_unit_and_refunds_nothing() {
    let Subject { gate, .. } = subject(Bucket::new(Rate::per_minute(2)).unwrap());
    drop(gate.acquire("ann").unwrap());
    assert_eq!(gate.peek("ann").remaining, 1);
}

#[test]
fn a_sleep_that_never_sleeps_does_not_block_the_thread() {
    let clock = ManualClock::at(START);
    let gate = Gate::with_store("gate", one_a_second(), MemoryStore::with_clock(100, clock))
        .with_sleeper(Sleeper::new(|_| std::future::ready(())));
    gate.check("ann").unwrap();
    let mut task = Task::new(gate.until_ready("ann"));
    assert!(task.poll().is_pending());
    assert_eq!(task.take_wakes(), 1, "it asks to be polled again");
}

#[test]
fn threads_that_wait_never_hold_more_slots_than_there_are() {
    let gate = Gate::new("gate", slots(2));
    let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let permit = pollster::block_on(gate.acquire_when_ready("ann")).unwrap();
                    most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    held.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 2);
    assert_eq!((gate.peek("ann").remaining, gate.waiting()), (2, 0));
}

#[test]
fn threads_that_wait_all_pass_in_real_time() {
    let gate = Gate::new("gate", Bucket::new(Rate::per_second(200)).unwrap().with_burst(1).unwrap());
    let clock = gate.store().clock().clone();
    let begun = clock.now();
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                for _ in 0..4 {
                    pollster::block_on(gate.until_ready("ann")).unwrap();
                }
            });
        }
    });
    let took = Duration::from(clock.now().since(begun));
    assert!(took >= Duration::from_millis(95), "20 units, 5 ms apart, took {took:?}");
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn a_wait_may_move_between_threads() {
    let Subject { gate, .. } = subject(one_a_second());
    let task = thread::scope(|scope| scope.spawn(|| Task::new(gate.until_ready("ann"))).join().unwrap());
    let mut task = pin!(task.future);
    assert!(poll_once(task.as_mut()).is_ready());
}
