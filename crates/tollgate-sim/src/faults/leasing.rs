//! The store of a limiter: leases around the simulated store, with the answers reported to the world.
//!
//! `tollgate-daemon` has the same arrangement around Redis: requests spend leases, and a task renews and returns them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tollgate::store::{Answer, Check, Outcomes, Repeatable};
use tollgate::{Adjustment, Clock, ManualClock, Outcome, Rule, Store, StoreError, Timestamp};
use tollgate_lease::{FarStore, Leased};

use super::clock::SimClock;
use super::defect::Defect;
use super::node::Report;
use super::store::SimStore;
use super::wire::{Command, Failure, Origin, Wire};

/// The clock of the leases of a node.
#[derive(Clone)]
pub(super) struct LeaseClock {
    clock: ManualClock,
    /// A defect: how much slower it runs.
    slowdown: u64,
}

impl LeaseClock {
    fn new(clock: &SimClock, defect: Option<Defect>) -> Self {
        match defect {
            Some(Defect::LeaseEndOnWallClock) => Self { clock: clock.wall(), slowdown: 1 },
            Some(Defect::LeaseEndIgnored) => Self { clock: clock.shown(), slowdown: 64 },
            _ => Self { clock: clock.shown(), slowdown: 1 },
        }
    }
}

impl Clock for LeaseClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.now().as_micros() / self.slowdown)
    }
}

/// A simulated store with leases.
pub(super) type LeasedSim = Leased<SimStore, LeaseClock>;

/// The store of a limiter.
#[derive(Clone)]
pub(super) struct NodeStore {
    node: usize,
    wire: Arc<Wire>,
    leased: Arc<LeasedSim>,
}

impl NodeStore {
    pub(super) fn new(
        node: usize,
        store: &SimStore,
        clock: &SimClock,
        (defect, seed): (Option<Defect>, u64),
        far: Vec<FarStore<SimStore>>,
    ) -> Self {
        let leased = Leased::with_clock(store.clone(), LeaseClock::new(clock, defect), seed);
        let leased = leased.with_far_stores(far);
        Self { node, wire: Arc::clone(store.wire()), leased: Arc::new(leased) }
    }

    pub(super) const fn leased(&self) -> &Arc<LeasedSim> {
        &self.leased
    }

    /// Renews and returns leases until dropped, as `tollgate-daemon` does.
    pub(super) async fn tend(self) {
        loop {
            let next = self.leased.tend().await;
            let mut due = pin!(self.leased.due());
            let mut slept = next.map(|span| self.wire.sleep(self.node, span.as_micros()));
            poll_fn(|context| {
                let is_due = due.as_mut().poll(context).is_ready();
                let is_over = slept.as_mut().is_some_and(|it| pin!(it).poll(context).is_ready());
                if is_due || is_over { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// Makes the calls to other regions until dropped.
    pub(super) async fn tend_far(self) {
        self.leased.tend_far().await;
    }

    /// Returns all leases.
    pub(super) async fn drain(self) {
        self.leased.drain().await;
        self.wire.push(Command::Report { node: self.node, report: Report::Drained });
    }

    fn report(&self, origin: Origin, report: impl FnOnce(super::wire::RequestId) -> Report) {
        if let Origin::Request(request) = origin {
            self.wire.push(Command::Report { node: self.node, report: report(request) });
        }
    }

    /// Reports that the store answered a call that decides no request.
    fn note<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.is_ok() {
            self.wire.push(Command::Report { node: self.node, report: Report::Answers });
        }
        answer
    }

    async fn observe(
        &self,
        call: impl Future<Output = Result<Answer, StoreError>>,
    ) -> Result<Answer, StoreError> {
        let origin = self.wire.current();
        let answer = call.await;
        let admitted = answer.as_ref().map(|it| it.admitted).map_err(Failure::of);
        self.report(origin, |request| Report::Answered { request, admitted });
        answer
    }
}

impl Store for NodeStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.observe(self.leased.decide(checks)).await
    }

    async fn decide_uncached(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.observe(self.leased.decide_uncached(checks)).await
    }

    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let origin = self.wire.current();
        let decided = self.leased.try_decide(checks, outcomes)?;
        self.report(origin, |request| Report::DecidedLocally { request, is_admitted: decided.0 });
        Some(decided)
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.note(self.leased.adjust(rule, key, adjustment).await)
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        self.note(self.leased.adjust_once(rule, key, once).await)
    }

    fn recognizes_adjustments(&self) -> bool {
        self.leased.recognizes_adjustments()
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.note(self.leased.probe().await)
    }

    fn nodes(&self) -> usize {
        self.leased.nodes()
    }
}
