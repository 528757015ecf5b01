//! Answers to proxies that are held until the request of the client may start.
//!
//! A proxy forwards the request when it is answered, so an answer that came early would exceed the
//! rate of a limit with a queue. If the client leaves, the proxy closes its connection, and the
//! future of the answer is dropped: the place is released.

use std::net::IpAddr;

use http::request::Parts;
use tollgate::{DecisionId, HeldDecision, HoldEnd, QueuePlace, Store, Timestamp};
use tollgate_http::{HeldRequest, ShuttingDown};

use crate::api::Inner;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::route::AuthPath;

/// An answer to a proxy, and the wait before it is sent.
pub(crate) struct AuthAnswer<S: Store> {
    pub(super) reply: Reply,
    pub(super) queued: Option<Queued<S>>,
}

/// The wait of an answer.
pub(super) struct Queued<S: Store> {
    pub(super) id: DecisionId,
    /// Released when it is dropped.
    pub(super) place: QueuePlace<S>,
    pub(super) held: HeldRequest,
    /// The decision, if a more important request may take the place.
    pub(super) displaceable: Option<Box<HeldDecision<S>>>,
}

impl<S: Store> From<Reply> for AuthAnswer<S> {
    fn from(reply: Reply) -> Self {
        Self { reply, queued: None }
    }
}

impl<S: Store> AuthAnswer<S> {
    /// Returns the answer when it may be sent. `call` has the arguments of [`Inner::auth`].
    pub(crate) async fn wait(
        self,
        inner: &Inner<S>,
        call: (Option<AuthPath<'_>>, &Parts, IpAddr),
    ) -> Result<Reply, Problem> {
        match self.queued {
            None => Ok(self.reply),
            // Boxed, because few answers are held.
            Some(queued) => Box::pin(queued.wait(inner, call, self.reply)).await,
        }
    }
}

impl<S: Store> Queued<S> {
    async fn wait(
        self,
        inner: &Inner<S>,
        call: (Option<AuthPath<'_>>, &Parts, IpAddr),
        mut reply: Reply,
    ) -> Result<Reply, Problem> {
        let Self { id, place, held, displaceable } = self;
        let refused = match held.wait().await {
            Ok(HoldEnd::TimeOver) => None,
            // No request displaces one of the most important class.
            Ok(HoldEnd::Displaced) => Some(displaceable.ok_or(ShuttingDown)),
            Err(shutting_down) => Some(Err(shutting_down)),
        };
        let Some(refused) = refused else {
            // A receipt is stored only now: a released place cannot be settled.
            if let Some(receipt) = place.start().receipt() {
                // The request has started: it can no longer leave the queue.
                inner.receipts.keep(id, receipt.into(), Timestamp::EPOCH);
            }
            return Ok(reply);
        };
        let refusal = match refused {
            Ok(decision) => Inner::displaced(&decision, call),
            Err(shutting_down) => {
                let answer = shutting_down.response().map(Into::into);
                let headers = std::mem::replace(&mut reply, answer).into_parts().0.headers;
                reply.headers_mut().extend(headers);
                Ok(reply)
            }
        };
        // If the store fails here, the limiter refunds when the store is back.
        let _outage = place.leave().await;
        refusal
    }
}
