//! Atomic requests across the partitions of a cluster, and for callers that may cancel.
//!
//! A script cannot access several slots, so a request whose keys are in several partitions is sent
//! to all of them in parallel. Each part is atomic by itself. If one part refuses or fails, the
//! reservations of the other parts are undone. The same applies to a request that uses one state
//! with different quotas, which a single call cannot do.
//!
//! The reservation itself is in `tollgate_store::parts`.
//!
//! The request runs in its own task. If the caller cancels, all reservations are undone. This
//! matters most for slots, which only their owner could release, and for places in a queue, which
//! would stay taken until their turn.

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_core::Outcome;
use tollgate_store::parts::{Part, PartReply, Parts, PlaceReply, Places, Reserved, Undo};
use tollgate_store::{Answer, Check, StoreError};

use crate::batch::clash;
use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::store::ended;
use crate::waiters::ReplyReceiver;

/// Sends a request to all partitions, and charges all of them or none.
pub(crate) async fn reserve(
    dispatcher: &Arc<Dispatcher>,
    checks: &[Check<'_>],
    queue_of: impl Fn(&[u8]) -> usize,
) -> Result<Answer, StoreError> {
    let parts = Parts::split(checks, queue_of, clash);
    let ((reply, answer), (received, is_received)) = (oneshot::channel(), oneshot::channel());
    let queues = Queues(Arc::clone(dispatcher));
    tokio::spawn(Reservation { queues, parts }.run(reply, is_received));
    let answer = answer.await.map_err(|_| ended())?;
    // A caller that cancels after the reply was sent has not received it.
    let _gone = received.send(());
    answer.map_err(StoreError::from)
}

struct Reservation {
    queues: Queues,
    parts: Parts,
}

impl Reservation {
    async fn run(self, reply: oneshot::Sender<Result<Answer, Failure>>, is_received: oneshot::Receiver<()>) {
        let Reserved { answer, charged } = self.parts.reserve(&self.queues).await;
        let is_lost = reply.send(answer).is_err() || is_received.await.is_err();
        if let Some(charged) = charged.filter(|_| is_lost) {
            self.parts.undo(&self.queues, &charged).await;
        }
    }
}

/// The queues of a dispatcher, as the places of keys.
struct Queues(Arc<Dispatcher>);

impl Places for Queues {
    fn decide(&self, part: &Part) -> PlaceReply<PartReply> {
        flattened(self.0.decide(part.place, &part.checks()))
    }

    fn change(&self, undo: &Undo<'_>) -> PlaceReply<Outcome> {
        flattened(self.0.change(undo.place, (undo.rule, undo.key), (undo.adjustment, None)))
    }
}

fn flattened<T: Send + 'static>(reply: ReplyReceiver<T>) -> PlaceReply<T> {
    let ended = |_| Failure::failed("the runtime of the request has shut down");
    Box::pin(async move { reply.await.map_err(ended).flatten() })
}
