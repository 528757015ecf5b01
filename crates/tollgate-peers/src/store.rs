//! The store: own keys are decided here, all others by their owners.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Rule, Timestamp};
use tollgate_store::{
    AdjustmentId, Answer, Check, Clock, MemoryStore, Outcomes, Store, StoreError, SystemClock,
};

use crate::node::Node;
use crate::peer::{Counts, Dial, Peer};
use crate::reserve::{adjusted, decide_there, reserve};
use crate::settings::{Address, PeerSettings};
use crate::table::{Owner, Table};
use crate::wire::{encode_adjust, encode_ping};

/// A store in the memory of several nodes, each of which owns a part of the keys.
///
/// Clones share their state. It must be used inside a Tokio runtime. It connects to another node at
/// the first request for one of its keys.
///
/// ```
/// # use tollgate_core::{Bucket, Rate, Rule};
/// # use tollgate_peers::{PeerSettings, PeerStore};
/// # use tollgate_store::{Check, MemoryStore, Store};
/// let mut settings = PeerSettings::parse(&["tollgate://10.0.0.1"])?;
/// settings.advertise = settings.members.first().cloned();
/// let store = PeerStore::new(settings, MemoryStore::new(10_000), None);
/// // This node is alone, and owns all keys.
/// let rule = Rule::new("api", Bucket::new(Rate::per_minute(1))?);
/// assert!(store.try_decide(&[Check::new(&rule, b"alice", 1)], &mut Default::default()).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PeerStore<C = SystemClock>(pub(crate) Arc<Node<C>>);

/// What happened between this node and the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCounters {
    /// Calls to other nodes.
    pub calls: u64,
    /// Calls without an answer.
    pub failures: u64,
    /// Calls that another node refused because its list of peers differs.
    pub not_owner: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Calls of other nodes that were answered.
    pub served: u64,
    /// Members of the list, including this node.
    pub members: usize,
    /// Members that cannot be reached.
    pub down: usize,
    /// Partitions that this node owns, of 256.
    pub owned: usize,
}

impl<C: Clock + Clone> PeerStore<C> {
    /// Creates a store that keeps its own keys in `memory`. `tls` is needed if the settings say so.
    ///
    /// A list is used as it is; a name has to be resolved first ([`refresh`](Self::refresh)).
    pub fn new(settings: PeerSettings, memory: MemoryStore<C>, tls: Option<Arc<ClientConfig>>) -> Self {
        let dial = Arc::new(Dial {
            password: settings.password.clone(),
            tls: tls.filter(|_| settings.tls).map(TlsConnector::from),
            server_name: settings.name().map(|name| name.host.clone()),
            deadline: settings.deadline,
            clock: Arc::new(memory.clock().clone()),
            counts: Counts::default(),
        });
        let store = Self(Arc::new(Node::new(settings, memory, dial)));
        let settings = &store.0.settings;
        if settings.name().is_none() {
            store.set_members(&settings.members, settings.advertise.as_ref());
        }
        store
    }
}

impl<C: Clock> PeerStore<C> {
    /// Replaces the list of members. `here` is the address of this node in the list; a node that is
    /// not in the list owns no keys.
    ///
    /// All nodes must have the same list. While they differ, a node refuses calls for keys that it does
    /// not own by its own list.
    pub fn set_members(&self, members: &[Address], here: Option<&Address>) {
        let before = self.0.table.load_full();
        let known = |address: &Address| before.peers.iter().find(|peer| peer.address == *address).cloned();
        let fresh = |address: &Address| Peer::new(address.clone(), &self.0.dial);
        let peers = members.iter().map(|it| known(it).unwrap_or_else(|| fresh(it))).collect();
        self.0.table.store(Arc::new(Table::new(peers, here)));
    }

    /// Returns the addresses of the members.
    pub fn members(&self) -> Vec<Address> {
        self.0.table.load().peers.iter().map(|peer| peer.address.clone()).collect()
    }

    /// Returns the address of this node, if it is a member.
    pub fn here(&self) -> Option<Address> {
        let table = self.0.table.load();
        table.here.map(|index| table.peers[index].address.clone())
    }

    /// Returns the address of the owner of a key, if there is one.
    pub fn owner(&self, key: &[u8]) -> Option<Address> {
        self.0.table.load().owner_address(tollgate_store::parts::partition(key)).cloned()
    }

    /// Answers the call of another node: the arguments of `TG.CALL`. The error is the text of an
    /// error reply.
    pub fn serve(&self, version: &[u8], payload: &[u8]) -> Result<Vec<u8>, String> {
        self.0.serve(version, payload)
    }

    /// Connects to all other nodes, to report problems at startup. The store works without this call.
    pub async fn connect(&self) -> Result<(), StoreError> {
        let table = self.0.table.load_full();
        if table.peers.is_empty() {
            return Err(unknown());
        }
        let others = || table.peers.iter().enumerate().filter(|(index, _)| Some(*index) != table.here);
        let sent: Vec<_> = others().map(|(_, peer)| (peer, peer.send(encode_ping()))).collect();
        let mut connected = Ok(());
        for (peer, sent) in sent {
            if let Err(failure) = peer.received(sent).await {
                connected = Err(failure.into());
            }
        }
        connected
    }

    /// Returns the settings of the store.
    pub fn settings(&self) -> &PeerSettings {
        &self.0.settings
    }

    /// Returns the store of the keys that this node owns.
    pub fn memory(&self) -> &MemoryStore<C> {
        &self.0.memory
    }

    /// Returns the counters of the store.
    pub fn counters(&self) -> PeerCounters {
        let (table, counts) = (self.0.table.load(), &self.0.dial.counts);
        PeerCounters {
            calls: counts.calls.load(Ordering::Relaxed),
            failures: counts.failures.load(Ordering::Relaxed),
            not_owner: counts.not_owner.load(Ordering::Relaxed),
            connections: counts.connections.load(Ordering::Relaxed),
            served: counts.served.load(Ordering::Relaxed),
            members: table.peers.len(),
            down: table.peers.iter().filter(|peer| peer.is_down.load(Ordering::Relaxed)).count(),
            owned: table.owned(),
        }
    }

    async fn change(
        &self,
        rule: &Rule,
        key: &[u8],
        (adjustment, id): (Adjustment, Option<AdjustmentId>),
    ) -> Result<Outcome, StoreError> {
        let table = self.0.table.load_full();
        match table.owner(key) {
            Owner::Unknown => Err(unknown()),
            Owner::Here => Ok(self.0.adjust(rule, key, (adjustment, id))),
            Owner::There(index) => {
                let peer = &table.peers[index];
                let adjustment = adjustment.shifted(peer.offset.ahead());
                let sent = peer.send(encode_adjust(rule, key, (adjustment, id)));
                Ok(adjusted(peer.received(sent).await)?)
            }
        }
    }
}

impl<C: Clock> Store for PeerStore<C> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let table = self.0.table.load_full();
        let owners: SmallVec<[Owner; 8]> = checks.iter().map(|check| table.owner(check.key)).collect();
        let first = owners.first().copied().unwrap_or(Owner::Here);
        if owners.contains(&Owner::Unknown) {
            return Err(unknown());
        }
        let is_one = owners.iter().all(|owner| *owner == first);
        match first {
            Owner::Here if is_one => Ok(self.0.memory.decide_now(checks)),
            Owner::There(index) if is_one && !takes_place(checks) => {
                Ok(decide_there(Arc::clone(&table.peers[index]), checks).await?.answer)
            }
            _ => reserve(&self.0, table, checks).await,
        }
    }

    #[inline]
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let table = self.0.table.load();
        let is_here = checks.iter().all(|check| table.owner(check.key) == Owner::Here);
        if is_here { self.0.memory.try_decide(checks, outcomes) } else { None }
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.change(rule, key, (adjustment, None)).await
    }

    async fn adjust_once(
        &self,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
        id: AdjustmentId,
    ) -> Result<Outcome, StoreError> {
        self.change(rule, key, (adjustment, Some(id))).await
    }

    fn recognizes_adjustments(&self) -> bool {
        true
    }

    /// Succeeds if there are members: a node that cannot be reached is an outage of its keys only.
    async fn probe(&self) -> Result<(), StoreError> {
        if self.0.table.load().peers.is_empty() { Err(unknown()) } else { Ok(()) }
    }

    #[inline]
    fn wall_ahead(&self, at: Timestamp) -> i64 {
        self.0.memory.wall_ahead(at)
    }

    fn nodes(&self) -> usize {
        self.0.table.load().peers.len().max(1)
    }
}

/// Whether a caller that cancels would leave a slot or a place in a queue behind.
fn takes_place(checks: &[Check<'_>]) -> bool {
    checks.iter().any(|check| {
        matches!(check.amount, Amount::Slot(_))
            || matches!(&check.rule.quota, Quota::Bucket(it) if it.queue().is_some())
    })
}

fn unknown() -> StoreError {
    StoreError::Refused("no peers are known: their name has not been resolved yet".into())
}

impl<C> Clone for PeerStore<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock> fmt::Debug for PeerStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerStore")
            .field("settings", self.settings())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
