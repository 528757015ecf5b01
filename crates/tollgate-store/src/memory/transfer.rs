//! States that move between the stores of two nodes.
//!
//! A state leaves by a copy, and is merged into the other store: of two states of one key, the one
//! with the higher usage counts. A state can therefore be merged any number of times, which makes a
//! lost reply harmless.
//!
//! Windows that are aligned to the calendar or to 1970 travel in the time of the wall clock, on which
//! both nodes place their windows. All other states travel in the monotonic time of their store, and are
//! converted ([`Quota::moved`]).

use tollgate_core::{Adjustment, Amount, Quota, Rule, State, Timestamp};

use super::MemoryStore;
use super::action::Action;
use super::prior_usage::PriorUsage;
use crate::clock::Clock;

/// The state of a key that comes from another store.
struct TransferredState<'s>(&'s State);

impl PriorUsage for TransferredState<'_> {
    const EXISTS: bool = true;

    fn state(&self) -> Option<State> {
        Some(self.0.clone())
    }

    fn bound(&self) -> Option<State> {
        None
    }

    fn carried(&self) {}
}

impl<C: Clock> MemoryStore<C> {
    /// Returns the state of a key under a rule if it still counts, for [`merge_state`](Self::merge_state)
    /// of another store. For a key that may have been evicted, returns the usage that it would start from.
    pub fn copy_state(&self, rule: &Rule, key: &[u8]) -> Option<State> {
        let now = self.table.clamp_time(self.now());
        self.table.set_wall_ahead(self.clock.wall_ahead(now));
        let state = self.read(rule.id, &rule.quota, key, now)?;
        if rule.quota.expires_at(&state) <= now {
            return None;
        }
        let wall = now.shifted(self.table.wall_ahead());
        Some(if rule.quota.follows_wall() { rule.quota.moved(&state, now, wall) } else { state })
    }

    /// Merges a state of another store, which was copied when it was `from` there and is not later than
    /// `to` here: afterwards the key has at least its usage. Predecessors of the rule are not considered.
    pub fn merge_state(&self, rule: &Rule, key: &[u8], state: &State, from: Timestamp, to: Timestamp) {
        let now = self.table.clamp_time(self.now());
        self.table.set_wall_ahead(self.clock.wall_ahead(now));
        let wall = now.shifted(self.table.wall_ahead());
        let (from, to) = if rule.quota.follows_wall() { (wall, now) } else { (from, to) };
        self.merge_steady(rule, key, &rule.quota.moved(state, from, to));
    }

    /// Merges a state in the monotonic time of this store.
    pub fn merge_steady(&self, rule: &Rule, key: &[u8], state: &State) {
        let now = self.table.clamp_time(self.now());
        self.table.set_wall_ahead(self.clock.wall_ahead(now));
        let Rule { id, quota, .. } = rule;
        if quota.expires_at(state) <= now {
            return;
        }
        let hash = self.hasher.place(*id, key);
        let present = self.read_stored(*id, quota, key, now).filter(|it| quota.expires_at(it) > now);
        let Some(present) = present else {
            let unchanged = Action::Adjust(Adjustment::Grant { units: 0 });
            self.act_after(rule, key, hash, unchanged, now, &TransferredState(state));
            return;
        };
        if let (Quota::Concurrency(_), State::Concurrency(leases)) = (quota, state) {
            for lease in leases.held.iter().filter(|lease| lease.expires > now) {
                let slot = Amount::Slot(lease.owner);
                self.act_after(rule, key, hash, Action::Acquire(slot), now, &super::NoPriorUsage);
            }
            return;
        }
        let missing = quota.used(state, now).saturating_sub(quota.used(&present, now));
        if missing > 0 {
            let charge = Action::Adjust(quota.echo(missing));
            self.act_after(rule, key, hash, charge, now, &super::NoPriorUsage);
        }
    }

    /// Returns the state of a key that spent `units` at `at` and nothing since, in monotonic time.
    pub fn state_after(rule: &Rule, units: u64, at: Timestamp) -> State {
        let mut state = rule.quota.fresh();
        rule.quota.adjust(&mut state, rule.quota.echo(units), at);
        state
    }
}
