//! Copies the state of a key from earlier holders of its partition, at the first request for the key.
//!
//! The source has given the partition up, so its states do not change any more, and copying one twice
//! is harmless (`MemoryStore::merge_state`). Which keys have been copied is remembered in bounded sets;
//! a key that is forgotten there is copied again.
//!
//! A source whose process has ended has lost its states, and so has one that is not in the list any more
//! and does not answer for [`LOST_AFTER`]. The usage of its keys is not known. They begin with the
//! share of the limit that `on_outage` grants, as of the time at which this node became the holder. A
//! source that is in the list and does not answer is an outage of the keys that it has not yet passed on.
//!
//! Bound: the lost process had admitted at most `L`, and all requests since then get at most the share,
//! plus the refill of the limit. The ledger of the outage charges the same state.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{Quota, Rule, RuleId, Timestamp};
use tollgate_store::parts::{PARTITIONS, partition};
use tollgate_store::{Check, Clock, MemoryStore};

use crate::failure::Failure;
use crate::node::Node;
use crate::ownership::{LOST_INCARNATION, Process};
use crate::peer::Counts;
use crate::settings::Address;
use crate::table::{Incoming, Route, Table};
use crate::wire::{Reply, encode_copy};

/// How long a process that is not in the list has to be out of reach to count as lost.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(2);

/// The number of periods of a quota after which a state has certainly expired.
const MAX_STATE_PERIODS: u64 = 2;

/// The maximum number of remembered keys in each of the two sets of a partition.
const MAX_CARRIED_KEYS: usize = 8 * 1024;

/// A key under a rule, in a partition that other processes may have states of.
pub(crate) struct Touched<'c> {
    rule: &'c Rule,
    key: &'c [u8],
    incoming: Arc<Incoming>,
    sources: SmallVec<[Arc<Process>; 2]>,
}

/// The keys whose states have been copied.
pub(crate) struct CarriedKeys {
    hasher: RandomState,
    sets: Box<[Mutex<[HashSet<u64>; 2]>]>,
}

impl Default for CarriedKeys {
    fn default() -> Self {
        Self { hasher: RandomState::new(), sets: (0..PARTITIONS).map(|_| Mutex::default()).collect() }
    }
}

impl CarriedKeys {
    fn hash(&self, touched: (&Incoming, RuleId, &[u8]), source: &Process) -> u64 {
        let (incoming, rule, key) = touched;
        self.hasher.hash_one((incoming.holding.term, source.incarnation, rule.0, key))
    }

    fn set(&self, key: &[u8]) -> MutexGuard<'_, [HashSet<u64>; 2]> {
        // No code panics while it holds the lock.
        self.sets[partition(key)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, touched: (&Incoming, RuleId, &[u8]), source: &Process) -> bool {
        let hash = self.hash(touched, source);
        self.set(touched.2).iter().any(|it| it.contains(&hash))
    }

    fn add(&self, touched: (&Incoming, RuleId, &[u8]), source: &Process) {
        let hash = self.hash(touched, source);
        let mut sets = self.set(touched.2);
        if sets[0].len() >= MAX_CARRIED_KEYS {
            sets[1] = std::mem::take(&mut sets[0]);
        }
        sets[0].insert(hash);
    }
}

/// The processes that do not answer, and the share that the keys of a lost one begin with.
#[derive(Default)]
pub(crate) struct Losses {
    silent_since: Mutex<HashMap<Address, Instant>>,
    /// The percentage of a limit, by rule; others have the share of the settings.
    pub(crate) shares: ArcSwap<HashMap<RuleId, u8>>,
}

impl Losses {
    fn silent(&self) -> MutexGuard<'_, HashMap<Address, Instant>> {
        // No code panics while it holds the lock.
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a node has answered.
    pub(crate) fn answered(&self, address: &Address) {
        self.silent().remove(address);
    }

    /// Records that a node has not answered. Returns whether it has been silent for so long that it is
    /// lost, if it is not a member.
    pub(crate) fn is_lost(&self, address: &Address) -> bool {
        let now = Instant::now();
        let mut silent = self.silent();
        let since = *silent.entry(address.clone()).or_insert(now);
        now - since >= LOST_AFTER
    }

    /// Forgets the nodes that are not needed any more.
    pub(crate) fn retain(&self, is_needed: impl Fn(&Address) -> bool) {
        self.silent().retain(|address, _| is_needed(address));
    }
}

/// Whether a state under a quota may still count, that has not changed since `since`.
fn may_count(quota: &Quota, since: Timestamp, now: Timestamp) -> bool {
    now.since(since).as_micros() <= quota.period().as_micros().saturating_mul(MAX_STATE_PERIODS)
}

impl<C: Clock> Node<C> {
    /// Returns the keys of a batch whose states have to be copied first.
    pub(crate) fn touched<'c>(&self, table: &Table, checks: &[Check<'c>]) -> SmallVec<[Touched<'c>; 2]> {
        checks.iter().filter_map(|check| self.touch(table, check.rule, check.key)).collect()
    }

    /// Returns a key if its state has to be copied first.
    #[inline]
    pub(crate) fn touch<'c>(&self, table: &Table, rule: &'c Rule, key: &'c [u8]) -> Option<Touched<'c>> {
        let Route::Here(incoming) = table.route(key) else { return None };
        if incoming.holding.sources.is_empty() { None } else { self.touch_moved(incoming, rule, key) }
    }

    #[cold]
    fn touch_moved<'c>(
        &self,
        incoming: &Arc<Incoming>,
        rule: &'c Rule,
        key: &'c [u8],
    ) -> Option<Touched<'c>> {
        let now = self.memory.now();
        let quotas = || std::iter::once(&rule.quota).chain(rule.predecessors().map(|it| &it.quota));
        if !quotas().any(|quota| may_count(quota, incoming.since, now)) {
            return None;
        }
        let is_new = |it: &&Arc<Process>| !self.carried.has((incoming, rule.id, key), it);
        let sources: SmallVec<_> = incoming.holding.sources.iter().filter(is_new).cloned().collect();
        (!sources.is_empty()).then(|| Touched { rule, key, incoming: Arc::clone(incoming), sources })
    }

    /// Copies the states of keys. Fails if a source may have a state and does not answer.
    pub(crate) async fn carry(&self, all: &[Touched<'_>]) -> Result<(), Failure> {
        for touched in all {
            let rules = rules(touched.rule);
            let sent: SmallVec<[_; 2]> = touched
                .sources
                .iter()
                .map(|source| {
                    // A former process at the address of this one.
                    let is_gone = source.incarnation == LOST_INCARNATION || self.is_here(&source.address);
                    let peer = (!is_gone).then(|| self.peer(&source.address));
                    let payload = || encode_copy(&touched.incoming.holding, touched.key, &rules);
                    (source, peer.map(|peer| (peer.send(&payload()), peer)))
                })
                .collect();
            for (source, call) in sent {
                let reply = match call {
                    None => None,
                    Some((sent, peer)) => Some((peer.received(sent).await, peer)),
                };
                self.take_copy(touched, &rules, source, reply.map(|(reply, _)| reply))?;
            }
        }
        Ok(())
    }

    /// Merges the states of a reply, or begins with the share if they are lost.
    fn take_copy(
        &self,
        touched: &Touched<'_>,
        rules: &[Rule],
        source: &Arc<Process>,
        reply: Option<Result<Reply, Failure>>,
    ) -> Result<(), Failure> {
        let Touched { key, incoming, .. } = touched;
        match reply {
            Some(Ok(Reply::Copied { incarnation, at, states }))
                if incarnation == source.incarnation && states.len() == rules.len() =>
            {
                self.losses.answered(&source.address);
                let now = self.memory.now();
                for (rule, state) in rules.iter().zip(states) {
                    if let Some(state) = state {
                        self.memory.merge_state(rule, key, &state, at, now);
                        Counts::add(&self.dial.counts.carried);
                    }
                }
            }
            // Another process at that address has none of the states.
            None | Some(Ok(Reply::Copied { .. })) => self.begin_with_share(touched, rules),
            Some(Ok(Reply::NotHolder(partition, holding))) => {
                self.learn(&[(partition, holding)]);
                return Err(Failure::Migrating(format!("{} holds the partition", source.address).into()));
            }
            Some(Ok(_)) => return Err(Failure::failed("the reply of a peer is incomplete")),
            Some(Err(failure)) => {
                let is_member = self.table.load().has_member(&source.address);
                if is_member || !self.losses.is_lost(&source.address) {
                    return Err(failure);
                }
                self.begin_with_share(touched, rules);
            }
        }
        self.carried.add((incoming, touched.rule.id, key), source);
        Ok(())
    }

    /// Charges a key whose usage is lost with all but the share of its limits.
    fn begin_with_share(&self, touched: &Touched<'_>, rules: &[Rule]) {
        self.dial.counts.lost.fetch_add(1, Ordering::Relaxed);
        let shares = self.losses.shares.load();
        for rule in rules {
            let percent = shares.get(&rule.id).copied().unwrap_or(self.settings.lost_share).min(100);
            let capacity = rule.quota.capacity();
            // At least one unit of a limit that grants a share, as in an outage.
            let share = u64::try_from(u128::from(capacity) * u128::from(percent) / 100).unwrap_or(0);
            let share = if percent == 0 { 0 } else { share.max(1) };
            let since = touched.incoming.since;
            let state = MemoryStore::<C>::state_after(rule, capacity.saturating_sub(share), since);
            self.memory.merge_steady(rule, touched.key, &state);
        }
    }
}

/// Returns the rule and its predecessors, each as a rule of its own.
fn rules(rule: &Rule) -> SmallVec<[Rule; 2]> {
    let plain = |id: RuleId, quota: &Quota| {
        let (name, quota) = (Box::default(), quota.clone());
        Rule { name, id, quota, before: None, lease: None, far: None }
    };
    let before = rule.predecessors().map(|it| plain(it.id, &it.quota));
    std::iter::once(plain(rule.id, &rule.quota)).chain(before).collect()
}
