//! Builds a batch while its requests wait for the next call.
//!
//! In: requests in the order of their arrival. Out: the batch, and the waiters of its items.

use hashbrown::HashTable;
use smallvec::{SmallVec, smallvec};
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Rule, RuleId};
use tollgate_store::{AdjustmentId, Check};

use super::{Batch, CheckRequest, Item, Key, hash, shares_states};
use crate::names::{marker_name, write_name};
use crate::waiters::{DecisionReply, ItemWaiters, ReplySender, Waiters};

/// The maximum number of keys in a call: the stack of a script holds some thousands.
const MAX_BATCH_KEYS: usize = 1_000;

/// The maximum number of items in a call: a call should take only milliseconds.
const MAX_BATCH_ITEMS: usize = 2_000;

/// A request to the store, with the channel for its reply.
pub(crate) enum Request<'r> {
    /// Decides these checks together.
    Decision { checks: &'r [Check<'r>], waiter: ReplySender<DecisionReply> },
    /// Changes a key; with an id, the change is applied once.
    Change {
        rule: &'r Rule,
        key: &'r [u8],
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
        waiter: ReplySender<Outcome>,
    },
}

/// A batch under construction.
#[derive(Default)]
pub(crate) struct BatchBuilder {
    batch: Batch,
    /// The waiters of each item.
    waiters: Waiters,
    /// The indices of the keys by their hash.
    by_key: HashTable<u32>,
    /// The hashes of the states under replaced rules.
    past: HashTable<u64>,
}

impl BatchBuilder {
    /// The number of requests and changes so far.
    pub(crate) const fn requests(&self) -> usize {
        self.batch.requests
    }

    /// Whether the batch should not grow further.
    pub(crate) const fn is_full(&self) -> bool {
        self.batch.name_count() >= MAX_BATCH_KEYS || self.batch.items.len() >= MAX_BATCH_ITEMS
    }

    /// Whether the batch has a state of this request under a different quota, or under a rule with other
    /// predecessors. A call reads and writes a state once, so such a request has to wait for the next call.
    pub(crate) fn clashes(&self, request: &Request<'_>) -> bool {
        let clashes = |rule, key| self.has_other_quota(rule, key) || self.has_other_past(rule, key);
        match request {
            Request::Decision { checks, .. } => checks.iter().any(|check| clashes(check.rule, check.key)),
            Request::Change { rule, key, .. } => clashes(rule, key),
        }
    }

    /// Whether a state of this key is in the batch in another role: that of a present rule or that of a
    /// replaced one. Two versions of a policy are in use while one replaces the other.
    fn has_other_past(&self, rule: &Rule, key: &[u8]) -> bool {
        if rule.before.is_none() && self.past.is_empty() {
            return false;
        }
        let own = hash(rule.id, key);
        if let Some(at) = self.find(own, rule.id, key, |quota| *quota == rule.quota) {
            let before = self.batch.keys[at].before.iter().map(|&rule| self.batch.rules[rule].0);
            return !before.eq(rule.predecessors().map(|it| it.id));
        }
        // A collision of hashes only delays a request.
        let is_past = |hash| self.past.find(hash, |&it| it == hash).is_some();
        is_past(own)
            || rule.predecessors().any(|it| {
                let hash = hash(it.id, key);
                is_past(hash) || self.find(hash, it.id, key, |_| true).is_some()
            })
    }

    fn has_other_quota(&self, rule: &Rule, key: &[u8]) -> bool {
        shares_states(&rule.quota)
            && self
                .find(hash(rule.id, key), rule.id, key, |_| true)
                .is_some_and(|at| *self.batch.quota(at) != rule.quota)
    }

    /// Adds a request. `prefix` is the prefix of every name.
    pub(crate) fn add(&mut self, prefix: &str, request: Request<'_>) {
        self.batch.requests += 1;
        match request {
            Request::Decision { checks, waiter } => self.add_decision(prefix, checks, waiter),
            Request::Change { rule, key, adjustment, id, waiter } => {
                let marker = id.map(|id| {
                    self.batch.markers.push(marker_name(prefix, key, id));
                    self.batch.markers.len() - 1
                });
                let key = self.add_key(prefix, rule, key);
                self.batch.keys[key].last = self.batch.items.len();
                self.batch.items.push(Item::Change { key, adjustment, marker });
                self.waiters.0.push(ItemWaiters::Change(waiter));
            }
        }
    }

    /// Ends the construction.
    pub(crate) fn finish(self) -> (Batch, Waiters) {
        (self.batch, self.waiters)
    }

    fn add_decision(&mut self, prefix: &str, checks: &[Check<'_>], waiter: ReplySender<DecisionReply>) {
        let requested: SmallVec<[CheckRequest; 2]> = checks
            .iter()
            .map(|check| CheckRequest {
                key: self.add_key(prefix, check.rule, check.key),
                amount: check.amount,
                binding: check.binding,
                count_denied: check.count_denied,
            })
            .collect();
        let keys = &mut self.batch.keys;
        let last = requested.first().map_or(usize::MAX, |first| keys[first.key].last);
        let may_join = requested.iter().all(|check| {
            let is_joinable = !matches!(check.amount, Amount::Slot(_) | Amount::Lease(_));
            keys[check.key].last == last && !check.count_denied && is_joinable
        });
        if may_join
            && let Some(Item::Requests { checks, many }) = self.batch.items.get_mut(last)
            && let Some(ItemWaiters::Requests(waiters)) = self.waiters.0.get_mut(last)
            && *checks == requested
        {
            *many += 1;
            waiters.push(waiter);
            return;
        }
        for check in &requested {
            keys[check.key].last = self.batch.items.len();
        }
        self.batch.items.push(Item::Requests { checks: requested, many: 1 });
        self.waiters.0.push(ItemWaiters::Requests(smallvec![waiter]));
    }

    /// Finds a key whose rule has this ID and a quota that is accepted.
    fn find(&self, hash: u64, id: RuleId, key: &[u8], accepts: impl Fn(&Quota) -> bool) -> Option<usize> {
        let batch = &self.batch;
        let is_same = |at: usize| {
            let known = &batch.keys[at];
            let (rule, quota) = &batch.rules[known.rule];
            known.hash == hash && *rule == id && accepts(quota) && batch.bare_key(at) == key
        };
        self.by_key.find(hash, |&at| is_same(at as usize)).map(|&at| at as usize)
    }

    /// Returns the index of a key and adds the key if it is new.
    fn add_key(&mut self, prefix: &str, rule: &Rule, key: &[u8]) -> usize {
        let hash = hash(rule.id, key);
        // Rules with the same ID may have different quotas (`clash`).
        if let Some(at) = self.find(hash, rule.id, key, |quota| *quota == rule.quota) {
            return at;
        }
        let batch = &mut self.batch;
        let (at, name) = (batch.keys.len(), batch.name_ends.len());
        let start = batch.names.len();
        batch.write_name(prefix, rule.id, key);
        let bare = batch.names.len() - start - key.len();
        let mut before = SmallVec::new();
        for past in rule.predecessors() {
            before.push(batch.add_rule(past.id, &past.quota));
            batch.write_name(prefix, past.id, key);
            self.past.insert_unique(super::hash(past.id, key), super::hash(past.id, key), |&it| it);
        }
        let rule = batch.add_rule(rule.id, &rule.quota);
        batch.keys.push(Key { hash, rule, before, name, bare, last: usize::MAX });
        // A batch has far fewer keys than `u32::MAX`.
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.by_key.insert_unique(hash, number, |&at| batch.keys[at as usize].hash);
        at
    }
}

impl Batch {
    fn write_name(&mut self, prefix: &str, rule: RuleId, key: &[u8]) {
        write_name(prefix, rule, key, &mut self.names);
        self.name_ends.push(self.names.len());
    }

    /// Returns the index of a rule and adds the rule if it is new.
    fn add_rule(&mut self, id: RuleId, quota: &Quota) -> usize {
        // A batch has few rules, and consecutive keys often share one.
        let known = self.rules.iter().rposition(|(known, numbers)| *known == id && numbers == quota);
        known.unwrap_or_else(|| {
            self.rules.push((id, quota.clone()));
            self.rules.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tollgate_core::{Bucket, Rate};

    use super::*;

    fn clashes(builder: &BatchBuilder, rule: &Rule, key: &[u8]) -> bool {
        let checks = [Check::new(rule, key, 1)];
        builder.clashes(&Request::Decision { checks: &checks, waiter: oneshot::channel().0 })
    }

    #[test]
    fn a_call_has_each_state_in_one_role() {
        let rule = |units| Rule::new("api", Bucket::new(Rate::per_day(units)).unwrap());
        let (old, new) = (rule(10), rule(20));
        let (knowing, replacing) = (old.clone().replacing(&new), new.clone().replacing(&old));
        let all = [&old, &new, &knowing, &replacing];
        for (at, first) in all.into_iter().enumerate() {
            let mut builder = BatchBuilder::default();
            let checks = [Check::new(first, b"key", 1)];
            builder.add("", Request::Decision { checks: &checks, waiter: oneshot::channel().0 });
            for (index, second) in all.into_iter().enumerate() {
                // The old and the new rule have different states, if neither knows the other.
                let is_apart = at < 2 && index < 2;
                assert_eq!(clashes(&builder, second, b"key"), at != index && !is_apart, "{at}, {index}");
                assert!(!clashes(&builder, second, b"other"));
            }
        }
    }
}
