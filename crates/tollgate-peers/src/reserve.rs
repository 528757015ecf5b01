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
use tollgate_store::{Answer, Check, Clock};

use crate::calls::CallGroup;
use crate::failure::Failure;
use crate::node::{Node, moved};
use crate::peer::{Counts, INCOMPLETE, Peer, SentCall, only};
use crate::table::{Route, Table};
use crate::wire::{Claim, MAX_CALL_BYTES, MAX_CHECKS, Reply, encode_adjust, encode_claim, encode_decide};

/// Sends a request to all owners of its keys, and charges all of them or none.
pub(crate) async fn reserve<C: Clock>(
    node: &Arc<Node<C>>,
    table: Arc<Table>,
    checks: &[Check<'_>],
) -> Result<Answer, Failure> {
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
    answer
}

/// The place of this node; others are the indices of the table.
const HERE: usize = usize::MAX;

fn place(table: &Table, key: &[u8]) -> usize {
    match table.route(key) {
        Route::There(index) => *index,
        Route::Here(_) | Route::Unknown => HERE,
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
    fn decide(&self, part: &Part) -> PlaceReply<PartReply> {
        if let Some(peer) = self.peer(part.place) {
            Box::pin(decide_there(&self.node, Arc::clone(peer), &part.checks()))
        } else {
            let (node, table, part) = (Arc::clone(&self.node), Arc::clone(&self.table), part.clone());
            Box::pin(async move {
                let checks = part.checks();
                node.carry(&node.touched(&table, &checks)).await?;
                node.decide(&checks).map_err(moved)
            })
        }
    }

    fn change(&self, undo: &Undo<'_>) -> PlaceReply<Outcome> {
        let Undo { place, rule, key, adjustment, .. } = *undo;
        let Some(peer) = self.peer(place) else {
            return Box::pin(ready(self.node.adjust(rule, key, (adjustment, None)).map_err(moved)));
        };
        let adjustment = adjustment.shifted(peer.offset.ahead());
        let sent = peer.send(&encode_adjust(rule, key, (adjustment, None)));
        let (node, peer) = (Arc::clone(&self.node), Arc::clone(peer));
        Box::pin(async move { adjusted(&node, &peer, sent).await })
    }
}

/// Sends a batch to the owner of its keys, and returns the future of its reply.
pub(crate) fn decide_there<C: Clock>(
    node: &Arc<Node<C>>,
    peer: Arc<Peer>,
    checks: &[Check<'_>],
) -> impl Future<Output = Result<PartReply, Failure>> + Send + use<C> {
    let node = Arc::clone(node);
    let (count, mut calls) = (checks.len(), CallGroup::default());
    let sent = add_batch(&mut calls, checks).then(|| peer.send_all(calls));
    async move {
        let Some(sent) = sent else { return Err(Failure::refused("the batch is too large for a peer")) };
        match decided(&peer, only(peer.received_all(sent).await)?, count) {
            Ok(decided) => Ok(decided),
            Err(reply) => Err(not_held(&node, &peer, reply).await),
        }
    }
}

/// Adds the call for a batch, unless it is too large. Returns whether it was added.
pub(crate) fn add_batch(calls: &mut CallGroup, checks: &[Check<'_>]) -> bool {
    checks.len() <= MAX_CHECKS && calls.push(MAX_CALL_BYTES, |out| encode_decide(checks, out))
}

/// Returns the answer to a batch with this number of checks, or the reply if it is none.
#[allow(clippy::result_large_err, reason = "another reply is no error, and is read on at once")]
pub(crate) fn decided(peer: &Peer, reply: Reply, count: usize) -> Result<PartReply, Reply> {
    match reply {
        Reply::Decided(mut answer, renewed) if answer.outcomes.len() == count => {
            answer.at = peer.to_local(answer.at);
            Ok(PartReply { answer, renewed })
        }
        reply => Err(reply),
    }
}

/// Returns the failure for a reply without an answer, and learns of the holder that it names.
///
/// The new holder of a partition may not know of the grant yet, if a request overtakes its reply. Then
/// this node tells it, so that the request is decided there and not as in an outage.
pub(crate) async fn not_held<C: Clock>(node: &Node<C>, peer: &Peer, reply: Reply) -> Failure {
    let Reply::NotHolder(partition, holding) = reply else {
        return Failure::failed(INCOMPLETE);
    };
    Counts::add(&node.dial.counts.not_holder);
    if node.learn(&[(partition, Arc::clone(&holding))]) {
        return moved(partition.into());
    }
    let known = Arc::clone(&node.ownership().known[usize::from(partition)].holding);
    if !known.is_newer_than(&holding) {
        return Failure::refused("the holder of the partition is not known yet, or lists of peers differ");
    }
    if known.holder.as_ref().is_some_and(|holder| holder.address == peer.address) {
        let news = Claim { holdings: vec![(partition, known)], ..Claim::default() };
        match peer.received(peer.send(&encode_claim(&news))).await {
            Ok(Reply::Holdings(holdings)) => drop(node.learn(&holdings)),
            Ok(_) => return Failure::failed(INCOMPLETE),
            Err(failure) => return failure,
        }
    }
    moved(partition.into())
}

/// Waits for the outcome of an adjustment. One without an answer in time may have been applied.
pub(crate) async fn adjusted<C: Clock>(
    node: &Node<C>,
    peer: &Peer,
    sent: SentCall,
) -> Result<Outcome, Failure> {
    match peer.received(sent).await {
        Ok(Reply::Adjusted(outcome, _)) => Ok(outcome),
        Ok(reply) => Err(not_held(node, peer, reply).await),
        Err(Failure::TimedOut(_)) => Err(Failure::failed("no answer in time")),
        Err(failure) => Err(failure),
    }
}
