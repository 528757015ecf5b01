//! The states of the keys of one transaction, in memory while their locks are held.
//!
//! The usage of a key under the rules that its rule has replaced is carried over here: the
//! arithmetic is in `tollgate_core::carry`, and the order of the steps is that of
//! `tollgate_store::memory`. A row under a replaced rule notes the rule that it was carried over to.
//!
//! Not here: SQL. `connection` reads and writes the rows.

use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use tollgate_core::{Adjustment, Predecessor, Quota, Rule, RuleId, State, Timestamp};

use crate::failure::Failure;

/// The largest key that is stored as it is. PostgreSQL indexes values of up to 2,700 bytes.
const MAX_PLAIN_KEY_BYTES: usize = 1024;

/// A key under a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    pub(crate) rule: RuleId,
    pub(crate) key: Arc<[u8]>,
}

impl RowKey {
    /// Returns the rule as a column: PostgreSQL has no unsigned numbers.
    pub(crate) const fn column(&self) -> i64 {
        self.rule.0.cast_signed()
    }
}

/// Returns the stored form of a key: a long key ends with its hash. It is one byte longer than any
/// key that is stored as it is.
pub(crate) fn stored_key(key: &[u8]) -> Arc<[u8]> {
    if key.len() <= MAX_PLAIN_KEY_BYTES {
        return key.into();
    }
    let hash = Sha256::digest(key);
    let start = &key[..=MAX_PLAIN_KEY_BYTES - hash.len()];
    start.iter().copied().chain(hash).collect()
}

/// A row as it is stored.
#[derive(Debug)]
pub(crate) struct StoredRow {
    pub(crate) state: Vec<u8>,
    pub(crate) carried_to: Option<i64>,
    /// In microseconds since 1970. Not read.
    pub(crate) expires: i64,
}

/// The changes that a transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) written: Vec<(RowKey, StoredRow)>,
    pub(crate) deleted: Vec<RowKey>,
    /// The ids of adjustments, and their expiries in microseconds since 1970.
    pub(crate) ids: Vec<(u128, i64)>,
}

impl Changes {
    pub(crate) const fn is_empty(&self) -> bool {
        self.written.is_empty() && self.deleted.is_empty() && self.ids.is_empty()
    }
}

/// The state of a key under one rule.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// `None`: the key has no state.
    state: Option<State>,
    carried_to: Option<RuleId>,
    expires: Timestamp,
    /// Whether the bytes in the row are not a state.
    is_foreign: bool,
    is_stored: bool,
    is_changed: bool,
}

/// The states of keys whose locks are held.
#[derive(Debug)]
pub(crate) struct States {
    entries: HashMap<RowKey, Entry>,
    pub(crate) now: Timestamp,
}

/// The predecessors under which a key has usage, the latest first.
type Live<'r> = SmallVec<[(&'r Predecessor, RowKey); 2]>;

impl States {
    /// Creates the states of the stored rows.
    pub(crate) fn new(now: Timestamp, rows: impl IntoIterator<Item = (RowKey, StoredRow)>) -> Self {
        let entry = |(row, stored): (RowKey, StoredRow)| {
            let state = State::decode(&stored.state).ok();
            let carried_to = stored.carried_to.map(|id| RuleId(id.cast_unsigned()));
            let entry =
                Entry { is_foreign: state.is_none(), state, carried_to, is_stored: true, ..Entry::default() };
            (row, entry)
        };
        Self { entries: rows.into_iter().map(entry).collect(), now }
    }

    /// Prepares a key for a request: carries over its usage under replaced rules. A refused request
    /// does this, too.
    pub(crate) fn carry_over(&mut self, rule: &Rule, key: &Arc<[u8]>) -> Result<(), Failure> {
        let row = RowKey { rule: rule.id, key: Arc::clone(key) };
        if self.is_foreign(&row, &rule.quota) {
            // Errors name the rule and never the key.
            return Err(Failure::Foreign(format!("rule {:016x} ({})", rule.id.0, rule.name).into()));
        }
        if rule.before.is_none() {
            return Ok(());
        }
        let live = self.live(rule, key);
        if self.counts(&row, &rule.quota) {
            self.lower_to_bound(rule, &row, &live);
            return Ok(());
        }
        let is_carried = |(_, past): &(_, RowKey)| self.carried_to(past) == Some(rule.id);
        if live.iter().all(is_carried) {
            return Ok(());
        }
        let rested = self.rested(rule, &live).map(|quota| (quota, quota.fresh()));
        let states = live.iter().filter_map(|(it, past)| Some((&it.quota, self.state(past)?.clone())));
        let past: SmallVec<[(&Quota, State); 2]> = rested.into_iter().chain(states).collect();
        if let Some(state) = rule.carry_over(&past, self.now) {
            self.set(&row, &rule.quota, state);
        }
        for (before, past) in &live {
            if let Some(entry) = self.entries.get_mut(past) {
                entry.expires = entry.state.as_ref().map_or(self.now, |it| before.quota.expires_at(it));
                entry.carried_to = Some(rule.id);
                entry.is_changed = true;
            }
        }
        Ok(())
    }

    /// Returns the state of a key, to be changed and passed to [`write`](Self::write).
    pub(crate) fn read(&self, rule: &Rule, key: &Arc<[u8]>) -> State {
        let row = RowKey { rule: rule.id, key: Arc::clone(key) };
        self.state(&row).cloned().unwrap_or_else(|| rule.quota.fresh())
    }

    /// Stores the state of a key.
    pub(crate) fn write(&mut self, rule: &Rule, key: &Arc<[u8]>, state: State) {
        self.set(&RowKey { rule: rule.id, key: Arc::clone(key) }, &rule.quota, state);
    }

    /// Changes the states of a key under the replaced rules in the way in which its present state has
    /// changed. `change` returns the change of a state under a quota.
    pub(crate) fn follow(
        &mut self,
        rule: &Rule,
        key: &Arc<[u8]>,
        change: impl Fn(&Quota, &State) -> Option<Adjustment>,
    ) {
        if rule.before.is_none() {
            return;
        }
        for (before, row) in self.live(rule, key) {
            let Some(mut state) = self.state(&row).cloned() else { continue };
            let Some(adjustment) = change(&before.quota, &state) else { return };
            before.quota.adjust(&mut state, adjustment, self.now);
            self.set(&row, &before.quota, state);
        }
    }

    /// Returns the rows to write.
    pub(crate) fn into_changes(self, ids: Vec<(u128, i64)>) -> Changes {
        let mut changes = Changes { ids, ..Changes::default() };
        for (row, entry) in self.entries {
            if !entry.is_changed {
                continue;
            }
            match entry.state.filter(|_| entry.expires > self.now) {
                Some(state) => {
                    let carried_to = entry.carried_to.map(|id| id.0.cast_signed());
                    let stored =
                        StoredRow { state: state.encode(), carried_to, expires: column(entry.expires) };
                    changes.written.push((row, stored));
                }
                // The key is as good as new.
                None if entry.is_stored => changes.deleted.push(row),
                None => {}
            }
        }
        changes
    }

    fn state(&self, row: &RowKey) -> Option<&State> {
        self.entries.get(row)?.state.as_ref()
    }

    fn carried_to(&self, row: &RowKey) -> Option<RuleId> {
        self.entries.get(row)?.carried_to
    }

    fn set(&mut self, row: &RowKey, quota: &Quota, state: State) {
        let entry = self.entries.entry(row.clone()).or_default();
        let expires = quota.expires_at(&state);
        if entry.state.as_ref() != Some(&state) {
            *entry = Entry { state: Some(state), expires, is_changed: true, ..*entry };
        }
    }

    /// Returns whether a row holds bytes that are not a state, or a state of another algorithm.
    fn is_foreign(&self, row: &RowKey, quota: &Quota) -> bool {
        let Some(entry) = self.entries.get(row) else { return false };
        let is_other = |state: &State| discriminant(state) != discriminant(&quota.fresh());
        entry.is_foreign || entry.state.as_ref().is_some_and(is_other)
    }

    /// Returns whether the key has a state that has not expired.
    fn counts(&self, row: &RowKey, quota: &Quota) -> bool {
        !self.is_foreign(row, quota) && self.state(row).is_some_and(|it| quota.expires_at(it) > self.now)
    }

    fn live<'r>(&self, rule: &'r Rule, key: &Arc<[u8]>) -> Live<'r> {
        let row = |before: &'r Predecessor| (before, RowKey { rule: before.id, key: Arc::clone(key) });
        rule.predecessors().map(row).filter(|(before, row)| self.counts(row, &before.quota)).collect()
    }

    /// Returns the quota of the rule that counted the key last, if its state has expired: all states
    /// that still count were carried over to it.
    fn rested<'r>(&self, rule: &'r Rule, live: &Live<'r>) -> Option<&'r Quota> {
        let (latest, _) = live.first()?;
        let mut later = rule.predecessors().take_while(|it| it.id != latest.id);
        let counted = |to: &&Predecessor| live.iter().all(|(_, from)| self.carried_to(from) == Some(to.id));
        later.find(counted).map(|it| &it.quota)
    }

    /// Makes as much available as under a rule that the present rule raises.
    fn lower_to_bound(&mut self, rule: &Rule, row: &RowKey, live: &Live<'_>) {
        let quota = &rule.quota;
        if !matches!(quota, Quota::Bucket(_)) {
            // The state of a window is the same under a raise.
            return;
        }
        let raised = live.iter().filter(|(before, _)| quota.is_raise_of(&before.quota));
        let bounds = raised.filter_map(|(before, past)| {
            self.state(past).map(|state| quota.bound_by(&before.quota, state, self.now))
        });
        let bound = bounds.min_by_key(|state| quota.expires_at(state));
        let expires = self.state(row).map(|state| quota.expires_at(state));
        if let (Some(bound), Some(expires)) = (bound, expires)
            && quota.expires_at(&bound) < expires
        {
            self.set(row, quota, bound);
        }
    }
}

/// Returns a time as a column.
pub(crate) fn column(time: Timestamp) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_different_and_short_enough_for_an_index() {
        let long = vec![b'x'; 5_000];
        let other = [&long[..], b"y"].concat();
        let [long, other] = [&long, &other].map(|key| stored_key(key));
        assert_ne!(long, other);
        assert_eq!((long.len(), other.len()), (1_025, 1_025));
        let plain = vec![b'x'; MAX_PLAIN_KEY_BYTES];
        assert_eq!(*stored_key(&plain), *plain);
    }
}
