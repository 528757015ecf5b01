//! Waiting for a limiter: sleeps that it computes, on a clock that only sleeps advance.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollster::block_on;
use tollgate::{
    Call, Fate, Limiter, ManualClock, MemoryStore, OutageSettings, Policy, Sleeper, Span, Timestamp,
};

type Sleeps = Arc<Mutex<Vec<Duration>>>;

/// A limiter whose sleeps advance its clock, and are recorded.
fn limiter(policy: &str) -> (Limiter<MemoryStore<ManualClock>>, Sleeps) {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let sleeps = Sleeps::default();
    let (recorded, turned) = (Arc::clone(&sleeps), clock.clone());
    let sleeper = Sleeper::new(move |duration: Duration| {
        recorded.lock().unwrap().push(duration);
        turned.advance(Span::from(duration));
        std::future::ready(())
    });
    let limiter = Limiter::with_store(policy, MemoryStore::with_clock(100, clock.clone()))
        .with_outage_on(&OutageSettings::default(), clock)
        .with_sleeper(sleeper);
    (limiter, sleeps)
}

fn ann() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

fn seconds(sleeps: &Sleeps) -> Vec<u64> {
    sleeps.lock().unwrap().drain(..).map(|it| it.as_secs()).collect()
}

#[test]
fn a_task_sleeps_until_all_limits_have_room() {
    let (limiter, sleeps) = limiter(
        "limits: [{by: user, bucket: '1/second, burst 2'}, {name: slow, by: user, bucket: '6/minute, burst 1'}]",
    );
    for expected in [&[][..], &[10], &[10]] {
        assert!(block_on(limiter.until_ready(&ann())).is_allowed());
        assert_eq!(seconds(&sleeps), expected);
    }
}

#[test]
fn a_wait_ends_immediately_if_units_come_back_after_its_deadline() {
    let (limiter, sleeps) = limiter("limits: [{by: user, bucket: 6/minute}]");
    assert!(block_on(limiter.wait(&ann().cost(6), Duration::ZERO)).is_allowed());
    let refused = block_on(limiter.wait(&ann(), Duration::from_millis(9_999)));
    assert_eq!(refused.fate(), Fate::Refused);
    assert!(seconds(&sleeps).is_empty(), "it is known that the unit comes back later");
    assert!(block_on(limiter.wait(&ann(), Duration::from_secs(10))).is_allowed());
    assert_eq!(seconds(&sleeps), [10]);
}

#[test]
fn a_refusal_that_waiting_does_not_help_is_returned_immediately() {
    let (limiter, sleeps) =
        limiter("deny: [{user: mallory}]\nlimits: [{by: user, bucket: 5/minute, overrides: {eve: blocked}}]");
    for (call, cost) in [(ann(), 6), (ann().user("mallory"), 1), (ann().user("eve"), 1)] {
        assert!(!block_on(limiter.until_ready(&call.cost(cost))).is_allowed());
    }
    assert!(seconds(&sleeps).is_empty());
}

#[test]
fn a_task_tries_every_second_for_a_slot_and_once_more_at_its_deadline() {
    let (limiter, sleeps) = limiter("limits: [{by: user, slots: 1, ttl: 1h}]");
    let held = limiter.acquire_now(&ann()).unwrap();
    let refused = block_on(limiter.acquire_within(&ann(), Duration::from_millis(2_500))).unwrap_err();
    assert_eq!(refused.fate(), Fate::Refused);
    let slept: Duration = sleeps.lock().unwrap().drain(..).sum();
    assert_eq!(slept, Duration::from_millis(2_500));
    drop(held);
    let permit = block_on(limiter.acquire_when_ready(&ann())).unwrap();
    assert_eq!((permit.slots(), seconds(&sleeps)), (1, vec![]));
}

#[test]
fn waiting_needs_no_runtime_and_no_sleeper() {
    let limiter = Limiter::from_policy("limits: [{by: user, bucket: '50/second, burst 1'}]").unwrap();
    for _ in 0..3 {
        assert!(block_on(limiter.wait(&ann(), Duration::from_secs(60))).is_allowed());
    }
}
