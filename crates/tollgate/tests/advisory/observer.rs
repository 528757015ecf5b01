//! An observer is notified of every decision, by the watch of the policy that made it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, Clock, ClockId, DecisionId, Event, Limiter, ManualClock, MemoryStore, Observer,
    Outcome, Policy, Rule, Span, Store, StoreError, Subject, Timestamp, Watch,
};
use tollgate_testkit::poll_once;

use super::support::{Remote, START, limiter, memory, policy};

/// The received events, each with the version of the policy of its watch.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<(u64, ObservedEvent)>>>);

#[derive(Clone, Debug, PartialEq)]
enum ObservedEvent {
    Decided { id: DecisionId, path: Option<String>, allowed: bool, took: Duration },
    StoreQueried { took: Duration, answered: bool },
}

struct RecordingWatch(u64, EventLog);

impl Observer for EventLog {
    fn watch(&self, _: &Arc<Policy>, version: u64) -> Arc<dyn Watch> {
        Arc::new(RecordingWatch(version, self.clone()))
    }
}

impl RecordingWatch {
    fn record(&self, event: ObservedEvent) {
        self.1.0.lock().unwrap().push((self.0, event));
    }
}

impl Watch for RecordingWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        self.record(ObservedEvent::Decided {
            id: event.id,
            path: event.subject.and_then(Subject::request).map(|it| it.path().to_owned()),
            allowed: event.decision.is_allowed(),
            took: event.took(),
        });
    }

    fn store_called(&self, took: Duration, answered: bool) {
        self.record(ObservedEvent::StoreQueried { took, answered });
    }
}

impl EventLog {
    fn take_events(&self) -> Vec<(u64, ObservedEvent)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const ONE: &str = "limits: [{name: a, by: user, bucket: 1/hour}]";

fn ann() -> Call<'static> {
    Call::new("GET", "/path").user("ann")
}

#[test]
fn the_observed_id_is_the_id_of_the_decision() {
    let (clock, events) = (ManualClock::at(START), EventLog::default());
    let limiter = limiter(ONE, &clock).with_observer_on(Arc::new(events.clone()), clock.clone());
    for allowed in [true, false] {
        let decision = limiter.check(&ann());
        let id = limiter.id_of(&decision);
        assert_eq!(limiter.id_of(&decision), id, "the id is stable");
        let path = Some("/path".to_owned());
        assert_eq!(
            events.take_events(),
            [(1, ObservedEvent::Decided { id, path, allowed, took: Duration::ZERO })]
        );
    }
    let limit = limiter.policy().limit("a").unwrap();
    let key = limiter.policy().key(limit, &["ann"]).unwrap();
    let decision = pollster::block_on(limiter.decide_named(limit, key, None, None));
    let id = limiter.id_of(&decision);
    assert_eq!(
        events.take_events(),
        [(1, ObservedEvent::Decided { id, path: None, allowed: false, took: Duration::ZERO })]
    );
    drop(pollster::block_on(limiter.consider(&ann())).unwrap());
    assert_eq!(events.take_events(), [], "`consider` is not observed");
}

#[test]
fn without_an_observer_a_decision_gets_its_id_on_request() {
    let clock = ManualClock::at(START);
    let limiter = limiter(ONE, &clock);
    let decision = limiter.check(&ann());
    assert_ne!(limiter.id_of(&decision), limiter.id_of(&decision));
}

#[test]
fn every_policy_has_the_next_version_and_its_own_watch() {
    let (clock, events) = (ManualClock::at(START), EventLog::default());
    let first = limiter(ONE, &clock).with_observer_on(Arc::new(events.clone()), clock.clone());
    let second = first.with_policy(policy(ONE));
    let third = second.with_policy(second.policy().with_modes(|_| tollgate::Mode::Off));
    assert_eq!([first.version(), second.version(), third.version()], [1, 2, 3]);
    for limiter in [&third, &first, &second.clone()] {
        drop(limiter.check(&ann()));
    }
    let versions: Vec<_> = events.take_events().into_iter().map(|(version, _)| version).collect();
    assert_eq!(versions, [3, 1, 2]);
}

/// A clock that counts its readings, and shows a microsecond more at each.
#[derive(Clone)]
struct CountingClock(ManualClock, Arc<AtomicU64>);

impl CountingClock {
    fn new() -> Self {
        Self(ManualClock::at(START), Arc::default())
    }

    fn take_readings(&self) -> u64 {
        self.1.swap(0, Ordering::Relaxed)
    }
}

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.advance(Span::from_micros(1));
        self.0.now()
    }

    fn id(&self) -> Option<ClockId> {
        self.0.id()
    }
}

/// Asks for the duration of refusals only.
struct RefusalWatch(EventLog);

impl Observer for RefusalWatch {
    fn watch(&self, _: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
        Arc::new(Self(self.0.clone()))
    }
}

impl Watch for RefusalWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        if !event.decision.is_allowed() {
            assert!(!event.has_duration());
            RecordingWatch(1, self.0.clone()).decided(&event.with_duration());
        }
    }
}

#[test]
fn one_reading_of_a_clock_serves_the_store_and_the_observer() {
    let (clock, events) = (CountingClock::new(), EventLog::default());
    let store = MemoryStore::with_clock(100, clock.clone());
    let limiter = Limiter::with_store(policy(ONE), store);
    let limiter = limiter.with_observer_on(Arc::new(RefusalWatch(events.clone())), clock.clone());
    clock.take_readings();
    assert!(limiter.check(&ann()).is_allowed());
    assert_eq!((clock.take_readings(), events.take_events().len()), (1, 0));
    let refused = limiter.check(&ann());
    assert_eq!(clock.take_readings(), 2, "the observer asked for the duration");
    let (id, path, took) = (limiter.id_of(&refused), Some("/path".to_owned()), Duration::from_micros(1));
    assert_eq!(events.take_events(), [(1, ObservedEvent::Decided { id, path, allowed: false, took })]);
}

#[test]
fn a_store_on_another_clock_reads_its_own() {
    let (clock, other, events) = (CountingClock::new(), CountingClock::new(), EventLog::default());
    let store = MemoryStore::with_clock(100, clock.clone());
    let limiter = Limiter::with_store(policy(ONE), store);
    let limiter = limiter.with_observer_on(Arc::new(RefusalWatch(events.clone())), other.clone());
    clock.take_readings();
    other.take_readings();
    assert!(limiter.check(&ann()).is_allowed());
    assert_eq!((clock.take_readings(), other.take_readings()), (1, 1));
}

#[test]
fn an_observed_refusal_names_the_same_limit() {
    let clock = ManualClock::at(START);
    let several = "
limits:
  - {name: minute, by: user, bucket: 2/minute}
  - {name: shadow, by: user, bucket: 1/day, mode: shadow}
  - {name: hour, by: user, bucket: 3/hour}
  - {name: windows, by: global, windows: [4/second, 5/day]}
";
    let unwatched = limiter(several, &clock);
    let watched = limiter(several, &clock).with_observer_on(Arc::new(EventLog::default()), clock.clone());
    for turn in 0..12 {
        let user = ["ann", "bob"][turn % 2];
        let call = Call::new("GET", "/path").user(user);
        let answers = [&unwatched, &watched].map(|limiter| {
            let decision = limiter.check(&call);
            let limiting = decision.limiting().map(|it| (it.name().to_owned(), *it.outcome()));
            (
                decision.fate() == tollgate::Fate::Admitted,
                limiting,
                decision.advised_wait(),
                decision.retry_after(),
            )
        });
        assert_eq!(answers[0], answers[1], "turn {turn}");
        clock.advance(Span::from_secs(20));
    }
}

/// A store that answers at the second poll, a second later, or not at all.
struct Slow {
    memory: MemoryStore<ManualClock>,
    fails: bool,
}

impl Store for Slow {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let mut waited = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.memory.clock().advance(Span::from_secs(1));
        if self.fails {
            return Err(StoreError::Refused("out of order".into()));
        }
        Ok(self.memory.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.memory.adjust_now(rule, key, adjustment))
    }
}

#[test]
fn a_request_is_reported_to_the_watch_of_its_policy() {
    let (clock, events) = (ManualClock::at(START), EventLog::default());
    let store = Slow { memory: memory(&clock), fails: false };
    let old =
        Limiter::with_store(policy(ONE), store).with_observer_on(Arc::new(events.clone()), clock.clone());
    let request = ann();
    let mut deciding = Box::pin(old.decide(&request));
    assert!(poll_once(deciding.as_mut()).is_pending());
    let new = old.with_policy(policy(ONE));
    assert!(events.take_events().is_empty(), "nothing is decided yet");
    assert!(poll_once(deciding.as_mut()).is_ready());
    let observed = events.take_events();
    assert_eq!(observed.iter().map(|(version, _)| *version).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(observed[0].1, ObservedEvent::StoreQueried { took: Duration::from_secs(1), answered: true });
    assert!(matches!(observed[1].1, ObservedEvent::Decided { took, .. } if took == Duration::from_secs(1)));
    drop(deciding);
    assert_eq!(new.version(), 2);
}

#[test]
fn calls_to_a_store_that_waits_are_reported_with_duration_and_result() {
    let (clock, events) = (ManualClock::at(START), EventLog::default());
    let observer = || Arc::new(events.clone());
    let store_calls = |observed: Vec<(u64, ObservedEvent)>| -> Vec<ObservedEvent> {
        observed
            .into_iter()
            .map(|it| it.1)
            .filter(|it| matches!(it, ObservedEvent::StoreQueried { .. }))
            .collect()
    };
    let here = limiter(ONE, &clock).with_observer_on(observer(), clock.clone());
    drop(here.check(&ann()));
    assert_eq!(store_calls(events.take_events()), [], "a store in this process is not reported");
    let remote = Limiter::with_store(policy(ONE), Remote(memory(&clock)));
    drop(pollster::block_on(remote.with_observer_on(observer(), clock.clone()).decide(&ann())));
    assert_eq!(
        store_calls(events.take_events()),
        [ObservedEvent::StoreQueried { took: Duration::ZERO, answered: true }]
    );
    let failing = Limiter::with_store(policy(ONE), Slow { memory: memory(&clock), fails: true })
        .with_observer_on(observer(), clock.clone());
    let request = ann();
    let mut deciding = Box::pin(failing.decide(&request));
    while poll_once(deciding.as_mut()).is_pending() {}
    assert_eq!(
        store_calls(events.take_events()),
        [ObservedEvent::StoreQueried { took: Duration::from_secs(1), answered: false }]
    );
}
