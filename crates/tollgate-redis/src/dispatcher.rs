//! Passes requests through the stages of a call.
//!
//! ```text
//! decide, change ─► queue ─► batch ─► transport ─► reply ─► apply ─► the tasks that wait
//! ```
//!
//! In: requests of one thread. Out: the channel on which the caller waits for the reply.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;
use tollgate_core::{Adjustment, Outcome, Rule};
use tollgate_store::{AdjustmentId, Check};

use crate::apply::apply;
use crate::batch::Request;
use crate::failure::Failure;
use crate::queue::{QueuedBatch, RequestQueue, SenderTask};
use crate::router::Router;
use crate::shared::Shared;
use crate::transport::{CallOutcome, LateCall, Transport};
use crate::undo::undo_call;
use crate::waiters::{DecisionReply, ReplyReceiver};

/// The maximum number of attempts to undo a late call, and the delay between them.
const MAX_UNDO_ATTEMPTS: usize = 20;
const UNDO_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The queues of one thread, and its connections to Redis.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    queues: Box<[Arc<RequestQueue>]>,
    transport: Arc<Transport>,
}

impl Dispatcher {
    pub(crate) fn new(shared: &Arc<Shared>, queues: usize) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            queues: (0..queues).map(|_| Arc::default()).collect(),
            transport: Transport::new(shared),
        })
    }

    pub(crate) fn router(&self) -> &Router {
        self.transport.router()
    }

    /// The queue of a partition; without a cluster all partitions share one queue.
    pub(crate) fn queue_of(&self, partition: usize) -> usize {
        partition.min(self.queues.len() - 1)
    }

    /// Queues a decision.
    pub(crate) fn decide(
        self: &Arc<Self>,
        queue: usize,
        checks: &[Check<'_>],
    ) -> ReplyReceiver<DecisionReply> {
        let (waiter, reply) = oneshot::channel();
        self.enqueue(queue, Request::Decision { checks, waiter });
        reply
    }

    /// Queues a change; with an id, it is applied once.
    pub(crate) fn change(
        self: &Arc<Self>,
        queue: usize,
        (rule, key): (&Rule, &[u8]),
        (adjustment, id): (Adjustment, Option<AdjustmentId>),
    ) -> ReplyReceiver<Outcome> {
        let (waiter, reply) = oneshot::channel();
        self.enqueue(queue, Request::Change { rule, key, adjustment, id, waiter });
        reply
    }

    fn enqueue(self: &Arc<Self>, queue: usize, request: Request<'_>) {
        if let Some(sender) = self.queues[queue].push(&self.shared, request) {
            tokio::spawn(Arc::clone(self).send_batches(queue, sender));
        }
    }

    /// Sends batches until the queue is empty.
    async fn send_batches(self: Arc<Self>, queue: usize, mut sender: SenderTask) {
        while let Some(QueuedBatch { batch, waiters, waiting_since }) = sender.next_batch() {
            match self.transport.call(queue, batch, waiting_since).await {
                CallOutcome::Reply(batch, reply) => {
                    sender.begin_delivery().await;
                    apply(&self.shared, &batch, waiters, reply);
                }
                CallOutcome::Failed(failure) => waiters.fail(&failure),
                CallOutcome::Late(call) => {
                    waiters.fail_late(self.shared.settings.deadline);
                    tokio::spawn(Arc::clone(&self).undo_late(queue, call));
                }
            }
            // Lets the receivers of the replies send new requests for the next batch.
            yield_now().await;
        }
    }

    /// Undoes a call whose waiters were notified of a timeout, if it executed after all.
    async fn undo_late(self: Arc<Self>, queue: usize, call: LateCall) {
        let (batch, Ok(reply)) = call.await else { return };
        for (key, adjustment) in undo_call(&batch, reply) {
            // The connection may have been closed in the meantime; unsent changes are tried again.
            for _ in 0..MAX_UNDO_ATTEMPTS {
                let reply = self.change(queue, (&batch.rule(key), batch.bare_key(key)), (adjustment, None));
                if !matches!(reply.await, Ok(Err(Failure::Refused(_) | Failure::Migrating(_)))) {
                    break;
                }
                sleep(UNDO_RETRY_DELAY).await;
            }
            // If every attempt fails, the charge decays with time.
        }
    }
}
