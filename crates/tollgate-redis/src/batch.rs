//! A call in the making: everything that is asked while another call is under way.
//!
//! Requests keep their order wherever they touch the same key. A request that asks
//! for exactly what the last one on its keys asked for joins it, so that a crowd
//! for one hot key becomes "take up to n" and costs Redis what one costs.
//!
//! Not here: sending it (`dispatcher`), understanding the answer (`replay`).

use std::time::Duration;

use hashbrown::HashTable;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Rule, RuleId};
use tollgate_store::{Answer, Check};

use crate::failure::Failure;
use crate::names::write_name;

/// The most keys one call asks for: a script's stack holds some thousands.
const MAX_BATCH_KEYS: usize = 1_000;

/// The most items: a call should be a matter of milliseconds.
const MAX_BATCH_ITEMS: usize = 2_000;

/// Whoever waits for an answer.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, Failure>>;

/// A call in the making.
#[derive(Default)]
pub(crate) struct BatchBuilder {
    /// How many wait for it.
    pub(crate) asked: usize,
    pub(crate) rules: Vec<(RuleId, Quota)>,
    pub(crate) keys: Vec<Key>,
    /// Names and their ends, one after the other.
    names: Vec<u8>,
    ends: Vec<usize>,
    pub(crate) items: Vec<Item>,
    /// Who waits for each item.
    pub(crate) waiters: Waiters,
    by_key: HashTable<u32>,
}

/// A key of the call.
pub(crate) struct Key {
    pub(crate) hash: u64,
    /// Which of the rules counts it.
    pub(crate) rule: usize,
    /// Which rules it has replaced; their names for the key follow its own.
    pub(crate) before: SmallVec<[usize; 2]>,
    /// Where its name is.
    name: usize,
    /// The key itself begins here in its name.
    bare: usize,
    /// The last item that asks for it.
    last: usize,
}

/// Something to be done, in order.
pub(crate) enum Item {
    /// Requests that are all alike.
    Requests {
        /// What each of them asks for.
        checks: SmallVec<[CheckRequest; 2]>,
        /// How many they are.
        many: usize,
    },
    /// A change that is not a request.
    Change {
        /// To which key.
        key: usize,
        /// What is done.
        adjustment: Adjustment,
    },
}

/// Who waits for an item.
pub(crate) enum ItemWaiters {
    Requests(SmallVec<[ReplySender<DecisionReply>; 1]>),
    Change(ReplySender<Outcome>),
}

/// Who waits for a call, item by item.
#[derive(Default)]
pub(crate) struct Waiters(pub(crate) Vec<ItemWaiters>);

impl Waiters {
    /// Tells everybody that no answer came in time. Should the call land after all, what
    /// requests took is given back; a change cannot be.
    pub(crate) fn fail_late(self, deadline: Duration) {
        let (late, lost) = (Failure::TimedOut(deadline), Failure::failed("no answer in time"));
        for waiters in self.0 {
            let failure = if matches!(waiters, ItemWaiters::Change(_)) { &lost } else { &late };
            Self(vec![waiters]).fail(failure);
        }
    }

    /// Tells everybody that nothing came of it.
    pub(crate) fn fail(self, failure: &Failure) {
        for waiters in self.0 {
            // Whoever has stopped waiting need not be told.
            match waiters {
                ItemWaiters::Requests(waiting) => {
                    waiting.into_iter().for_each(|it| drop(it.send(Err(failure.clone()))));
                }
                ItemWaiters::Change(waiting) => drop(waiting.send(Err(failure.clone()))),
            }
        }
    }
}

/// What is asked of one key of the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckRequest {
    pub(crate) key: usize,
    pub(crate) amount: Amount,
    pub(crate) binding: bool,
    pub(crate) count_denied: bool,
}

/// An answer, and which slots were held before they were asked for.
pub(crate) struct DecisionReply {
    pub(crate) answer: Answer,
    /// Checks that renewed a slot, by their place in the request.
    pub(crate) renewed: SmallVec<[usize; 1]>,
}

impl BatchBuilder {
    /// Whether a call of this size should not grow further.
    pub(crate) fn is_full(&self) -> bool {
        self.ends.len() >= MAX_BATCH_KEYS || self.items.len() >= MAX_BATCH_ITEMS
    }

    /// Every name, in the order of the keys, replaced rules included.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(at, _)| self.name(at))
    }

    fn name(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.names[start..self.ends[at]]
    }

    /// What a key is called.
    pub(crate) fn name_of(&self, key: usize) -> &[u8] {
        self.name(self.keys[key].name)
    }

    /// What a key's name begins with: all but the key itself.
    pub(crate) fn file(&self, key: usize) -> &[u8] {
        &self.name_of(key)[..self.keys[key].bare]
    }

    /// The rule that counts a key, as far as a change to it needs it.
    pub(crate) fn rule_of(&self, key: usize) -> Rule {
        let (id, quota) = self.rules[self.keys[key].rule].clone();
        Rule { name: "".into(), id, quota, before: None }
    }

    /// The key itself, as whoever asked knows it.
    pub(crate) fn bare(&self, key: usize) -> &[u8] {
        &self.name_of(key)[self.keys[key].bare..]
    }

    /// Whether one of these keys is in the call already under other numbers: a call reads
    /// and writes a state once, so that one has to wait for the next.
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

    /// Adds a change.
    pub(crate) fn change(
        &mut self,
        prefix: &str,
        (rule, key): (&Rule, &[u8]),
        adjustment: Adjustment,
        waiting: ReplySender<Outcome>,
    ) {
        self.asked += 1;
        let key = self.key(prefix, rule, key);
        self.keys[key].last = self.items.len();
        self.items.push(Item::Change { key, adjustment });
        self.waiters.0.push(ItemWaiters::Change(waiting));
    }

    /// Which key of the call this is, a new one if need be.
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
        // A call has far fewer keys than that.
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.by_key.insert_unique(hash, number, |&at| keys[at as usize].hash);
        at
    }

    /// Rules of one id may have different numbers (`clashes`), so those count too.
    fn is_rule(&self, at: usize, rule: &Rule) -> bool {
        self.rules[at].0 == rule.id && self.rules[at].1 == rule.quota
    }

    fn rule(&mut self, id: RuleId, quota: &Quota) -> usize {
        // The rules of one call are few, and neighbours often share theirs.
        self.rules.iter().rposition(|(known, numbers)| *known == id && numbers == quota).unwrap_or_else(
            || {
                self.rules.push((id, quota.clone()));
                self.rules.len() - 1
            },
        )
    }
}

/// Whether rules that differ in their numbers may have one id, and so the same states.
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

/// Whether two checks ask for one state by different numbers.
pub(crate) fn clash(one: &Check<'_>, other: &Check<'_>) -> bool {
    shares_states(&one.rule.quota)
        && one.rule.id == other.rule.id
        && one.key == other.key
        && one.rule.quota != other.rule.quota
}

/// Tells keys apart within this process.
pub(crate) fn hash(rule: RuleId, key: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    use std::sync::LazyLock;
    static HASHER: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);
    let mut hasher = HASHER.build_hasher();
    hasher.write_u64(rule.0);
    hasher.write(key);
    hasher.finish()
}
