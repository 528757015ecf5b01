//! A batch under construction: the requests and changes that arrive while another call is in
//! flight.
//!
//! Requests that touch the same key keep their order. A request that is identical to the last
//! request on its keys joins it, so that many requests for one hot key become one "take up to n"
//! that costs Redis as much as one request.
//!
//! Not here: sending it (`dispatcher`), reading the reply (`replay`).

use std::time::Duration;

use hashbrown::HashTable;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Rule, RuleId};
use tollgate_store::{AdjustmentId, Answer, Check};

use crate::failure::Failure;
use crate::names::{marker_name, write_name};

/// The maximum number of keys in a call: the stack of a script holds some thousands.
const MAX_BATCH_KEYS: usize = 1_000;

/// The maximum number of items in a call: a call should take only milliseconds.
const MAX_BATCH_ITEMS: usize = 2_000;

/// The channel to a task that waits for a reply.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, Failure>>;

/// A batch under construction.
#[derive(Default)]
pub(crate) struct BatchBuilder {
    /// The number of requests and changes in the batch.
    pub(crate) asked: usize,
    pub(crate) rules: Vec<(RuleId, Quota)>,
    pub(crate) keys: Vec<Key>,
    /// The names of the keys, concatenated.
    names: Vec<u8>,
    ends: Vec<usize>,
    /// The names of the markers of changes with an id; they follow the names of the keys.
    markers: Vec<Vec<u8>>,
    pub(crate) items: Vec<Item>,
    /// The waiters of each item.
    pub(crate) waiters: Waiters,
    by_key: HashTable<u32>,
}

/// A key of the batch.
pub(crate) struct Key {
    pub(crate) hash: u64,
    /// The index of its rule.
    pub(crate) rule: usize,
    /// The indices of the rules that its rule replaced; the key's names under them follow its own
    /// name.
    pub(crate) before: SmallVec<[usize; 2]>,
    /// The index of its name.
    name: usize,
    /// The offset of the bare key in its name.
    bare: usize,
    /// The index of the last item on this key.
    last: usize,
}

/// An operation of the batch; operations run in order.
pub(crate) enum Item {
    /// Identical requests.
    Requests {
        /// The checks of each request.
        checks: SmallVec<[CheckRequest; 2]>,
        /// The number of requests.
        many: usize,
    },
    /// A change that is not a request.
    Change {
        /// The index of the key.
        key: usize,
        /// The change.
        adjustment: Adjustment,
        /// The index of its marker, if it is applied once.
        marker: Option<usize>,
    },
}

/// The waiters of one item.
pub(crate) enum ItemWaiters {
    Requests(SmallVec<[ReplySender<DecisionReply>; 1]>),
    Change(ReplySender<Outcome>),
}

/// The waiters of a call, item by item.
#[derive(Default)]
pub(crate) struct Waiters(pub(crate) Vec<ItemWaiters>);

impl Waiters {
    /// Notifies all waiters that no reply came in time. If the call executes later, the charges of
    /// its requests are undone; changes cannot be undone.
    pub(crate) fn fail_late(self, deadline: Duration) {
        let (late, lost) = (Failure::TimedOut(deadline), Failure::failed("no answer in time"));
        for waiters in self.0 {
            let failure = if matches!(waiters, ItemWaiters::Change(_)) { &lost } else { &late };
            Self(vec![waiters]).fail(failure);
        }
    }

    /// Notifies all waiters that the call failed.
    pub(crate) fn fail(self, failure: &Failure) {
        for waiters in self.0 {
            // An error means that the receiver has stopped waiting.
            match waiters {
                ItemWaiters::Requests(waiting) => {
                    waiting.into_iter().for_each(|it| drop(it.send(Err(failure.clone()))));
                }
                ItemWaiters::Change(waiting) => drop(waiting.send(Err(failure.clone()))),
            }
        }
    }
}

/// A check on one key of the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckRequest {
    pub(crate) key: usize,
    pub(crate) amount: Amount,
    pub(crate) binding: bool,
    pub(crate) count_denied: bool,
}

/// A decision, and the slots that their owner held before.
pub(crate) struct DecisionReply {
    pub(crate) answer: Answer,
    /// The indices of the checks that renewed a slot.
    pub(crate) renewed: SmallVec<[usize; 1]>,
}

impl BatchBuilder {
    /// Whether the batch should not grow further.
    pub(crate) fn is_full(&self) -> bool {
        self.ends.len() + self.markers.len() >= MAX_BATCH_KEYS || self.items.len() >= MAX_BATCH_ITEMS
    }

    /// Iterates over all names: in the order of the keys, including names under replaced rules, then
    /// the markers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| self.name(at)).chain(self.markers.iter().map(Vec::as_slice))
    }

    /// Returns the number of names.
    pub(crate) const fn name_count(&self) -> usize {
        self.ends.len() + self.markers.len()
    }

    /// Returns the index of a marker among all names.
    pub(crate) const fn marker_at(&self, marker: usize) -> usize {
        self.ends.len() + marker
    }

    fn name(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.names[start..self.ends[at]]
    }

    /// The name of a key in Redis.
    pub(crate) fn name_of(&self, key: usize) -> &[u8] {
        self.name(self.keys[key].name)
    }

    /// The name of a key without the bare key.
    pub(crate) fn file(&self, key: usize) -> &[u8] {
        &self.name_of(key)[..self.keys[key].bare]
    }

    /// The rule of a key, with the parts that a change needs.
    pub(crate) fn rule_of(&self, key: usize) -> Rule {
        let (id, quota) = self.rules[self.keys[key].rule].clone();
        Rule { name: "".into(), id, quota, before: None }
    }

    /// The bare key, as the caller passed it.
    pub(crate) fn bare(&self, key: usize) -> &[u8] {
        &self.name_of(key)[self.keys[key].bare..]
    }

    /// Whether one of these keys is in the batch with a different quota. A call reads and writes a
    /// state once, so such a request has to wait for the next call.
    pub(crate) fn clashes<'k>(&self, asked: impl IntoIterator<Item = (&'k Rule, &'k [u8])>) -> bool {
        asked.into_iter().filter(|(rule, _)| shares_states(&rule.quota)).any(|(rule, key)| {
            let hash = hash(rule.id, key);
            let known = self.by_key.find(hash, |&at| {
                let (known, at) = (&self.keys[at as usize], at as usize);
                known.hash == hash && self.rules[known.rule].0 == rule.id && self.bare(at) == key
            });
            known.is_some_and(|&at| self.rules[self.keys[at as usize].rule].1 != rule.quota)
        })
    }

    /// Adds a request.
    pub(crate) fn ask(&mut self, prefix: &str, checks: &[Check<'_>], waiting: ReplySender<DecisionReply>) {
        self.asked += 1;
        let asked: SmallVec<[CheckRequest; 2]> = checks
            .iter()
            .map(|check| CheckRequest {
                key: self.key(prefix, check.rule, check.key),
                amount: check.amount,
                binding: check.binding,
                count_denied: check.count_denied,
            })
            .collect();
        let last = asked.first().map_or(usize::MAX, |first| self.keys[first.key].last);
        let joins = asked.iter().all(|it| {
            self.keys[it.key].last == last && !it.count_denied && !matches!(it.amount, Amount::Slot(_))
        });
        if joins
            && let Some(Item::Requests { checks, many }) = self.items.get_mut(last)
            && let Some(ItemWaiters::Requests(waiters)) = self.waiters.0.get_mut(last)
            && *checks == asked
        {
            *many += 1;
            waiters.push(waiting);
            return;
        }
        for it in &asked {
            self.keys[it.key].last = self.items.len();
        }
        let mut waiters = SmallVec::new();
        waiters.push(waiting);
        self.items.push(Item::Requests { checks: asked, many: 1 });
        self.waiters.0.push(ItemWaiters::Requests(waiters));
    }

    /// Adds a change; with an id, it is applied once.
    pub(crate) fn change(
        &mut self,
        prefix: &str,
        (rule, key): (&Rule, &[u8]),
        (adjustment, id): (Adjustment, Option<AdjustmentId>),
        waiting: ReplySender<Outcome>,
    ) {
        self.asked += 1;
        let marker = id.map(|id| {
            self.markers.push(marker_name(prefix, key, id));
            self.markers.len() - 1
        });
        let key = self.key(prefix, rule, key);
        self.keys[key].last = self.items.len();
        self.items.push(Item::Change { key, adjustment, marker });
        self.waiters.0.push(ItemWaiters::Change(waiting));
    }

    /// Returns the index of a key and adds the key if it is new.
    fn key(&mut self, prefix: &str, rule: &Rule, key: &[u8]) -> usize {
        let hash = hash(rule.id, key);
        let found = self.by_key.find(hash, |&at| {
            let known = &self.keys[at as usize];
            known.hash == hash && self.is_rule(known.rule, rule) && self.bare(at as usize) == key
        });
        if let Some(&at) = found {
            return at as usize;
        }
        let (at, name) = (self.keys.len(), self.ends.len());
        write_name(prefix, rule.id, key, &mut self.names);
        let start = if name == 0 { 0 } else { self.ends[name - 1] };
        let bare = self.names.len() - start - key.len();
        self.ends.push(self.names.len());
        let mut before = SmallVec::new();
        for past in rule.predecessors() {
            before.push(self.rule(past.id, &past.quota));
            write_name(prefix, past.id, key, &mut self.names);
            self.ends.push(self.names.len());
        }
        let rule = self.rule(rule.id, &rule.quota);
        self.keys.push(Key { hash, rule, before, name, bare, last: usize::MAX });
        let keys = &self.keys;
        // A batch has far fewer keys than `u32::MAX`.
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.by_key.insert_unique(hash, number, |&at| keys[at as usize].hash);
        at
    }

    /// Compares the quota too: rules with the same ID may have different quotas (`clashes`).
    fn is_rule(&self, at: usize, rule: &Rule) -> bool {
        self.rules[at].0 == rule.id && self.rules[at].1 == rule.quota
    }

    fn rule(&mut self, id: RuleId, quota: &Quota) -> usize {
        // A batch has few rules, and consecutive keys often share one.
        self.rules.iter().rposition(|(known, numbers)| *known == id && numbers == quota).unwrap_or_else(
            || {
                self.rules.push((id, quota.clone()));
                self.rules.len() - 1
            },
        )
    }
}

/// Whether rules with different quotas may have the same ID, and therefore share states.
pub(crate) const fn shares_states(quota: &Quota) -> bool {
    match quota {
        Quota::Bucket(bucket) => bucket.is_shared(),
        Quota::FixedWindow(_)
        | Quota::SlidingWindow(_)
        | Quota::SlidingParts(_)
        | Quota::SlidingLog(_)
        | Quota::Concurrency(_) => true,
    }
}

/// Whether two checks use one state with different quotas.
pub(crate) fn clash(one: &Check<'_>, other: &Check<'_>) -> bool {
    shares_states(&one.rule.quota)
        && one.rule.id == other.rule.id
        && one.key == other.key
        && one.rule.quota != other.rule.quota
}

/// Hashes a key for this process.
pub(crate) fn hash(rule: RuleId, key: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    use std::sync::LazyLock;
    static HASHER: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);
    let mut hasher = HASHER.build_hasher();
    hasher.write_u64(rule.0);
    hasher.write(key);
    hasher.finish()
}
