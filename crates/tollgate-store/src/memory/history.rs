//! The states of one key under the predecessors of its rule, in the tables of this store.
//!
//! The arithmetic is in `tollgate_core`; `prior_usage` defines when it runs.

use std::cell::Cell;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Predecessor, Quota, Rule, RuleId, State, Timestamp};

use super::MemoryStore;
use super::action::Action;
use super::instant::ClockKind;
use super::prior_usage::PriorUsage;
use super::word::PackedState;
use crate::clock::Clock;

/// The states of a key under the rules that its present rule has replaced.
pub(super) struct History<'a, C> {
    store: &'a MemoryStore<C>,
    rule: &'a Rule,
    key: &'a [u8],
    now: Timestamp,
    /// Whether the states were carried over in this step.
    is_new: Cell<bool>,
}

/// The states that still count, the latest rule first.
type Live<'a> = SmallVec<[(&'a Predecessor, State); 2]>;

impl<'a, C: Clock> History<'a, C> {
    pub(super) const fn new(
        store: &'a MemoryStore<C>,
        rule: &'a Rule,
        key: &'a [u8],
        now: Timestamp,
    ) -> Self {
        Self { store, rule, key, now, is_new: Cell::new(false) }
    }

    fn live(&self) -> Live<'a> {
        let read = |before: &'a Predecessor| {
            let state = self.store.read(before.id, &before.quota, self.key, self.now)?;
            (before.quota.expires_at(&state) > self.now).then_some((before, state))
        };
        self.rule.predecessors().filter_map(read).collect()
    }

    /// Applies the action to the states under the predecessors.
    pub(super) fn follow(&self, act: Action, outcome: &Outcome) {
        if self.is_new.get() {
            for (before, state) in self.live() {
                self.mark(before.id, before.quota.expires_at(&state));
            }
        }
        let change = |Predecessor { id, quota, .. }: &Predecessor| match act {
            // A lease was taken under the present rule: the states before it keep its charge.
            Action::Peek(_)
            | Action::Adjust(
                Adjustment::Release { .. }
                | Adjustment::ReleaseOldest { .. }
                | Adjustment::Renew { .. }
                | Adjustment::ReturnLease { .. },
            ) => None,
            Action::Adjust(Adjustment::Charge { units, .. }) => Some(quota.echo(units)),
            Action::Adjust(adjustment) => Some(adjustment),
            Action::Acquire(amount) => {
                let units = Some(outcome.units()).filter(|&units| units > 0)?;
                let leased = match amount {
                    Amount::Lease(request) => {
                        self.store.read(*id, quota, self.key, self.now).zip(Some(request.ttl))
                    }
                    _ => None,
                };
                let lease = |(state, ttl)| quota.echo_lease(units, ttl, &state, self.now);
                Some(leased.map_or_else(|| quota.echo(units), lease))
            }
        };
        let usage = (self.store.evictions() > 0).then(|| self.usage_before(outcome));
        for before in self.rule.predecessors() {
            let Some(adjustment) = change(before) else { return };
            if let Some(usage) = usage {
                self.restore(before, usage);
            }
            let ends = self.store.amend(before.id, &before.quota, self.key, adjustment, self.now);
            if let Some(ends) = ends.filter(|_| self.is_marked(before.id, self.rule.id)) {
                self.mark(before.id, ends);
            }
        }
    }

    /// Returns the units that the key had used before an outcome, by the rule that counts most.
    fn usage_before(&self, outcome: &Outcome) -> u64 {
        let Rule { id, quota, .. } = self.rule;
        let present = self.store.read(*id, quota, self.key, self.now);
        let present = present.map_or(0, |state| quota.used(&state, self.now));
        let earlier = self.live().iter().map(|(before, state)| before.quota.used(state, self.now)).max();
        present.saturating_sub(outcome.units()).max(earlier.unwrap_or(0))
    }

    /// Stores a state for a key that may have been evicted under a predecessor: the floor, and not
    /// less than the key has used by the other rules. The floor is that of other keys if this key
    /// had no state there. The usage would then be missing, and the state would wrongly bound
    /// that of a raised limit.
    fn restore(&self, before: &Predecessor, usage: u64) {
        let Predecessor { id, quota, .. } = before;
        if self.store.read_stored(*id, quota, self.key, self.now).is_some() {
            return;
        }
        let Some(floor) = self.store.read(*id, quota, self.key, self.now) else { return };
        // Both are whole units, rounded up: one more covers the fraction.
        let missing = (usage + 1).saturating_sub(quota.used(&floor, self.now));
        if usage > 0 && missing > 0 {
            self.store.amend(*id, quota, self.key, quota.echo(missing), self.now);
        }
    }

    /// Returns the hash under which the mark of a pair of rules is stored.
    fn mark_hash(&self, from: RuleId, to: RuleId) -> u64 {
        // Different for each pair of rules, and for the reversed pair.
        let pair = from.0.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ to.0;
        self.store.hasher.place(RuleId(pair), self.key)
    }

    /// Returns whether the state under one rule was carried over to another.
    fn is_marked(&self, from: RuleId, to: RuleId) -> bool {
        self.store.table.marked_until(self.mark_hash(from, to)).is_some_and(|ends| ends > self.now)
    }

    /// Records that the state under a rule was carried over, for as long as it counts.
    fn mark(&self, from: RuleId, ends: Timestamp) {
        self.store.table.mark(self.mark_hash(from, self.rule.id), ends, self.now);
    }

    /// Returns the quota of the rule that counted the key last, if its state has expired: all
    /// states that still count were carried over to it.
    fn rested(&self, live: &Live<'_>) -> Option<&'a Quota> {
        let (latest, _) = live.first()?;
        let mut later = self.rule.predecessors().take_while(|it| it.id != latest.id);
        let counted = |to: &&Predecessor| live.iter().all(|(from, _)| self.is_marked(from.id, to.id));
        later.find(counted).map(|it| &it.quota)
    }
}

impl<C: Clock> PriorUsage for History<'_, C> {
    const EXISTS: bool = true;

    fn state(&self) -> Option<State> {
        let live = self.live();
        if live.iter().all(|(before, _)| self.is_marked(before.id, self.rule.id)) {
            return None;
        }
        let rested = self.rested(&live).map(|quota| (quota, quota.fresh()));
        let states = live.into_iter().map(|(before, state)| (&before.quota, state));
        let past: SmallVec<[_; 2]> = rested.into_iter().chain(states).collect();
        self.rule.carry_over(&past, self.now)
    }

    fn bound(&self) -> Option<State> {
        let quota = &self.rule.quota;
        // Not the floor of an evicted key: charges do not raise it, so it would reset the key
        // at each request.
        let of = |before: &Predecessor| {
            let state = self.store.read_stored(before.id, &before.quota, self.key, self.now)?;
            let counts = before.quota.expires_at(&state) > self.now;
            counts.then(|| quota.bound_by(&before.quota, &state, self.now))
        };
        // The state of a window is the same under a raise; each bucket has its own.
        let is_raised = |it: &&Predecessor| matches!(quota, Quota::Bucket(_)) && quota.is_raise_of(&it.quota);
        let bounds = self.rule.predecessors().filter(is_raised).filter_map(of);
        bounds.min_by_key(|state| quota.expires_at(state))
    }

    fn carried(&self) {
        self.is_new.set(true);
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Changes the state of a key under a rule if it still counts. Returns its expiry.
    fn amend(
        &self,
        id: RuleId,
        quota: &Quota,
        key: &[u8],
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (hash, at) = (self.hasher.place(id, key), self.table.instant(now));
        let adjustment = match adjustment {
            Adjustment::Refund { units, charge } => {
                let charge = charge.under_predecessor(quota).shifted(at.ahead(ClockKind::of(quota)));
                Adjustment::Refund { units, charge }
            }
            other => other,
        };
        let state = match quota {
            Quota::Bucket(bucket) if bucket.fits() => {
                State::Bucket(self.table.amend(hash, bucket, adjustment, now)?)
            }
            Quota::FixedWindow(window) if window.fits() => {
                State::FixedWindow(self.table.amend(hash, window, adjustment, now)?)
            }
            _ => return self.wide.amend(self.wide_key(id, key, hash), quota, adjustment, at),
        };
        Some(quota.expires_at(&state))
    }
}
