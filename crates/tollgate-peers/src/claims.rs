//! Exchanges holdings with the other nodes, and claims the partitions that the list gives this node.
//!
//! Each round, the node exchanges its known holdings with every member. A partition that
//! this node should hold is claimed from its holder. A round follows each change, and one each second.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tollgate_store::Clock;

use crate::failure::Failure;
use crate::node::{Node, holdings};
use crate::ownership::Process;
use crate::settings::Address;
use crate::store::PeerStore;
use crate::wire::{Claim, Reply, encode_claim};

/// The interval between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time of a round: connecting to a node that does not answer.
const ROUND_TIMEOUT: Duration = Duration::from_millis(1_200);
/// The minimum pause between two rounds.
const MIN_PAUSE: Duration = Duration::from_millis(5);

impl<C: Clock> Node<C> {
    /// Exchanges holdings with all other nodes once. Returns the failures.
    pub(crate) async fn exchange(&self) -> Vec<Failure> {
        let (me, members, known, wanted, former) = {
            let mut ownership = self.ownership();
            let former = std::mem::take(&mut ownership.former);
            #[allow(clippy::cast_possible_truncation, reason = "partitions are numbered 0 to 255")]
            let wanted: Vec<(u8, Arc<Process>)> =
                ownership.wanted().map(|(at, holder)| (at as u8, Arc::clone(holder))).collect();
            (ownership.me.clone(), ownership.members.clone(), holdings(&ownership), wanted, former)
        };
        let holders = wanted.iter().map(|(_, holder)| holder.address.clone());
        let mut addresses: HashSet<Address> = members.iter().cloned().chain(holders).chain(former).collect();
        if let Some(me) = &me {
            addresses.remove(&me.address);
        }
        let sent: Vec<_> = addresses
            .into_iter()
            .map(|address| {
                let is_there = |(_, holder): &&(u8, Arc<Process>)| holder.address == address;
                let wanted = wanted.iter().filter(is_there).map(|(at, _)| *at).collect();
                let claim = Claim { by: me.clone(), wanted, holdings: known.clone() };
                let peer = self.peer(&address);
                (peer.send(&encode_claim(&claim)), peer)
            })
            .collect();
        let mut failures = Vec::new();
        for (sent, peer) in sent {
            match sent.within(ROUND_TIMEOUT.max(self.settings.deadline)).await {
                Ok(Reply::Holdings(news)) => {
                    self.losses.answered(&peer.address);
                    self.learn(&news);
                }
                Ok(_) => failures.push(Failure::failed("the reply of a peer is incomplete")),
                Err(failure) => {
                    if self.losses.is_lost(&peer.address) && !members.contains(&peer.address) {
                        self.take_over(&peer.address);
                    }
                    failures.push(failure);
                }
            }
        }
        let mut ownership = self.ownership();
        // The members of a list that changed meanwhile have not been queried yet.
        if ownership.former.is_empty() && ownership.take_unknown(self.memory.now()) {
            self.publish(&ownership);
        }
        self.has_exchanged_holdings.store(true, Ordering::Relaxed);
        failures
    }

    /// Takes the wanted partitions of a node that has left the list and does not answer.
    fn take_over(&self, address: &Address) {
        let mut ownership = self.ownership();
        let lost =
            |(_, holder): (usize, &Arc<Process>)| (holder.address == *address).then(|| Arc::clone(holder));
        let lost: HashSet<_> = ownership.wanted().filter_map(lost).collect();
        let mut is_changed = false;
        for process in &lost {
            is_changed |= ownership.take_over(process, self.memory.now());
        }
        if is_changed {
            tracing::warn!(peer = %address, "a peer that has left the list does not answer: its keys begin with the share of an outage");
            self.publish(&ownership);
        }
    }
}

impl<C: Clock> PeerStore<C> {
    /// Exchanges holdings with the other nodes, and claims partitions, until dropped. The keys of this node
    /// are decided only while this runs.
    pub async fn tend(&self) {
        loop {
            self.0.exchange().await;
            tokio::time::sleep(MIN_PAUSE).await;
            let _interval = timeout(ROUND_INTERVAL, self.0.changed.notified()).await;
        }
    }
}
