//! Answers to proxies that are held until the request of the client may start.
//!
//! A proxy forwards the request when it is answered, so an answer that came early would exceed the
//! rate of a limit with a queue. If the client leaves, the proxy closes its connection, and the
//! future of the answer is dropped: the place is given back.

use tollgate::{DecisionId, QueuePlace, Store, Timestamp};
use tollgate_http::HeldRequest;

use crate::api::Inner;
use crate::reply::Reply;

/// An answer to a proxy, and the wait before it is sent.
pub(crate) struct AuthAnswer<S: Store> {
    pub(super) reply: Reply,
    pub(super) queued: Option<Queued<S>>,
}

/// The wait of an answer.
pub(super) struct Queued<S: Store> {
    pub(super) id: DecisionId,
    /// Given back when it is dropped.
    pub(super) place: QueuePlace<S>,
    pub(super) held: HeldRequest,
}

impl<S: Store> From<Reply> for AuthAnswer<S> {
    fn from(reply: Reply) -> Self {
        Self { reply, queued: None }
    }
}

impl<S: Store> AuthAnswer<S> {
    /// Returns the answer when it may be sent.
    pub(crate) async fn wait(self, inner: &Inner<S>) -> Reply {
        match self.queued {
            None => self.reply,
            // Boxed, because few answers are held.
            Some(queued) => Box::pin(queued.wait(inner, self.reply)).await,
        }
    }
}

impl<S: Store> Queued<S> {
    async fn wait(self, inner: &Inner<S>, mut reply: Reply) -> Reply {
        let Self { id, place, held } = self;
        if let Err(shutting_down) = held.wait().await {
            // If the store fails here, the limiter refunds when the store is back.
            let _outage = place.leave().await;
            let answer = shutting_down.response().map(Into::into);
            let headers = std::mem::replace(&mut reply, answer).into_parts().0.headers;
            reply.headers_mut().extend(headers);
            return reply;
        }
        // A receipt is stored only now: a place that was given back cannot be settled.
        if let Some(receipt) = place.start().receipt() {
            // The request has started: it can no longer leave the queue.
            inner.receipts.keep(id, receipt.clone().with_id(id), Timestamp::EPOCH);
        }
        reply
    }
}
