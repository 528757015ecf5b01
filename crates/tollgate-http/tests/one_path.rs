//! A request through the layer is matched once, and its store is attempted and asked once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::store::{Answer, Check, Outcomes};
use tollgate::{
    Adjustment, Event, Limiter, ManualClock, MemoryStore, Observer, Outcome, Policy, Rule, Store, StoreError,
    Timestamp, Watch,
};
use tollgate_http::LimitLayer;
use tower::{Layer as _, ServiceExt as _, service_fn};

#[derive(Debug, Default)]
struct Counts {
    /// The layer searches the peer once for each match.
    peers: AtomicU64,
    attempts: AtomicU64,
    calls: AtomicU64,
    observed: AtomicU64,
}

impl Counts {
    fn take(&self) -> [u64; 4] {
        [&self.peers, &self.attempts, &self.calls, &self.observed].map(|it| it.swap(0, Ordering::Relaxed))
    }
}

/// A store that waits, and answers from a cache once a key is exhausted.
struct CountingStore(MemoryStore<ManualClock>, Arc<Counts>);

impl Store for CountingStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        panic!("this would search the cache a second time")
    }

    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        self.1.attempts.fetch_add(1, Ordering::Relaxed);
        let peek = Check { amount: tollgate::Amount::Exactly(0), ..checks[0] };
        if self.0.decide_now(&[peek]).outcomes[0].remaining > 0 {
            return None;
        }
        let answer = self.0.decide_now(checks);
        outcomes.extend(answer.outcomes);
        Some((answer.admitted, answer.at))
    }

    async fn decide_uncached(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.1.calls.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        Ok(self.0.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.0.adjust_now(rule, key, adjustment))
    }
}

struct Observing(Arc<Counts>);

impl Observer for Observing {
    fn watch(&self, _: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
        Arc::new(Self(Arc::clone(&self.0)))
    }
}

impl Watch for Observing {
    fn decided(&self, event: &Event<'_, '_>) {
        assert_eq!(
            event.subject.and_then(tollgate::Subject::request).map(|it| it.path().to_owned()).as_deref(),
            Some("/here")
        );
        assert_eq!(event.subject.and_then(tollgate::Subject::client), Some([203, 0, 113, 9].into()));
        self.0.observed.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_request_is_matched_once_and_its_store_is_attempted_and_asked_once() {
    let counts = Arc::new(Counts::default());
    let memory = MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let policy = Policy::parse("limits: [{by: ip, bucket: 2/day}]").unwrap();
    let limiter = Limiter::with_store(policy, CountingStore(memory, Arc::clone(&counts)))
        .with_observer(Observing(Arc::clone(&counts)));
    let peers = Arc::clone(&counts);
    let layer = LimitLayer::spawning(limiter, |work| drop(tokio::spawn(work))).with_peer(move |_| {
        peers.peers.fetch_add(1, Ordering::Relaxed);
        Some([203, 0, 113, 9].into())
    });
    let hello = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) };
    let service = layer.layer(service_fn(hello));
    for (status, expected) in [(200, [1, 1, 1, 1]), (200, [1, 1, 1, 1]), (429, [1, 1, 0, 1])] {
        let request = Request::get("/here").body(()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!((response.status().as_u16(), counts.take()), (status, expected));
    }
}
