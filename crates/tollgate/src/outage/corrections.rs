//! Deferred corrections of keys: final costs, refunds, released slots.
//!
//! A decision that the store made is corrected in the store. While the store gives no answer, the
//! correction waits here, and `Limiter::reconcile` applies it when the store is back. A correction
//! that may have reached the store is not repeated, as for charges (`ledger`): repeating it could
//! charge a key for usage that it never had, or refund too much. Releasing a slot is idempotent, so
//! it is repeated.
//!
//! A deferred charge decays: the part that time has given back by the end of the outage is not
//! applied. A refund carries the time at which its units were taken.
//!
//! Invariant: the number of corrections is bounded; a correction that finds no room is counted as
//! lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Adjustment, Overdraft, Quota, Rule, State, Timestamp};
use tollgate_policy::Key;
use tollgate_store::StoreError;

use super::Outage;

/// A change of one key that the store has not taken.
#[derive(Debug)]
pub(crate) struct Correction {
    /// The limit that the rule belongs to.
    pub(crate) limit: Box<str>,
    /// The rule that counted the key.
    pub(crate) rule: Rule,
    pub(crate) key: Key,
    adjustment: Adjustment,
    /// A key with only the reserved charge, and the same key after this charge.
    reserved: State,
    settled: State,
    since: Timestamp,
}

/// A change of a key that a decision charged.
pub(crate) struct Change<'c> {
    pub(crate) limit: &'c str,
    pub(crate) rule: &'c Rule,
    pub(crate) key: &'c Key,
    pub(crate) adjustment: Adjustment,
    /// The units that the decision charged, and the time of the charge.
    pub(crate) reserve: u64,
    pub(crate) taken_at: Timestamp,
}

impl Correction {
    fn new(change: &Change<'_>, now: Timestamp) -> Self {
        let &Change { limit, rule, key, adjustment, reserve, taken_at } = change;
        let mut reserved = rule.quota.fresh();
        let mut settled = reserved.clone();
        if let Adjustment::Charge { .. } = adjustment {
            let reserve = Adjustment::Charge { units: reserve, overdraft: Overdraft::None };
            // The store's clock may be ahead of this one.
            rule.quota.adjust(&mut reserved, reserve, taken_at.min(now));
            settled = reserved.clone();
            rule.quota.adjust(&mut settled, adjustment, now);
        }
        let (limit, rule, key) = (limit.into(), rule.clone(), key.clone());
        Self { limit, rule, key, adjustment, reserved, settled, since: now }
    }

    /// Returns the part of the change that is left, if any.
    pub(crate) fn adjustment(&self, now: Timestamp) -> Option<Adjustment> {
        match (self.adjustment, &self.rule.quota) {
            (Adjustment::Charge { .. }, quota) => {
                let units = quota.used(&self.settled, now).saturating_sub(quota.used(&self.reserved, now));
                let overdraft = Overdraft::OneCapacity;
                (units > 0).then_some(Adjustment::Charge { units, overdraft })
            }
            (release @ Adjustment::Release { .. }, Quota::Concurrency(slots)) => {
                (now.since(self.since) < slots.ttl()).then_some(release)
            }
            (other, _) => Some(other),
        }
    }

    /// Returns whether the adjustment may be repeated after this error.
    fn may_repeat(adjustment: Adjustment, error: &StoreError) -> bool {
        match error {
            StoreError::Refused(_) | StoreError::TimedOut(_) => true,
            StoreError::Failed(_) => matches!(adjustment, Adjustment::Release { .. }),
            _ => false,
        }
    }
}

/// The queue of deferred corrections, the oldest first.
#[derive(Debug)]
pub(crate) struct Corrections {
    queue: Mutex<VecDeque<Correction>>,
    waiting: AtomicUsize,
    max_waiting: usize,
}

impl Corrections {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self { queue: Mutex::default(), waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Returns the number of deferred corrections.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Correction>> {
        // A thread that panicked while holding the lock left corrections that can be applied.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a correction. Returns whether there was room.
    fn push(&self, correction: Correction) -> bool {
        let mut queue = self.queue();
        let has_room = queue.len() < self.max_waiting;
        if has_room {
            queue.push_back(correction);
            self.waiting.store(queue.len(), Ordering::Relaxed);
        }
        has_room
    }

    fn pop(&self) -> Option<Correction> {
        if self.len() == 0 {
            return None;
        }
        let mut queue = self.queue();
        let correction = queue.pop_front();
        self.waiting.store(queue.len(), Ordering::Relaxed);
        correction
    }
}

impl Outage {
    /// Defers a correction until the store is back. Returns whether it is kept: it is not if the
    /// store may have applied it or will always refuse it.
    pub(crate) fn correct_later(&self, change: &Change<'_>, error: Option<&StoreError>) -> bool {
        let may_repeat = error.is_none_or(|error| Correction::may_repeat(change.adjustment, error));
        let now = self.now();
        let kept = may_repeat && self.corrections.push(Correction::new(change, now));
        if !kept {
            self.ledger.count_lost();
            if may_repeat {
                self.warn_of_loss(now);
            }
        }
        kept
    }

    /// Returns the number of deferred corrections.
    pub(crate) fn waiting_corrections(&self) -> usize {
        self.corrections.len()
    }

    /// Removes the oldest correction from the queue.
    pub(crate) fn take_correction(&self) -> Option<PendingCorrection<'_>> {
        let correction = self.corrections.pop()?;
        Some(PendingCorrection { outage: self, correction: Some(correction) })
    }
}

/// A correction that is being applied. If dropped before its end, it is lost: the store may have
/// applied it.
pub(crate) struct PendingCorrection<'o> {
    outage: &'o Outage,
    correction: Option<Correction>,
}

impl PendingCorrection<'_> {
    pub(crate) fn get(&self) -> Option<&Correction> {
        self.correction.as_ref()
    }

    /// Ends the correction: it was applied, or nothing is left of it.
    pub(crate) fn finish(mut self) {
        self.correction = None;
    }

    /// Records that the store gave no answer. Returns whether the correction will be repeated.
    pub(crate) fn failed(mut self, error: &StoreError) -> bool {
        let may_repeat = |it: &Correction| Correction::may_repeat(it.adjustment, error);
        match self.correction.take_if(|it| may_repeat(it)) {
            Some(correction) => {
                let kept = self.outage.corrections.push(correction);
                if !kept {
                    self.outage.ledger.count_lost();
                }
                kept
            }
            None => false,
        }
    }
}

impl Drop for PendingCorrection<'_> {
    fn drop(&mut self) {
        if self.correction.is_some() {
            self.outage.ledger.count_lost();
        }
    }
}
