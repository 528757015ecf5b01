//! The keys that this node holds, and the calls of other nodes for them.
//!
//! A decision reads the table before and after it charges. If the partition was given away in between,
//! the charge may have come too late for the copy that the new holder made: the decision is void, and
//! the request is sent to the new holder. The fences order the charge before the second read, and the new
//! table before the copy, so one of the two sees the other.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tollgate_core::{Adjustment, Amount, Outcome, Rule, Timestamp};
use tollgate_store::parts::{OwnedCheck, PARTITIONS, PartReply, partition};
use tollgate_store::{AdjustmentId, Check, Clock, MemoryStore};

use crate::applied::AppliedIds;
use crate::carry::{CarriedKeys, Losses};
use crate::failure::Failure;
use crate::ownership::{Holding, LOST_INCARNATION, Ownership};
use crate::peer::{Counts, Dial, Peer};
use crate::settings::{Address, PeerSettings};
use crate::table::{Route, Table};
use crate::wire::{Call, Claim, CopyRequest, KeyChange, Reply, VERSION};

/// [`VERSION`] as calls have it.
const VERSION_TEXT: &[u8] = b"2";

/// The state of this node.
pub(crate) struct Node<C> {
    pub(crate) settings: PeerSettings,
    pub(crate) memory: MemoryStore<C>,
    pub(crate) dial: Arc<Dial>,
    pub(crate) table: ArcSwap<Table>,
    incarnation: u64,
    ownership: Mutex<Ownership>,
    peers: Mutex<HashMap<Address, Arc<Peer>>>,
    pub(crate) carried: CarriedKeys,
    pub(crate) losses: Losses,
    /// Wakes the task that exchanges holdings.
    pub(crate) changed: Notify,
    /// Whether holdings have been exchanged with all members once.
    pub(crate) has_exchanged_holdings: AtomicBool,
    applied: AppliedIds,
}

/// The reply to a call: at once, or after states have been copied from another node.
pub enum Served {
    /// The bytes of the reply, or the text of an error.
    Now(Result<Vec<u8>, String>),
    /// The same, later.
    Later(Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>>),
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(reply) => f.debug_tuple("Now").field(reply).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl<C: Clock> Node<C> {
    pub(crate) fn new(settings: PeerSettings, memory: MemoryStore<C>, dial: Arc<Dial>) -> Self {
        let incarnation = RandomState::new().hash_one(std::process::id()).max(LOST_INCARNATION + 1);
        let ownership = Ownership::new(incarnation);
        let table = Table::new(&ownership, |address| Peer::new(address.clone(), &dial));
        Self {
            settings,
            memory,
            dial,
            table: ArcSwap::from_pointee(table),
            incarnation,
            ownership: Mutex::new(ownership),
            peers: Mutex::default(),
            carried: CarriedKeys::default(),
            losses: Losses::default(),
            changed: Notify::new(),
            has_exchanged_holdings: AtomicBool::new(false),
            applied: AppliedIds::default(),
        }
    }

    pub(crate) fn ownership(&self) -> MutexGuard<'_, Ownership> {
        // No code panics while it holds the lock.
        self.ownership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connections to an address.
    pub(crate) fn peer(&self, address: &Address) -> Arc<Peer> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(address) {
            return Arc::clone(peer);
        }
        let peer = Peer::new(address.clone(), &self.dial);
        peers.insert(address.clone(), Arc::clone(&peer));
        peer
    }

    /// Returns whether an address is that of this node.
    pub(crate) fn is_here(&self, address: &Address) -> bool {
        self.ownership().me.as_ref().is_some_and(|me| me.address == *address)
    }

    /// Publishes the table of known holdings, and forgets nodes that are not needed any more.
    pub(crate) fn publish(&self, ownership: &Ownership) {
        self.table.store(Arc::new(Table::new(ownership, |address| self.peer(address))));
        // Before any copy that this change permits.
        fence(Ordering::SeqCst);
        let known = || ownership.known.iter().map(|it| &it.holding);
        let is_needed = |address: &Address| {
            ownership.members.contains(address)
                || known().any(|it| it.holder.iter().chain(&it.sources).any(|one| one.address == *address))
        };
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).retain(|address, _| is_needed(address));
        self.losses.retain(is_needed);
        self.changed.notify_one();
    }

    /// Learns of holdings. Returns whether there was news.
    pub(crate) fn learn(&self, news: &[(u8, Arc<Holding>)]) -> bool {
        let (now, mut ownership) = (self.memory.now(), self.ownership());
        let mut is_news = false;
        for (partition, holding) in news {
            is_news |= ownership.learn(usize::from(*partition), holding, now);
        }
        if is_news {
            self.publish(&ownership);
        }
        is_news
    }

    /// Answers the call of another node, or returns an error for it.
    pub(crate) fn serve(self: &Arc<Self>, version: &[u8], payload: &[u8]) -> Served {
        if version != VERSION_TEXT {
            return Served::Now(Err(format!(
                "PEERVERSION this node speaks version {VERSION} of the calls between peers, and the caller another: \
                 run the same version of Tollgate on all nodes"
            )));
        }
        let Ok((call, not_after)) = Call::decode(payload) else {
            return Served::Now(Err("ERR the bytes are not a call between peers, or are damaged".to_owned()));
        };
        Counts::add(&self.dial.counts.served);
        let table = self.table.load();
        let has_touched = match &call {
            Call::Decide(checks) => checks.iter().any(|it| self.touch(&table, &it.rule, &it.key).is_some()),
            Call::Adjust(change) => self.touch(&table, &change.rule, &change.key).is_some(),
            Call::Ping | Call::Claim(_) | Call::Copy(_) => false,
        };
        if !has_touched {
            return Served::Now(Ok(self.execute(&call, not_after).encode()));
        }
        let (node, table) = (Arc::clone(self), Arc::clone(&table));
        Served::Later(Box::pin(async move {
            let touched: SmallVec<[_; 2]> = match &call {
                Call::Decide(checks) => {
                    checks.iter().filter_map(|it| node.touch(&table, &it.rule, &it.key)).collect()
                }
                Call::Adjust(change) => node.touch(&table, &change.rule, &change.key).into_iter().collect(),
                Call::Ping | Call::Claim(_) | Call::Copy(_) => SmallVec::new(),
            };
            let carried = node.carry(&touched).await;
            drop(touched);
            match carried {
                Ok(()) => Ok(node.execute(&call, not_after).encode()),
                Err(failure) => Err(format!("ERR the state of a key is at another node: {failure}")),
            }
        }))
    }

    fn execute(&self, call: &Call, not_after: Timestamp) -> Reply {
        let now = self.memory.now();
        if now > not_after {
            return Reply::Late;
        }
        match call {
            Call::Ping => Reply::Pong(now),
            Call::Decide(checks) => {
                let checks: SmallVec<[Check<'_>; 4]> = checks.iter().map(OwnedCheck::check).collect();
                match self.decide(&checks) {
                    Ok(PartReply { answer, renewed }) => Reply::Decided(answer, renewed),
                    Err(partition) => self.not_holder(partition),
                }
            }
            Call::Adjust(change) => {
                let KeyChange { rule, key, adjustment, id } = &**change;
                match self.adjust(rule, key, (*adjustment, *id)) {
                    Ok(outcome) => Reply::Adjusted(outcome, now),
                    Err(partition) => self.not_holder(partition),
                }
            }
            Call::Claim(claim) => self.answer_claim(claim),
            Call::Copy(request) => self.copy(request),
        }
    }

    fn not_holder(&self, partition: usize) -> Reply {
        let holding = Arc::clone(&self.ownership().known[partition].holding);
        Reply::NotHolder(u8::try_from(partition).unwrap_or(0), holding)
    }

    fn answer_claim(&self, claim: &Claim) -> Reply {
        self.learn(&claim.holdings);
        let mut ownership = self.ownership();
        if let Some(by) = &claim.by
            && ownership.grant(by, &claim.wanted, self.memory.now())
        {
            self.publish(&ownership);
        }
        Reply::Holdings(holdings(&ownership))
    }

    fn copy(&self, request: &CopyRequest) -> Reply {
        let CopyRequest { holding, key, rules } = request;
        let at = partition(key);
        self.learn(&[(u8::try_from(at).unwrap_or(0), Arc::clone(holding))]);
        if matches!(self.table.load().routes[at], Route::Here(_)) {
            return self.not_holder(at);
        }
        let states = rules.iter().map(|rule| self.memory.copy_state(rule, key)).collect();
        // After the states: times are converted to a later time, never to an earlier one.
        Reply::Copied { incarnation: self.incarnation, at: self.memory.now(), states }
    }

    /// Decides a batch of held keys. The error is a partition that this node does not hold.
    pub(crate) fn decide(&self, checks: &[Check<'_>]) -> Result<PartReply, usize> {
        let table = self.table.load();
        let not_here = |check: &&Check<'_>| !matches!(table.route(check.key), Route::Here(_));
        if let Some(other) = checks.iter().find(not_here) {
            return Err(partition(other.key));
        }
        let mut renewed = SmallVec::new();
        for (place, check) in checks.iter().enumerate() {
            if let Amount::Slot(owner) = check.amount {
                let held = self.memory.adjust_now(check.rule, check.key, Adjustment::Renew { owner });
                if held.units() > 0 {
                    renewed.push(place);
                }
            }
        }
        let answer = self.memory.decide_now(checks);
        match checks.iter().find(|check| !self.is_unchanged(&table, check.key)) {
            Some(moved) => Err(partition(moved.key)),
            None => Ok(PartReply { answer, renewed }),
        }
    }

    /// Returns whether this node still holds the partition of a key in the term of an earlier table. To be
    /// called after a charge.
    #[inline]
    pub(crate) fn is_unchanged(&self, before: &Arc<Table>, key: &[u8]) -> bool {
        fence(Ordering::SeqCst);
        let now = self.table.load();
        Arc::ptr_eq(&now, before) || now.is_as_in(before, key)
    }

    /// Adjusts a held key, once if there is an id. The error is the partition, if this node does not hold it.
    pub(crate) fn adjust(
        &self,
        rule: &Rule,
        key: &[u8],
        (adjustment, id): (Adjustment, Option<AdjustmentId>),
    ) -> Result<Outcome, usize> {
        let table = self.table.load();
        if !matches!(table.route(key), Route::Here(_)) {
            return Err(partition(key));
        }
        let is_repeated = id.is_some_and(|id| !self.applied.is_new(id, self.memory.now()));
        // A grant of nothing reads the state.
        let adjustment = if is_repeated { Adjustment::Grant { units: 0 } } else { adjustment };
        let outcome = self.memory.adjust_now(rule, key, adjustment);
        if self.is_unchanged(&table, key) { Ok(outcome) } else { Err(partition(key)) }
    }
}

/// Returns all holdings that a node knows.
pub(crate) fn holdings(ownership: &Ownership) -> Vec<(u8, Arc<Holding>)> {
    #[allow(clippy::cast_possible_truncation, reason = "partitions are numbered 0 to 255")]
    let known = |at: usize| (at as u8, Arc::clone(&ownership.known[at].holding));
    (0..PARTITIONS).map(known).filter(|(_, it)| it.term > 0).collect()
}

/// Returns the failure of a request for a partition that has moved.
pub(crate) fn moved(partition: usize) -> Failure {
    Failure::Migrating(format!("partition {partition} has moved to another node").into())
}
