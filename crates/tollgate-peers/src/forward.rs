//! Many requests at the same time: those for one holder are sent to it together.

use std::sync::Arc;

use tollgate_store::{Answer, Check, Clock, Store as _, StoreError, join_all};

use crate::calls::CallGroup;
use crate::failure::{Failure, outage_of_keys};
use crate::peer::{INCOMPLETE, Peer};
use crate::reserve::{add_batch, decided, not_held};
use crate::store::PeerStore;
use crate::table::{Route, Table};
use crate::wire::Reply;

/// The batches for one holder.
struct Group {
    peer: Arc<Peer>,
    /// The indices of the batches, in the order of the calls.
    batches: Vec<usize>,
    calls: CallGroup,
}

/// Decides batches, each on its own.
#[allow(clippy::result_large_err, reason = "another reply is no error, and is read on at once")]
pub(crate) async fn forward_all<C: Clock>(
    store: &PeerStore<C>,
    batches: &[&[Check<'_>]],
) -> Vec<Result<Answer, StoreError>> {
    let (groups, single) = grouped(&store.0.table.load(), batches);
    // All groups are sent before the first reply arrives.
    let sent: Vec<_> =
        groups.into_iter().map(|it| (it.peer.send_all(it.calls), it.peer, it.batches)).collect();
    let received = join_all(sent.into_iter().map(|(sent, peer, indices)| async move {
        let replies = peer.received_all(sent).await;
        (peer, indices, replies)
    }));
    let alone = join_all(single.iter().map(|&index| store.decide(batches[index])));
    let (received, alone) = tokio::join!(received, alone);
    let mut answers: Vec<Option<Result<Answer, StoreError>>> = batches.iter().map(|_| None).collect();
    for (index, answer) in single.into_iter().zip(alone) {
        answers[index] = Some(answer);
    }
    let mut moved = Vec::new();
    for (peer, indices, replies) in received {
        for (index, reply) in indices.into_iter().zip(replies) {
            match reply.map(|reply| decided(&peer, reply, batches[index].len())) {
                Ok(Ok(part)) => answers[index] = Some(Ok(part.answer)),
                Ok(Err(reply)) => moved.push((index, Arc::clone(&peer), reply)),
                Err(failure) => answers[index] = Some(Err(outage_of_keys(failure))),
            }
        }
    }
    let again = moved.into_iter().map(|(index, peer, reply)| async move {
        (index, decide_again(store, batches[index], &peer, reply).await)
    });
    for (index, answer) in join_all(again).await {
        answers[index] = Some(answer);
    }
    let missing = || Err(outage_of_keys(Failure::failed(INCOMPLETE)));
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// Groups the batches whose keys all have one other node as their holder. The others are returned as indices.
fn grouped(table: &Table, batches: &[&[Check<'_>]]) -> (Vec<Group>, Vec<usize>) {
    let (mut groups, mut single) = (Vec::<Group>::new(), Vec::new());
    for (index, checks) in batches.iter().enumerate() {
        let Some(peer) = table.sole_peer(checks).filter(|_| !checks.iter().any(Check::takes_place)) else {
            single.push(index);
            continue;
        };
        let at = groups.iter().position(|it| Arc::ptr_eq(&it.peer, peer)).unwrap_or_else(|| {
            groups.push(Group { peer: Arc::clone(peer), batches: Vec::new(), calls: CallGroup::default() });
            groups.len() - 1
        });
        let group = &mut groups[at];
        if add_batch(&mut group.calls, checks) {
            group.batches.push(index);
        } else {
            single.push(index);
        }
    }
    (groups, single)
}

/// Decides a batch whose partition was not at the node that it was sent to.
async fn decide_again<C: Clock>(
    store: &PeerStore<C>,
    checks: &[Check<'_>],
    peer: &Peer,
    reply: Reply,
) -> Result<Answer, StoreError> {
    match not_held(&store.0, peer, reply).await {
        Failure::Migrating(_) => store.decide(checks).await,
        failure => Err(outage_of_keys(failure)),
    }
}

impl Table {
    /// Returns the node that holds all keys of a batch, if it is one other node.
    fn sole_peer(&self, checks: &[Check<'_>]) -> Option<&Arc<Peer>> {
        let place = |check: &Check<'_>| match self.route(check.key) {
            Route::There(index) => Some(*index),
            Route::Here(_) | Route::Unknown => None,
        };
        let (first, rest) = checks.split_first()?;
        let index = place(first)?;
        rest.iter().all(|check| place(check) == Some(index)).then(|| &self.peers[index])
    }
}
