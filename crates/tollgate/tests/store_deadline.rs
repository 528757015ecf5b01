//! A caller that waits for less time than the store: the outage rules answer before it gives up.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::future::{pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use pollster::block_on;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, BreakerState, Call, Limiter, ManualClock, MemoryStore, OutageSettings, Outcome, Policy, Rule,
    Sleeper, Spawner, Store, StoreError, Timestamp,
};
use tollgate_testkit::poll_once;

/// A store that decides when the test says so.
struct LateStore {
    memory: MemoryStore<ManualClock>,
    is_open: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
}

impl LateStore {
    async fn wait(&self) -> Result<(), StoreError> {
        poll_fn(|_| if self.is_open.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await;
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::TimedOut(Duration::from_millis(50)));
        }
        Ok(())
    }
}

impl Store for LateStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.wait().await?;
        Ok(self.memory.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.wait().await?;
        Ok(self.memory.adjust_now(rule, key, adjustment))
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Subject {
    limiter: Limiter<LateStore>,
    is_open: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
    background: Arc<Mutex<Vec<Work>>>,
}

/// A limiter whose sleep never ends, or ends at once.
fn subject(policy: &str, sleeps: bool) -> Subject {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let (is_open, fails) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let background: Arc<Mutex<Vec<Work>>> = Arc::default();
    let memory = MemoryStore::with_seed(1_000, clock.clone(), 7);
    let store = LateStore { memory, is_open: Arc::clone(&is_open), fails: Arc::clone(&fails) };
    let spawned = Arc::clone(&background);
    let sleeper = if sleeps { Sleeper::new(|_| pending()) } else { Sleeper::new(|_| ready(())) };
    let limiter = Limiter::with_store(Policy::parse(policy).unwrap(), store)
        .with_outage_on(&OutageSettings::default(), clock)
        .with_sleeper(sleeper)
        .with_spawner(Spawner::new(move |work| spawned.lock().unwrap().push(work)));
    Subject { limiter, is_open, fails, background }
}

impl Subject {
    /// Lets the store answer, and runs the calls that wait for it.
    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        for work in std::mem::take(&mut *self.background.lock().unwrap()) {
            block_on(work);
        }
    }

    /// Decides with a deadline. Returns whether the request was admitted and whether the store decided.
    fn decide(&self, call: &Call<'_>) -> (bool, bool) {
        let deciding = self.limiter.within(Duration::from_millis(12), self.limiter.decide(call));
        let decision = block_on(deciding);
        (decision.is_allowed(), !decision.is_degraded())
    }

    fn used(&self) -> u64 {
        let limit = self.limiter.policy().limit("api").unwrap();
        let key = self.limiter.policy().key(limit, &["ann"]).unwrap();
        let outcomes = block_on(self.limiter.peek(limit.rules(), &key, 0)).unwrap();
        outcomes[0].limit - outcomes[0].remaining
    }
}

const POLICY: &str = "limits: [{name: api, by: user, bucket: 50/day}]";

fn ann() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

#[test]
fn a_request_is_decided_locally_when_the_store_is_late_and_its_late_charge_is_undone() {
    let subject = subject(POLICY, false);
    for _ in 0..3 {
        assert_eq!(subject.decide(&ann()), (true, false));
    }
    assert_eq!(subject.background.lock().unwrap().len(), 3, "the calls continue");
    assert_eq!(subject.limiter.health().breaker, BreakerState::Closed, "they may still be answered");
    subject.open();
    assert_eq!(subject.used(), 0, "the charges of the store are undone");
    block_on(subject.limiter.reconcile());
    assert_eq!(subject.used(), 3, "each request was counted once");
}

#[test]
fn a_store_that_answers_in_time_decides() {
    let subject = subject("limits: [{name: api, by: user, bucket: 5/day}]", true);
    subject.open();
    for left in (0..5).rev() {
        assert_eq!(subject.decide(&ann()), (true, true), "{left} left");
    }
    assert_eq!(subject.decide(&ann()), (false, true));
    assert!(subject.background.lock().unwrap().is_empty());
}

#[test]
fn the_breaker_learns_the_result_of_calls_that_were_not_waited_for() {
    let subject = subject(POLICY, false);
    subject.fails.store(true, Ordering::SeqCst);
    while subject.limiter.health().breaker == BreakerState::Closed {
        assert!(!subject.decide(&ann()).1);
        subject.open();
        subject.is_open.store(false, Ordering::SeqCst);
        assert!(subject.limiter.health().failures < 100, "the breaker never opens");
    }
    subject.decide(&ann());
    assert!(subject.background.lock().unwrap().is_empty(), "the store is not called any more");
}

#[test]
fn a_correction_is_deferred_when_the_caller_stops_waiting() {
    let subject = subject(POLICY, false);
    let limit = subject.limiter.policy().limit("api").unwrap();
    let key = subject.limiter.policy().key(limit, &["ann"]).unwrap();
    let granting = subject.limiter.grant(limit.name(), &limit.rules()[0], &key, 2);
    let granted = block_on(subject.limiter.within(Duration::from_millis(12), granting));
    assert!(matches!(granted, Err(_) | Ok(None)), "{granted:?}");
}

#[test]
fn decisions_outside_wait_for_the_store() {
    let subject = subject(POLICY, false);
    let mut inside = Box::pin(subject.limiter.within(Duration::from_millis(12), pending::<()>()));
    assert!(poll_once(inside.as_mut()).is_pending());
    let call = ann();
    let mut outside = Box::pin(subject.limiter.decide(&call));
    assert!(poll_once(outside.as_mut()).is_pending(), "it has no deadline but that of the store");
}
