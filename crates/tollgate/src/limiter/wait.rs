//! Waiting for a decision that admits.
//!
//! A task decides, sleeps for the wait that the refusal computed, and decides again. Tasks do not
//! queue: after a sleep, any of them may be the first. The queue of a single key in this process is in
//! `gate`. A limit with a queue of its own admits a request with a wait, which is the last sleep. Tasks
//! that wait for a slot of a limit with a `queue` are in its line (`pending::in_line`), for as long as the
//! caller waits.

use std::convert::Infallible;
use std::time::Duration;

use tollgate_core::{Quota, Timestamp};
use tollgate_policy::Input;
use tollgate_store::Store;

use super::start::{Retry, Steps};
use super::{HoldEnd, Limiter};
use crate::decision::Decision;
use crate::permit::Permit;
use crate::spawner::Spawner;
use crate::timer::{SleepFuture, Sleeper};

impl<S> Limiter<S> {
    /// Sets the function that sleeps, such as `Sleeper::new(tokio::time::sleep)`, instead of a timer
    /// thread.
    #[must_use]
    pub fn with_sleeper(self, sleeper: Sleeper) -> Self {
        Self { sleeper: Some(sleeper), ..self }
    }

    /// Sets the function that runs work in the background, such as `tokio::spawn`. Callers that leave
    /// the queue of a limit are then refunded immediately on a store that waits, in shared calls.
    /// Without it, [`reconcile`](Self::reconcile) refunds them one after the other.
    #[must_use]
    pub fn with_spawner(self, spawner: Spawner) -> Self {
        Self { spawner: Some(spawner), ..self }
    }

    /// Returns the function that runs work in the background.
    pub(crate) const fn spawner(&self) -> Option<&Spawner> {
        self.spawner.as_ref()
    }
}

impl<S: Store> Limiter<S> {
    /// Waits until every limit has room for a request, and charges them.
    ///
    /// The task sleeps for the wait that the refusal computed, and then tries again. Tasks that wait
    /// for the same limit pass in no particular order. A slot may be released at any time, so a task
    /// that waits for one tries every second. If the slots have a `queue`, tasks wait in its line
    /// instead, as the requests of a server do, and the next is woken when a slot is released; the bound of
    /// the caller replaces the `wait` of the queue. A limit that counts refusals (`count_denied`) is charged
    /// by each attempt. A request that a limit admits with a wait ([`Decision::wait`]) sleeps for it. A
    /// future that is dropped leaves no slot taken and releases its place in a queue.
    ///
    /// A decision that refuses says that waiting does not help, such as for a deny-listed caller or a
    /// cost that exceeds a limit.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: user, bucket: '100/second, burst 1'}]").unwrap();
    /// let call = Call::new("GET", "/").user("ann");
    /// for _ in 0..3 {
    ///     assert!(limiter.until_ready(&call).await.is_allowed());
    /// }
    /// # });
    /// ```
    pub async fn until_ready<I: Input + Sync>(&self, input: &I) -> Decision<'_> {
        self.decide_until(input, None).await
    }

    /// Waits as [`until_ready`](Self::until_ready) does, for at most `max_wait`. Refuses as soon as it
    /// is known that units come back later.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Call, Limiter};
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: [{by: user, bucket: 1/minute}]").unwrap();
    /// let call = Call::new("GET", "/").user("ann");
    /// assert!(limiter.wait(&call, Duration::from_secs(1)).await.is_allowed());
    /// let refused = limiter.wait(&call, Duration::from_secs(1)).await;      // does not wait
    /// assert!(refused.retry_after() > Some(Duration::from_secs(1)));
    /// # });
    /// ```
    pub async fn wait<I: Input + Sync>(&self, input: &I, max_wait: Duration) -> Decision<'_> {
        self.decide_until(input, Some(max_wait)).await
    }

    /// Waits as [`until_ready`](Self::until_ready) does, and returns a permit that releases the slots
    /// when it is dropped. The error is the decision that refused.
    pub async fn acquire_when_ready<I>(&self, input: &I) -> Result<Permit<S>, Box<Decision<'_>>>
    where
        I: Input + Sync,
    {
        self.permit(self.until_ready(input).await)
    }

    /// Waits as [`acquire_when_ready`](Self::acquire_when_ready) does, for at most `max_wait`.
    pub async fn acquire_within<I>(
        &self,
        input: &I,
        max_wait: Duration,
    ) -> Result<Permit<S>, Box<Decision<'_>>>
    where
        I: Input + Sync,
    {
        self.permit(self.wait(input, max_wait).await)
    }

    async fn decide_until<I: Input + Sync>(&self, input: &I, max_wait: Option<Duration>) -> Decision<'_> {
        let deadline = max_wait.map(|wait| self.outage.now() + wait.into());
        let mut steps = Steps::Two;
        loop {
            let sleep = {
                let hold = |_| Some(self.hold_until(deadline));
                let mut decision = match self.decide_in_line(input, steps, hold).await {
                    Ok(decision) => decision,
                    Err(never) => match never {},
                };
                match self.sleep_after(&decision, deadline) {
                    Some(sleep) => sleep,
                    None if steps == Steps::Two && self.takes_slots_at_start(&decision) => {
                        // On the heap, so that requests without a second step do not reserve its memory.
                        match Box::pin(self.start_when_ready(input, decision, deadline)).await {
                            Ok(decision) => return decision,
                            Err(Retry::After(sleep)) => sleep,
                            Err(Retry::InOneStep) => {
                                steps = Steps::One;
                                Duration::ZERO
                            }
                        }
                    }
                    None => {
                        self.wait_in_queue(&mut decision, deadline).await;
                        return decision;
                    }
                }
            };
            self.sleep(sleep).await;
        }
    }

    /// Sleeps until the deadline, if there is one.
    pub(super) async fn hold_until(&self, deadline: Option<Timestamp>) -> Result<HoldEnd, Infallible> {
        match self.time_left(deadline) {
            Some(left) => self.sleep(left).await,
            None => std::future::pending().await,
        }
        Ok(HoldEnd::TimeOver)
    }

    /// Returns the time until the deadline, if there is one.
    pub(super) fn time_left(&self, deadline: Option<Timestamp>) -> Option<Duration> {
        deadline.map(|deadline| deadline.since(self.outage.now()).into())
    }

    /// Waits until an admitted request may start. Refuses it, and releases its place, if that is
    /// after the deadline.
    async fn wait_in_queue(&self, decision: &mut Decision<'_>, deadline: Option<Timestamp>) {
        let Some(place) = self.queue_place(decision) else { return };
        if let Some(left) = self.time_left(deadline).filter(|left| place.wait_time() > *left) {
            drop(place);
            decision.refuse_wait(left);
            return;
        }
        self.sleep(place.wait_time()).await;
        // The decision accounts for the slots.
        place.start().forget();
    }

    pub(super) fn sleep(&self, time: Duration) -> SleepFuture {
        match &self.sleeper {
            Some(sleeper) => sleeper.sleep(time),
            None => Sleeper::default().sleep(time),
        }
    }

    /// Returns the time to sleep before the next attempt, or `None` if the decision is final.
    pub(super) fn sleep_after(
        &self,
        decision: &Decision<'_>,
        deadline: Option<Timestamp>,
    ) -> Option<Duration> {
        let wait = decision.advised_wait()?;
        let Some(deadline) = deadline else { return Some(wait) };
        let left = Duration::from(deadline.since(self.outage.now()));
        // A slot may become free before its lease ends; units come back at a known time.
        let is_too_late = decision.limits().any(|it| {
            let is_slot = matches!(it.rule().quota, Quota::Concurrency(_));
            it.is_binding()
                && !it.is_admitted()
                && !is_slot
                && it.retry_after().is_none_or(|wait| wait > left)
        });
        (!left.is_zero() && !is_too_late).then(|| wait.min(left))
    }
}
