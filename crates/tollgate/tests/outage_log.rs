//! The log of an outage: lines at its start and its end, and few in between.
//!
//! It is a separate process with a single test, because `tracing` caches per process whether a call
//! site is enabled, when it is first reached.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, Limiter, ManualClock, MemoryStore, OutageSettings, Outcome, Policy, Rule, Span, Store,
    StoreError, Timestamp,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Keeps every line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A store that fails on request.
struct FailingStore(MemoryStore<ManualClock>, Arc<Mutex<Option<Fail>>>);

type Fail = fn() -> StoreError;

impl Store for FailingStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let fail = *self.1.lock().unwrap();
        fail.map_or_else(|| Ok(self.0.decide_now(checks)), |fail| Err(fail()))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.0.adjust_now(rule, key, adjustment))
    }
}

#[test]
fn an_outage_is_logged_at_its_start_and_end_and_not_per_request() {
    let (lines, mood) = (Lines::default(), Arc::new(Mutex::new(None)));
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let policy = Policy::parse("limits: [{by: user, bucket: 1000/hour}]").unwrap();
    let store = FailingStore(MemoryStore::with_seed(100, clock.clone(), 7), Arc::clone(&mood));
    let settings = OutageSettings { keys: 64, ..OutageSettings::default() };
    let limiter = Limiter::with_store(policy, store).with_outage_on(&settings, clock.clone());
    let ask = |times: usize| {
        for _ in 0..times {
            drop(pollster::block_on(limiter.decide(&Call::new("GET", "/").user("ann"))));
        }
    };
    tracing::subscriber::with_default(lines.clone(), || {
        *mood.lock().unwrap() = Some(|| StoreError::Failed("connection\nreset".into()));
        for _ in 0..100 {
            ask(10);
            clock.advance(Span::from_millis(100));
        }
        *mood.lock().unwrap() = None;
        clock.advance(Span::from_secs(1));
        ask(10);
        *mood.lock().unwrap() = Some(|| StoreError::Foreign("tollgate:key".to_owned()));
        ask(100);
        clock.advance(Span::from_secs(60));
        ask(100);
    });
    let logged = std::mem::take(&mut *lines.0.lock().unwrap());
    let [(Level::WARN, opened), (Level::INFO, closed), foreign @ ..] = &logged[..] else {
        panic!("{logged:?}")
    };
    assert!(opened.contains("the store failed: connection reset"), "the cause, in one line: {opened}");
    assert!(closed.contains("decisions=996") && closed.contains("seconds=11"), "{closed}");
    assert_eq!(foreign.len(), 2, "foreign data is logged once a minute: {foreign:?}");
    assert!(foreign.iter().all(|(level, line)| *level == Level::WARN && line.contains("tollgate:key")));

    // A later cause, reminders, and a full ledger.
    tracing::subscriber::with_default(lines.clone(), || {
        // Foreign data is an answer, too.
        clock.advance(Span::from_millis(200));
        *mood.lock().unwrap() = Some(|| StoreError::Failed("broken pipe".into()));
        ask(10);
        *mood.lock().unwrap() = Some(|| StoreError::Refused("no password".into()));
        for second in 0..130 {
            clock.advance(Span::from_secs(1));
            ask(1);
            for user in 0..100 {
                let user = format!("user {second} {user}");
                drop(pollster::block_on(limiter.decide(&Call::new("GET", "/").user(&user))));
            }
        }
        *mood.lock().unwrap() = None;
        clock.advance(Span::from_micros(1_234_567));
        ask(1);
    });
    let logged = lines.0.lock().unwrap().clone();
    let of = |what: &str| logged.iter().filter(|(_, line)| line.contains(what)).collect::<Vec<_>>();
    assert_eq!((of("the breaker is open").len(), of("answers again").len()), (1, 1), "{logged:?}");
    assert!(of("the breaker is open")[0].1.contains("broken pipe"), "{logged:?}");
    let still = of("still gives no answers");
    assert_eq!(still.len(), 3, "a new cause and two reminders: {logged:?}");
    assert!(still.iter().all(|(level, line)| *level == Level::WARN && line.contains("no password")));
    assert!(still[0].1.contains("seconds=1.0 "), "{still:?}");
    assert!(of("answers again")[0].1.contains("seconds=131.235 "), "{logged:?}");
    let full = of("the ledger is full");
    assert_eq!(full.len(), 3, "once a minute: {logged:?}");
    assert!(full.iter().all(|(level, line)| *level == Level::WARN && line.contains("lost=")), "{full:?}");
    assert_eq!(logged.len(), 8, "and nothing else: {logged:?}");
}
