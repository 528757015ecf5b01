//! A deadline of the caller for calls to the store.
//!
//! A store has a deadline of its own. A caller that waits for less time, such as a proxy with a
//! `grpc-timeout`, would give up before the outage rules can answer, and most proxies let a request pass
//! then. [`Limiter::within`] bounds the time that the decisions inside of it wait for the store.
//!
//! The deadline belongs to the future that makes the decisions, and every call to the store is made in
//! one place, so no entry point has an argument for it. It is stored in a variable of the thread while
//! the future is polled.
//!
//! A call that is not answered in time continues in the background, up to the deadline of the store: the
//! breaker learns its result, and a charge that the store made after all is undone. Without a spawner the
//! call is dropped: its charge may stay, and the breaker learns nothing.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::Timestamp;
use tollgate_store::parts::OwnedCheck;
use tollgate_store::{Answer, Check, Store, StoreError, join_all, undo_check};

use super::Limiter;
use super::pending::NoAnswer;
use crate::outage::ChargeStatus;

thread_local! {
    /// The deadline of the future that this thread polls, by the clock of its limiter.
    static DEADLINE: Cell<Option<Timestamp>> = const { Cell::new(None) };
}

/// Sets the deadline of this thread, and restores the one before when dropped.
struct Scope(Option<Timestamp>);

impl Scope {
    fn enter(deadline: Timestamp) -> Self {
        let before = DEADLINE.get();
        DEADLINE.set(Some(before.map_or(deadline, |it| it.min(deadline))));
        Self(before)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

/// A call to the store that owns its checks.
type OwnedCall = Pin<Box<dyn Future<Output = Result<Answer, NoAnswer>> + Send>>;

/// The checks of a batch, owned.
type OwnedBatch = SmallVec<[OwnedCheck; 4]>;

impl<S: Store> Limiter<S> {
    /// Awaits `decisions`, and bounds the time from now for which they wait for the store. A request
    /// that the store has not decided by then is decided by the outage rules.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 1/minute}]").unwrap();
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// assert!(limiter.within(Duration::from_millis(12), limiter.decide(&call)).await.is_allowed());
    /// # });
    /// ```
    pub async fn within<T>(&self, time: Duration, decisions: impl Future<Output = T>) -> T {
        let deadline = self.outage.now() + time.into();
        let mut decisions = pin!(decisions);
        poll_fn(|context| {
            let _scope = Scope::enter(deadline);
            decisions.as_mut().poll(context)
        })
        .await
    }

    /// Sends a batch to the store, and waits until the deadline of the caller if there is one.
    pub(super) async fn call_store(&self, batch: &[Check<'_>]) -> Result<Answer, NoAnswer> {
        match DEADLINE.get().filter(|_| !self.outage.is_breaker_open()) {
            Some(deadline) => self.call_store_until(deadline, batch).await,
            None => self.observe_call(self.store.decide_uncached(batch)).await,
        }
    }

    /// Sends the batches of several requests to the store together, each as [`call_store`](Self::call_store) does.
    pub(super) async fn call_together(&self, batches: &[&[Check<'_>]]) -> Vec<Result<Answer, NoAnswer>> {
        if DEADLINE.get().is_some() || !self.outage.is_closed() {
            return join_all(batches.iter().map(|batch| self.call_store(batch))).await;
        }
        self.observe_calls(batches.len(), self.store.decide_all(batches)).await
    }

    /// Awaits an adjustment, until the deadline of the caller if there is one. It may have been applied
    /// then.
    pub(super) async fn adjust_in_time<T>(
        &self,
        adjusting: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(deadline) = DEADLINE.get() else { return adjusting.await };
        let time_left = deadline.since(self.outage.now()).into();
        let timed_out = || Err(StoreError::Failed(Box::new(StoreError::TimedOut(time_left))));
        self.wait_for(time_left, pin!(adjusting)).await.unwrap_or_else(timed_out)
    }

    /// Awaits a call, and returns `None` if it takes longer.
    async fn wait_for<T>(&self, time: Duration, mut call: impl Future<Output = T> + Unpin) -> Option<T> {
        let mut sleep = self.sleep(time);
        poll_fn(|context| match Pin::new(&mut call).poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    async fn call_store_until(&self, deadline: Timestamp, batch: &[Check<'_>]) -> Result<Answer, NoAnswer> {
        let time_left = Duration::from(deadline.since(self.outage.now()));
        let error = StoreError::TimedOut(time_left);
        if time_left.is_zero() {
            return Err(NoAnswer { charge_status: ChargeStatus::NotCharged, error });
        }
        let owned: OwnedBatch = batch.iter().map(OwnedCheck::of).collect();
        let mut call = self.clone().call_owned(owned.clone());
        if let Some(answer) = self.wait_for(time_left, &mut call).await {
            return answer;
        }
        let charge_status = match self.spawner() {
            Some(spawner) => {
                let limiter = self.clone();
                spawner.spawn(async move {
                    if let Ok(answer) = call.await {
                        limiter.undo_late(&owned, &answer).await;
                    }
                });
                ChargeStatus::NotCharged
            }
            None => ChargeStatus::Unknown,
        };
        Err(NoAnswer { charge_status, error })
    }

    fn call_owned(self, owned: OwnedBatch) -> OwnedCall {
        Box::pin(async move {
            let batch: SmallVec<[Check<'_>; 4]> = owned.iter().map(OwnedCheck::check).collect();
            self.observe_call(self.store.decide_uncached(&batch)).await
        })
    }

    /// Undoes the charges of a batch whose caller did not wait for the answer. If the store fails, they
    /// decay with time.
    async fn undo_late(&self, owned: &OwnedBatch, answer: &Answer) {
        if !answer.admitted {
            return;
        }
        for (check, outcome) in owned.iter().zip(&answer.outcomes) {
            if let Some(undo) = undo_check(check.amount, outcome, false, answer.at) {
                let _stays_charged =
                    self.observe_call(self.store.adjust(&check.rule, &check.key, undo)).await;
            }
        }
    }
}
