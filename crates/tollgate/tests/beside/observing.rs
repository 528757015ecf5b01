//! An observer is told of every decision, by the watch of the policy that made it.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, DecisionId, Event, Limiter, ManualClock, MemoryStore, Observer, Outcome, Policy, Rule,
    Span, Store, StoreError, Watch,
};

use crate::support::{Remote, START, limiter, memory, policy};

/// What was told, each by the version of the policy whose watch it was told.
#[derive(Clone, Default)]
struct OutcomeView(Arc<Mutex<Vec<(u64, ObservedEvent)>>>);

#[derive(Clone, Debug, PartialEq)]
enum ObservedEvent {
    Decided { id: DecisionId, path: Option<String>, allowed: bool, took: Span },
    StoreQueried { took: Span, answered: bool },
}

struct Ear(u64, OutcomeView);

impl Observer for OutcomeView {
    fn watch(&self, _: &Arc<Policy>, version: u64) -> Arc<dyn Watch> {
        Arc::new(Ear(version, self.clone()))
    }
}

impl Ear {
    fn hear(&self, heard: ObservedEvent) {
        self.1.0.lock().unwrap().push((self.0, heard));
    }
}

impl Watch for Ear {
    fn decided(&self, event: &Event<'_, '_>) {
        self.hear(ObservedEvent::Decided {
            id: event.id,
            path: event.request.map(|it| it.path().to_owned()),
            allowed: event.decision.is_allowed(),
            took: event.took,
        });
    }

    fn asked(&self, took: Span, answered: bool) {
        self.hear(ObservedEvent::StoreQueried { took, answered });
    }
}

impl OutcomeView {
    fn heard(&self) -> Vec<(u64, ObservedEvent)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const ONE: &str = "limits: [{name: a, by: user, bucket: 1/hour}]";

fn ann() -> Call<'static> {
    Call::new("GET", "/path").user("ann")
}

#[test]
fn the_id_that_is_told_is_the_id_of_the_decision() {
    let (clock, told) = (ManualClock::at(START), OutcomeView::default());
    let limiter = limiter(ONE, &clock).with_observer_on(Arc::new(told.clone()), clock.clone());
    for allowed in [true, false] {
        let decision = limiter.check(&ann());
        let id = limiter.id_of(&decision);
        assert_eq!(limiter.id_of(&decision), id, "it keeps its name");
        let path = Some("/path".to_owned());
        assert_eq!(told.heard(), [(1, ObservedEvent::Decided { id, path, allowed, took: Span::ZERO })]);
    }
    let limit = limiter.policy().limit("a").unwrap();
    let key = limiter.policy().key(limit, &["ann"]).unwrap();
    let decision = pollster::block_on(limiter.decide_named(limit, key, None, None));
    let id = limiter.id_of(&decision);
    assert_eq!(
        told.heard(),
        [(1, ObservedEvent::Decided { id, path: None, allowed: false, took: Span::ZERO })]
    );
    pollster::block_on(limiter.consider(&ann())).unwrap();
    assert_eq!(told.heard(), [], "a question is no decision");
}

#[test]
fn without_an_observer_a_decision_has_no_name_until_one_is_asked_for() {
    let clock = ManualClock::at(START);
    let limiter = limiter(ONE, &clock);
    let decision = limiter.check(&ann());
    assert_ne!(limiter.id_of(&decision), limiter.id_of(&decision));
}

#[test]
fn every_policy_has_the_next_number_and_a_watch_of_its_own() {
    let (clock, told) = (ManualClock::at(START), OutcomeView::default());
    let first = limiter(ONE, &clock).with_observer_on(Arc::new(told.clone()), clock.clone());
    let second = first.with_policy(policy(ONE));
    let third = second.with_policy(second.policy().with_modes(|_| tollgate::Mode::Off));
    assert_eq!([first.version(), second.version(), third.version()], [1, 2, 3]);
    for limiter in [&third, &first, &second.clone()] {
        limiter.check(&ann());
    }
    let versions: Vec<_> = told.heard().into_iter().map(|(version, _)| version).collect();
    assert_eq!(versions, [3, 1, 2]);
}

/// Answers at the second time of asking, a second later, or not at all.
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
fn a_request_is_told_to_the_watch_of_the_policy_under_which_it_began() {
    let (clock, told) = (ManualClock::at(START), OutcomeView::default());
    let store = Slow { memory: memory(&clock), fails: false };
    let old = Limiter::with_store(policy(ONE), store).with_observer_on(Arc::new(told.clone()), clock.clone());
    let asked = ann();
    let mut deciding = Box::pin(old.decide(&asked));
    let mut context = Context::from_waker(Waker::noop());
    assert!(deciding.as_mut().poll(&mut context).is_pending());
    let new = old.with_policy(policy(ONE));
    assert!(told.heard().is_empty(), "nothing is decided yet");
    assert!(deciding.as_mut().poll(&mut context).is_ready());
    let heard = told.heard();
    assert_eq!(heard.iter().map(|(version, _)| *version).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(heard[0].1, ObservedEvent::StoreQueried { took: Span::from_secs(1), answered: true });
    assert!(matches!(heard[1].1, ObservedEvent::Decided { took, .. } if took == Span::from_secs(1)));
    drop(deciding);
    assert_eq!(new.version(), 2);
}

#[test]
fn who_asks_a_store_that_is_waited_for_tells_how_long_and_whether_it_answered() {
    let (clock, told) = (ManualClock::at(START), OutcomeView::default());
    let observer = || Arc::new(told.clone());
    let asked = |heard: Vec<(u64, ObservedEvent)>| -> Vec<ObservedEvent> {
        heard
            .into_iter()
            .map(|it| it.1)
            .filter(|it| matches!(it, ObservedEvent::StoreQueried { .. }))
            .collect()
    };
    let here = limiter(ONE, &clock).with_observer_on(observer(), clock.clone());
    here.check(&ann());
    assert_eq!(asked(told.heard()), [], "a store in this process is not waited for");
    let remote = Limiter::with_store(policy(ONE), Remote(memory(&clock)));
    pollster::block_on(remote.with_observer_on(observer(), clock.clone()).decide(&ann()));
    assert_eq!(asked(told.heard()), [ObservedEvent::StoreQueried { took: Span::ZERO, answered: true }]);
    let failing = Limiter::with_store(policy(ONE), Slow { memory: memory(&clock), fails: true })
        .with_observer_on(observer(), clock.clone());
    let asked_for = ann();
    let mut deciding = Box::pin(failing.decide(&asked_for));
    let mut context = Context::from_waker(Waker::noop());
    while deciding.as_mut().poll(&mut context).is_pending() {}
    assert_eq!(
        asked(told.heard()),
        [ObservedEvent::StoreQueried { took: Span::from_secs(1), answered: false }]
    );
}
