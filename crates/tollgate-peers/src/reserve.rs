//! Atomic requests whose keys have several owners, and for callers that may cancel.
//!
//! The request runs in its own task. If the caller cancels, all reservations are undone. This
//! matters most for slots, which only their owner could release, and for places in a queue, which
//! would stay taken until their turn. The reservation itself is in `tollgate_store::parts`.

use std::future::ready;
use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_core::Outcome;
use tollgate_store::parts::{Part, PartReply, Parts, PlaceReply, Places, Reserved, Undo};
use tollgate_store::{Answer, Check, Clock, StoreError};

use crate::failure::Failure;
use crate::node::Node;
use crate::peer::Peer;
use crate::table::{Owner, Table};
use crate::wire::{MAX_CALL_BYTES, MAX_CHECKS, Reply, encode_adjust, encode_decide};

/// Sends a request to all owners of its keys, and charges all of them or none.
pub(crate) async fn reserve<C: Clock>(
    node: &Arc<Node<C>>,
    table: Arc<Table>,
    checks: &[Check<'_>],
) -> Result<Answer, StoreError> {
    let parts = Parts::split(checks, |key| place(&table, key), |_, _| false);
    let owners = Owners { node: Arc::clone(node), table };
    let ((reply, answer), (received, is_received)) = (oneshot::channel(), oneshot::channel());
    tokio::spawn(async move {
        let Reserved { answer, charged } = parts.reserve(&owners).await;
        let is_lost = reply.send(answer).is_err() || is_received.await.is_err();
        if let Some(charged) = charged.filter(|_| is_lost) {
            parts.undo(&owners, &charged).await;
        }
    });
    let ended = |_| Failure::failed("the runtime of the request has shut down");
    let answer = answer.await.map_err(ended)?;
    // A caller that cancels after the reply was sent has not received it.
    let _gone = received.send(());
    answer.map_err(StoreError::from)
}

/// The place of this node; others are the indices of the table.
const HERE: usize = usize::MAX;

fn place(table: &Table, key: &[u8]) -> usize {
    match table.owner(key) {
        Owner::There(index) => index,
        Owner::Here | Owner::Unknown => HERE,
    }
}

/// The owners of keys, as places.
struct Owners<C> {
    node: Arc<Node<C>>,
    table: Arc<Table>,
}

impl<C: Clock> Owners<C> {
    fn peer(&self, place: usize) -> Option<&Arc<Peer>> {
        self.table.peers.get(place)
    }
}

impl<C: Clock> Places for Owners<C> {
    type Error = Failure;

    fn decide(&self, part: &Part) -> PlaceReply<PartReply, Failure> {
        match self.peer(part.place) {
            None => Box::pin(ready(Ok(self.node.decide(&part.checks())))),
            Some(peer) => Box::pin(decide_there(Arc::clone(peer), &part.checks())),
        }
    }

    fn change(&self, undo: &Undo<'_>) -> PlaceReply<Outcome, Failure> {
        let Undo { place, rule, key, adjustment, .. } = *undo;
        let Some(peer) = self.peer(place) else {
            return Box::pin(ready(Ok(self.node.adjust(rule, key, (adjustment, None)))));
        };
        let adjustment = adjustment.shifted(peer.offset.ahead());
        let sent = peer.send(encode_adjust(rule, key, (adjustment, None)));
        let peer = Arc::clone(peer);
        Box::pin(async move { adjusted(peer.received(sent).await) })
    }

    fn or_worse(one: Failure, other: &Failure) -> Failure {
        one.or_worse(other)
    }

    fn in_doubt(failure: Failure) -> Failure {
        failure.in_doubt()
    }

    fn incomplete() -> Failure {
        Failure::failed("the reply of a peer is incomplete")
    }
}

/// Sends a batch to the owner of its keys, and returns the future of its reply.
pub(crate) fn decide_there(
    peer: Arc<Peer>,
    checks: &[Check<'_>],
) -> impl Future<Output = Result<PartReply, Failure>> + Send + use<> {
    let (count, payload) = (checks.len(), encode_decide(checks));
    let is_too_large = payload.len() > MAX_CALL_BYTES || count > MAX_CHECKS;
    let sent = (!is_too_large).then(|| peer.send(payload));
    async move {
        let Some(sent) = sent else { return Err(Failure::refused("the batch is too large for a peer")) };
        match peer.received(sent).await? {
            Reply::Decided(mut answer, renewed) if answer.outcomes.len() == count => {
                answer.at = peer.to_local(answer.at);
                Ok(PartReply { answer, renewed })
            }
            _ => Err(Failure::failed("the reply of a peer is incomplete")),
        }
    }
}

/// Returns the outcome of an adjustment. One without an answer in time may have been applied.
pub(crate) fn adjusted(reply: Result<Reply, Failure>) -> Result<Outcome, Failure> {
    match reply {
        Ok(Reply::Adjusted(outcome, _)) => Ok(outcome),
        Ok(_) => Err(Failure::failed("the reply of a peer is incomplete")),
        Err(Failure::TimedOut(_)) => Err(Failure::failed("no answer in time")),
        Err(failure) => Err(failure),
    }
}
