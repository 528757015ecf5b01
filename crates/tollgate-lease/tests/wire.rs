//! A store behind a link with a delay, which may be cut.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{Adjustment, Outcome, Rule, Span, Timestamp};
use tollgate_store::{Answer, Check, Clock as _, ManualClock, MemoryStore, Store, StoreError};

/// The deadline of a call to another region.
const DEADLINE: Span = Span::from_secs(1);

/// A client of a store in memory, at the other end of a link.
#[derive(Clone)]
pub(crate) struct Wire {
    clock: ManualClock,
    server: Arc<MemoryStore<ManualClock>>,
    link: Arc<Link>,
    nodes: usize,
}

#[derive(Default)]
pub(crate) struct Link {
    /// The delay of each way, in microseconds.
    delay_us: AtomicU64,
    is_cut: AtomicBool,
    calls: AtomicU64,
}

impl Link {
    pub(crate) fn new(delay: Span) -> Arc<Self> {
        Arc::new(Self { delay_us: AtomicU64::new(delay.as_micros()), ..Self::default() })
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Wire {
    pub(crate) fn new(
        clock: &ManualClock,
        server: &Arc<MemoryStore<ManualClock>>,
        link: &Arc<Link>,
        nodes: usize,
    ) -> Self {
        Self { clock: clock.clone(), server: Arc::clone(server), link: Arc::clone(link), nodes }
    }

    /// Waits for the time. Tests poll the futures whenever they have moved the clock.
    async fn until(&self, time: Timestamp) {
        poll_fn(|_| if self.clock.now() >= time { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Travels one way, or waits for the deadline.
    async fn travel(&self, sent_at: Timestamp) -> Result<(), StoreError> {
        let delay = Span::from_micros(self.link.delay_us.load(Ordering::SeqCst));
        let arrival = self.clock.now() + delay;
        if !self.link.is_cut.load(Ordering::SeqCst) {
            self.until(arrival).await;
        }
        if self.link.is_cut.load(Ordering::SeqCst) {
            // A near store fails immediately, so that no test waits for it.
            if delay > Span::ZERO {
                self.until(sent_at + DEADLINE).await;
            }
            return Err(StoreError::TimedOut(Duration::from_secs(1)));
        }
        Ok(())
    }

    async fn call<T>(&self, work: impl FnOnce(&MemoryStore<ManualClock>) -> T) -> Result<T, StoreError> {
        self.link.calls.fetch_add(1, Ordering::SeqCst);
        let sent_at = self.clock.now();
        self.travel(sent_at).await?;
        let reply = work(&self.server);
        // A reply that is lost here was charged.
        self.travel(sent_at).await?;
        Ok(reply)
    }
}

impl Store for Wire {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.call(|server| server.decide_now(checks)).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.call(|server| server.adjust_now(rule, key, adjustment)).await
    }

    fn nodes(&self) -> usize {
        self.nodes
    }
}
