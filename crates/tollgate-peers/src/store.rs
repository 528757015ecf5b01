//! The store: own keys are decided here, all others by their owners.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tollgate_core::{Adjustment, Outcome, Rule, RuleId, Timestamp};
use tollgate_store::{
    AdjustmentId, Answer, Check, Clock, MemoryStore, Outcomes, Repeatable, Store, StoreError, SystemClock,
};

use crate::failure::{Failure, outage_of_keys};
use crate::forward::forward_all;
use crate::node::{Node, Served, moved};
use crate::peer::{Counts, Dial};
use crate::reserve::{adjusted, decide_there, reserve};
use crate::settings::{Address, PeerSettings};
use crate::table::Route;
use crate::wire::encode_adjust;

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

/// The number of times that a request follows a partition to another node.
const MAX_MOVES: usize = 3;

const NO_MEMBERS: &str = "no peers are known: their name has not been resolved yet";

/// The counts of calls between this node and the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCounters {
    /// Calls to other nodes.
    pub calls: u64,
    /// Calls without an answer.
    pub failures: u64,
    /// Calls that another node refused because it does not hold the partition of the key.
    pub not_holder: u64,
    /// States that were copied from earlier holders of their partition.
    pub carried: u64,
    /// Keys that began with a share because their usage was lost with another node.
    pub lost: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Calls of other nodes that were answered.
    pub served: u64,
    /// Members of the list, including this node.
    pub members: usize,
    /// Members that cannot be reached.
    pub down: usize,
    /// Partitions that this node holds, of 256.
    pub held: usize,
    /// Partitions whose holder this node knows, of 256.
    pub known: usize,
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
    /// The usage of keys whose owner changes is carried over: the new owner claims their partitions
    /// ([`tend`](Self::tend)). While the lists of nodes differ, each partition has one holder nevertheless.
    pub fn set_members(&self, members: &[Address], here: Option<&Address>) {
        let mut members = members.to_vec();
        members.sort();
        members.dedup();
        let mut ownership = self.0.ownership();
        ownership.set_list(members, here, self.0.memory.now());
        self.0.publish(&ownership);
    }

    /// Sets the percentage of a limit with which a key begins whose usage was lost with its node, for
    /// rules that do not begin with [`PeerSettings::lost_share`].
    pub fn set_lost_shares(&self, shares: HashMap<RuleId, u8>) {
        self.0.losses.shares.store(Arc::new(shares));
    }

    /// Returns the addresses of the members.
    pub fn members(&self) -> Vec<Address> {
        self.0.ownership().members.clone()
    }

    /// Returns the address of this node, if it is a member.
    pub fn here(&self) -> Option<Address> {
        self.0.table.load().here.clone()
    }

    /// Returns the address of the node that decides a key, if there is one.
    pub fn owner(&self, key: &[u8]) -> Option<Address> {
        let table = self.0.table.load();
        match table.route(key) {
            Route::Here(_) => {
                table.here.clone().or_else(|| self.0.ownership().me.as_ref().map(|me| me.address.clone()))
            }
            Route::There(index) => Some(table.peers[*index].address.clone()),
            Route::Unknown => None,
        }
    }

    /// Returns whether this node has asked the others which partitions they hold, and waits for none.
    pub fn is_settled(&self) -> bool {
        self.0.has_exchanged_holdings.load(Ordering::Relaxed) && self.0.ownership().wanted().next().is_none()
    }

    /// Answers the call of another node: the arguments of `TG.CALL`. The error is the text of an
    /// error reply.
    pub fn serve(&self, version: &[u8], payload: &[u8]) -> Served {
        self.0.serve(version, payload)
    }

    /// Connects to all other nodes, and claims the partitions of this one, to report problems at startup.
    pub async fn connect(&self) -> Result<(), StoreError> {
        if self.members().is_empty() {
            return Err(unknown());
        }
        self.0.exchange().await.into_iter().next().map_or(Ok(()), |failure| Err(outage_of_keys(failure)))
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
            not_holder: counts.not_holder.load(Ordering::Relaxed),
            carried: counts.carried.load(Ordering::Relaxed),
            lost: counts.lost.load(Ordering::Relaxed),
            connections: counts.connections.load(Ordering::Relaxed),
            served: counts.served.load(Ordering::Relaxed),
            members: table.members,
            down: table.peers[..table.members]
                .iter()
                .filter(|peer| peer.is_down.load(Ordering::Relaxed))
                .count(),
            held: table.held(),
            known: self.0.ownership().known.iter().filter(|it| it.holding.term > 0).count(),
        }
    }

    async fn change(
        &self,
        rule: &Rule,
        key: &[u8],
        change: (Adjustment, Option<AdjustmentId>),
    ) -> Result<Outcome, StoreError> {
        let mut last = None;
        for _ in 0..MAX_MOVES {
            match self.try_change(rule, key, change).await {
                Err(failure @ Failure::Migrating(_)) => last = Some(failure),
                result => return result.map_err(outage_of_keys),
            }
        }
        Err(last.map_or_else(unknown, outage_of_keys))
    }

    async fn try_change(
        &self,
        rule: &Rule,
        key: &[u8],
        (adjustment, id): (Adjustment, Option<AdjustmentId>),
    ) -> Result<Outcome, Failure> {
        let (node, table) = (&self.0, self.0.table.load_full());
        match table.route(key) {
            Route::Unknown => Err(Failure::refused(NO_MEMBERS)),
            Route::Here(_) => {
                if let Some(touched) = node.touch(&table, rule, key) {
                    node.carry(&[touched]).await?;
                }
                node.adjust(rule, key, (adjustment, id)).map_err(moved)
            }
            Route::There(index) => {
                let peer = &table.peers[*index];
                let adjustment = adjustment.shifted(peer.offset.ahead());
                let sent = peer.send(&encode_adjust(rule, key, (adjustment, id)));
                adjusted(node, peer, sent).await
            }
        }
    }

    async fn try_all(&self, checks: &[Check<'_>]) -> Result<Answer, Failure> {
        let (node, table) = (&self.0, self.0.table.load_full());
        let mut places = checks.iter().map(|check| match table.route(check.key) {
            Route::Here(_) => Ok(None),
            Route::There(index) => Ok(Some(*index)),
            Route::Unknown => Err(Failure::refused(NO_MEMBERS)),
        });
        let first = places.next().unwrap_or(Ok(None))?;
        let mut is_one = true;
        for place in places {
            is_one &= place? == first;
        }
        match first {
            None if is_one => {
                let touched = node.touched(&table, checks);
                if !touched.is_empty() {
                    node.carry(&touched).await?;
                }
                Ok(node.decide(checks).map_err(moved)?.answer)
            }
            Some(index) if is_one && !checks.iter().any(Check::takes_place) => {
                Ok(decide_there(node, Arc::clone(&table.peers[index]), checks).await?.answer)
            }
            _ => reserve(node, table, checks).await,
        }
    }
}

impl<C: Clock> Store for PeerStore<C> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let mut last = None;
        for _ in 0..MAX_MOVES {
            match self.try_all(checks).await {
                Err(failure @ Failure::Migrating(_)) => last = Some(failure),
                result => return result.map_err(outage_of_keys),
            }
        }
        Err(last.map_or_else(unknown, outage_of_keys))
    }

    /// Batches whose keys all have the same holder are sent to it together.
    async fn decide_all(&self, batches: &[&[Check<'_>]]) -> Vec<Result<Answer, StoreError>> {
        forward_all(self, batches).await
    }

    #[inline]
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let (node, table) = (&self.0, self.0.table.load());
        let is_ready = |check: &Check<'_>| {
            matches!(table.route(check.key), Route::Here(_))
                && node.touch(&table, check.rule, check.key).is_none()
        };
        if !checks.iter().all(is_ready) {
            return None;
        }
        let answer = node.memory.try_decide(checks, outcomes)?;
        // A charge that came after the partition was given away does not count.
        checks.iter().all(|check| node.is_unchanged(&table, check.key)).then_some(answer)
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.change(rule, key, (adjustment, None)).await
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        self.change(rule, key, (once.adjustment, Some(once.id))).await
    }

    fn recognizes_adjustments(&self) -> bool {
        true
    }

    /// Succeeds if there are members: a node that cannot be reached is an outage of its keys only.
    async fn probe(&self) -> Result<(), StoreError> {
        if self.0.table.load().members == 0 { Err(unknown()) } else { Ok(()) }
    }

    #[inline]
    fn wall_ahead(&self, at: Timestamp) -> i64 {
        self.0.memory.wall_ahead(at)
    }

    fn nodes(&self) -> usize {
        self.0.table.load().members.max(1)
    }
}

fn unknown() -> StoreError {
    StoreError::Refused(NO_MEMBERS.into())
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
