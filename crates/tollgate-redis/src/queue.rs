//! A queue of requests that wait for the next call.
//!
//! In: requests. Out: batches, each to one of the sender tasks of the queue.
//!
//! There are no timers and no batch size. A request that arrives while no call is in flight is sent
//! immediately. A request that arrives while [`MAX_CALLS_IN_FLIGHT`] calls are in flight joins the
//! next batch. An idle store therefore adds nothing to a round trip, and a busy store makes fewer
//! and larger calls. Waiting requests are distributed over the calls. Replies of the calls are
//! delivered one after the other, and the next batch of the first call is sent before the reply of
//! the second is delivered. Otherwise all replies would be delivered while Redis is idle, and all
//! requests sent while it is busy.
//!
//! All requests of a queue can share a call: there is one queue for a server, and one for each
//! partition of a cluster, because a script may touch only one slot.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::yield_now;
use tollgate_core::Timestamp;
use tollgate_store::Clock as _;

use crate::batch::{Batch, BatchBuilder, Request};
use crate::shared::Shared;
use crate::waiters::Waiters;

/// The maximum number of concurrent calls of a queue: while Redis executes one, the next is on its
/// way.
const MAX_CALLS_IN_FLIGHT: usize = 2;

/// The minimum number of requests for which a second call is worthwhile.
const MIN_REQUESTS_PER_CALL: usize = 32;

/// The maximum number of scheduler yields while another call delivers its replies.
const MAX_YIELDS: usize = 16;

/// A queue of requests that can share a call.
#[derive(Default)]
pub(crate) struct RequestQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    /// Batches, each with the time of its first request.
    waiting: VecDeque<(BatchBuilder, Timestamp)>,
    /// The number of sender tasks.
    senders: usize,
    /// The number of calls in flight, and the number of requests in them.
    calls_in_flight: usize,
    requests_in_flight: usize,
    /// The recent number of concurrent requests.
    concurrency: usize,
    /// Whether the replies of a call are being delivered; their receivers may send new requests.
    is_delivering: bool,
}

/// A batch that left the queue.
pub(crate) struct QueuedBatch {
    pub(crate) batch: Batch,
    pub(crate) waiters: Waiters,
    /// When the first request of the batch arrived.
    pub(crate) waiting_since: Timestamp,
}

impl RequestQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Batches that a panicking thread left are sent like any other.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns a sender if another one may run: the caller has to start it.
    #[must_use]
    pub(crate) fn push(self: &Arc<Self>, shared: &Shared, request: Request<'_>) -> Option<SenderTask> {
        let mut state = self.state();
        if state.needs_new_batch(&request) {
            state.waiting.push_back((BatchBuilder::default(), shared.clock.now()));
        }
        if let Some((batch, _)) = state.waiting.back_mut() {
            batch.add(&shared.settings.prefix, request);
        }
        if state.senders >= MAX_CALLS_IN_FLIGHT {
            return None;
        }
        state.senders += 1;
        drop(state);
        Some(SenderTask { queue: Arc::clone(self), call: CallStatus::default(), has_ended: false })
    }
}

impl QueueState {
    /// Whether the last batch cannot take the request, or has its share of the waiting requests
    /// while another call can be made.
    fn needs_new_batch(&self, request: &Request<'_>) -> bool {
        let Some((batch, _)) = self.waiting.back() else { return true };
        let share = self.concurrency.div_ceil(MAX_CALLS_IN_FLIGHT).max(MIN_REQUESTS_PER_CALL);
        let may_call = self.calls_in_flight + self.waiting.len() < MAX_CALLS_IN_FLIGHT;
        batch.is_full() || (batch.requests() >= share && may_call) || batch.clashes(request)
    }

    fn take(&mut self) -> Option<(BatchBuilder, Timestamp)> {
        let waiting: usize = self.waiting.iter().map(|(batch, _)| batch.requests()).sum();
        // Rises immediately and decays slowly.
        let decayed = self.concurrency - self.concurrency.div_ceil(8);
        self.concurrency = (self.requests_in_flight + waiting).max(decayed);
        let taken = self.waiting.pop_front()?;
        self.calls_in_flight += 1;
        self.requests_in_flight += taken.0.requests();
        Some(taken)
    }

    /// Records the end of a call.
    fn end(&mut self, call: CallStatus) {
        self.calls_in_flight -= usize::from(call.requests > 0);
        self.requests_in_flight -= call.requests;
        self.is_delivering &= !call.is_delivering;
    }
}

/// The place of a sender in its queue. A sender has at most one call in flight.
///
/// If it is dropped, for example because the runtime shuts down before the task of the sender ran,
/// another sender can take its place.
pub(crate) struct SenderTask {
    queue: Arc<RequestQueue>,
    call: CallStatus,
    has_ended: bool,
}

/// The call of a sender.
#[derive(Clone, Copy, Default)]
struct CallStatus {
    /// The number of requests in the call; zero if there is no call.
    requests: usize,
    /// Whether its replies are being delivered.
    is_delivering: bool,
}

impl SenderTask {
    /// Takes the next batch. `None`: the queue is empty and the sender has ended.
    pub(crate) fn next_batch(&mut self) -> Option<QueuedBatch> {
        let mut state = self.queue.state();
        state.end(std::mem::take(&mut self.call));
        let Some((builder, waiting_since)) = state.take() else {
            // Under the same lock: a request that arrives now must see that no sender is active.
            state.senders -= 1;
            self.has_ended = true;
            return None;
        };
        drop(state);
        let (batch, waiters) = builder.finish();
        self.call.requests = batch.requests;
        Some(QueuedBatch { batch, waiters, waiting_since })
    }

    /// Waits until no other call of this queue is delivering replies.
    pub(crate) async fn begin_delivery(&mut self) {
        let mut has_waited = false;
        for _ in 0..MAX_YIELDS {
            if self.try_begin_delivery() {
                break;
            }
            has_waited = true;
            yield_now().await;
        }
        if has_waited {
            // The batch that the other call has queued since is sent first.
            yield_now().await;
        }
    }

    fn try_begin_delivery(&mut self) -> bool {
        let mut state = self.queue.state();
        self.call.is_delivering = !state.is_delivering;
        state.is_delivering = true;
        self.call.is_delivering
    }
}

impl Drop for SenderTask {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = self.queue.state();
            state.end(std::mem::take(&mut self.call));
            state.senders -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Bucket, Rate, Rule};
    use tollgate_store::Check;

    use super::*;
    use crate::script::Scripts;
    use crate::settings::RedisSettings;

    struct Queue {
        shared: Shared,
        queue: Arc<RequestQueue>,
    }

    impl Queue {
        fn new() -> Self {
            let settings = RedisSettings::parse(&["redis://127.0.0.1:1"]).unwrap();
            Self { shared: Shared::new(settings, Scripts::on_server_clock()), queue: Arc::default() }
        }

        fn push(&self) -> Option<SenderTask> {
            let rule = Rule::new("rule", Bucket::new(Rate::per_minute(1)).unwrap());
            let (waiter, _) = tokio::sync::oneshot::channel();
            let checks = &[Check::new(&rule, b"key", 1)];
            self.queue.push(&self.shared, Request::Decision { checks, waiter })
        }
    }

    #[test]
    fn requests_that_arrive_during_calls_share_the_next_call() {
        let queue = Queue::new();
        let mut senders: Vec<_> = (0..MAX_CALLS_IN_FLIGHT).map(|_| queue.push().unwrap()).collect();
        assert!(queue.push().is_none(), "each sender has a call, or is about to");
        let first = senders[0].next_batch().unwrap();
        assert_eq!((first.batch.requests, first.batch.items.len()), (3, 1));
        assert!(queue.push().is_none() && queue.push().is_none());
        assert_eq!(senders[1].next_batch().unwrap().batch.requests, 2);
        assert!(senders[0].next_batch().is_none(), "it has ended");
        assert!(queue.push().is_some(), "another takes its place");
    }

    #[test]
    fn a_sender_that_is_dropped_before_it_ran_makes_room_for_another() {
        let queue = Queue::new();
        for _ in 0..2 * MAX_CALLS_IN_FLIGHT {
            drop(queue.push().unwrap());
        }
        let mut sender = queue.push().unwrap();
        let left_behind = sender.next_batch().unwrap();
        assert_eq!(left_behind.batch.requests, 2 * MAX_CALLS_IN_FLIGHT + 1);
        drop(sender);
        let state = queue.queue.state();
        assert_eq!((state.senders, state.calls_in_flight, state.requests_in_flight), (0, 0, 0));
    }
}
