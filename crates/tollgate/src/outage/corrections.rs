//! Deferred corrections of keys: final costs, refunds, released slots.
//!
//! A decision that the store made is corrected in the store. While the store gives no answer, the
//! correction waits here, and `Limiter::reconcile` applies it when the store is back.
//!
//! A correction is in doubt if the store may have applied it. It is repeated under the same
//! [`AdjustmentId`], by which the store recognizes that it has applied it. A store that recognizes
//! no ids is charged again, so a key may pay twice but never too little; a refund in doubt is then
//! lost. So is a refund in doubt that is older than the store recognizes ids. Releasing a slot is
//! idempotent and needs no id.
//!
//! A deferred charge decays: the part that has come back by the end of the outage is not
//! applied. A refund carries the time at which its units were taken.
//!
//! Releases have a queue of their own, because a slot that is not released refuses requests: they are
//! applied first, and corrections do not take their room. A correction that fails waits behind all
//! that have not been tried ([`Lane`]), so that a key or a part of the store that keeps failing does
//! not delay the others.
//!
//! Invariant: the number of corrections is bounded; a correction that finds no room is counted as
//! lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Adjustment, Overdraft, Quota, Rule, Span, State, Timestamp};
use tollgate_policy::Key;
use tollgate_store::{ADJUSTMENT_ID_LIFETIME, AdjustmentId, StoreError};

use super::Outage;

/// How long a refund in doubt is repeated. Half the time for which the store recognizes its id,
/// because this node learns of the doubt later than the store may have applied it.
const MAX_DOUBT: Span = Span::from_micros(ADJUSTMENT_ID_LIFETIME.as_micros() / 2);

/// A change of one key that the store has not taken.
#[derive(Debug)]
pub(crate) struct Correction {
    /// The limit that the rule belongs to.
    pub(crate) limit: Box<str>,
    /// The rule that counted the key.
    pub(crate) rule: Rule,
    pub(crate) key: Key,
    pub(crate) id: AdjustmentId,
    adjustment: Adjustment,
    /// A key with only the reserved charge, and the same key after this charge.
    reserved: State,
    settled: State,
    since: Timestamp,
    /// The first time at which the store may have applied it.
    in_doubt_since: Option<Timestamp>,
}

/// A change of a key that a decision charged.
#[derive(Clone, Copy)]
pub(crate) struct Change<'c> {
    pub(crate) limit: &'c str,
    pub(crate) rule: &'c Rule,
    pub(crate) key: &'c Key,
    pub(crate) adjustment: Adjustment,
    pub(crate) id: AdjustmentId,
    /// The units that the decision charged, and the time of the charge.
    pub(crate) reserve: u64,
    pub(crate) taken_at: Timestamp,
}

/// Whether the store applied a change that it did not confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeStatus {
    /// It did not, and may take it later.
    NotApplied,
    /// It is unknown.
    Unknown,
    /// It did not, and never will.
    Refused,
}

impl ChangeStatus {
    fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Refused(_) | StoreError::TimedOut(_) | StoreError::Migrating(_) => Self::NotApplied,
            StoreError::Foreign(_) => Self::Refused,
            StoreError::Part(error) => Self::of(error),
            _ => Self::Unknown,
        }
    }

    /// Returns whether the adjustment may be repeated. `recognized`: the store recognizes ids.
    const fn may_repeat(self, adjustment: Adjustment, recognized: bool) -> bool {
        match self {
            Self::NotApplied => true,
            Self::Unknown => {
                recognized || matches!(adjustment, Adjustment::Charge { .. } | Adjustment::Release { .. })
            }
            Self::Refused => false,
        }
    }
}

impl Correction {
    fn new(change: &Change<'_>, status: ChangeStatus, now: Timestamp) -> Self {
        let &Change { limit, rule, key, adjustment, id, reserve, taken_at } = change;
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
        let in_doubt_since = (status == ChangeStatus::Unknown).then_some(now);
        Self { limit, rule, key, id, adjustment, reserved, settled, since: now, in_doubt_since }
    }

    const fn is_release(&self) -> bool {
        matches!(self.adjustment, Adjustment::Release { .. } | Adjustment::ReleaseOldest { .. })
    }

    /// Returns the part of the change that is left, if any.
    pub(crate) fn adjustment(&self, now: Timestamp) -> Option<Adjustment> {
        match (self.adjustment, &self.rule.quota) {
            (Adjustment::Charge { overdraft, .. }, quota) => {
                let units = quota.used(&self.settled, now).saturating_sub(quota.used(&self.reserved, now));
                (units > 0).then_some(Adjustment::Charge { units, overdraft })
            }
            (release @ Adjustment::Release { .. }, Quota::Concurrency(slots)) => {
                (now.since(self.since) < slots.ttl()).then_some(release)
            }
            // The slot that it was for has ended by then, and another request may hold the oldest one.
            (Adjustment::ReleaseOldest { .. }, Quota::Concurrency(slots))
                if now.since(self.since) >= slots.ttl() =>
            {
                None
            }
            (other, _) => {
                let is_recognized = |since: Timestamp| now.since(since) < MAX_DOUBT;
                self.in_doubt_since.is_none_or(is_recognized).then_some(other)
            }
        }
    }
}

/// The corrections that are applied one after the other, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Released slots that no pass has tried.
    Releases,
    /// Other corrections that no pass has tried.
    Charges,
    /// Released slots that the store did not take.
    FailedReleases,
    /// Other corrections that the store did not take.
    FailedCharges,
}

impl Lane {
    /// All lanes, in the order in which a pass applies them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Releases, Self::Charges, Self::FailedReleases, Self::FailedCharges];

    const fn of(correction: &Correction, has_failed: bool) -> Self {
        match (correction.is_release(), has_failed) {
            (true, false) => Self::Releases,
            (false, false) => Self::Charges,
            (true, true) => Self::FailedReleases,
            (false, true) => Self::FailedCharges,
        }
    }
}

/// The queues of deferred corrections, one for each lane.
type Queues = [VecDeque<Correction>; Lane::ALL.len()];

/// The deferred corrections.
#[derive(Debug)]
pub(crate) struct Corrections {
    queues: Mutex<Queues>,
    waiting: AtomicUsize,
    /// The largest number of releases, and of other corrections.
    max_waiting: usize,
}

impl Corrections {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self { queues: Mutex::default(), waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Returns the number of deferred corrections.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of deferred corrections in each lane.
    fn lengths(&self) -> [usize; Lane::ALL.len()] {
        if self.len() == 0 { Default::default() } else { self.queues().each_ref().map(VecDeque::len) }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // A thread that panicked while holding the lock left corrections that can be applied.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a correction. Returns whether there was room.
    fn push(&self, correction: Correction, has_failed: bool) -> bool {
        let mut queues = self.queues();
        let same_kind = [false, true].map(|has_failed| Lane::of(&correction, has_failed) as usize);
        let has_room = same_kind.iter().map(|&lane| queues[lane].len()).sum::<usize>() < self.max_waiting;
        if has_room {
            queues[Lane::of(&correction, has_failed) as usize].push_back(correction);
            self.count(&queues);
        }
        has_room
    }

    fn pop(&self, lane: Lane) -> Option<Correction> {
        let mut queues = self.queues();
        let correction = queues[lane as usize].pop_front();
        self.count(&queues);
        correction
    }

    /// Publishes the number of corrections. Called under the lock, so that the last value is the
    /// current one.
    fn count(&self, queues: &Queues) {
        self.waiting.store(queues.iter().map(VecDeque::len).sum(), Ordering::Relaxed);
    }
}

impl Outage {
    /// Defers a change until the store is back. Returns whether there was room.
    pub(crate) fn defer(&self, change: &Change<'_>) -> bool {
        self.corrections.push(Correction::new(change, ChangeStatus::NotApplied, self.now()), false)
    }

    /// Defers a change until the store is back, or counts it as lost.
    pub(crate) fn defer_or_lose(&self, change: &Change<'_>) {
        if !self.defer(change) {
            self.lose_correction(true);
        }
    }

    /// Starts a change in the store. `recognized`: the store recognizes the ids of adjustments.
    pub(crate) const fn start_change<'o>(
        &'o self,
        change: Change<'o>,
        recognized: bool,
    ) -> PendingChange<'o> {
        PendingChange { outage: self, change: Some(change), recognized }
    }

    /// Returns the number of deferred corrections in each lane.
    pub(crate) fn waiting_corrections(&self) -> [usize; Lane::ALL.len()] {
        self.corrections.lengths()
    }

    /// Removes the oldest correction of a lane. `recognized`: the store recognizes the ids of
    /// adjustments.
    pub(crate) fn take_correction(&self, lane: Lane, recognized: bool) -> Option<PendingCorrection<'_>> {
        let correction = self.corrections.pop(lane)?;
        Some(PendingCorrection { outage: self, correction: Some(correction), recognized })
    }

    /// Counts a correction that could not be kept, and warns if the queue is full.
    fn lose_correction(&self, may_repeat: bool) {
        self.ledger.count_lost();
        if may_repeat {
            self.warn_of_loss(self.now());
        }
    }
}

/// A change that is being applied for the first time. If dropped before its end, the change is in
/// doubt.
pub(crate) struct PendingChange<'o> {
    outage: &'o Outage,
    change: Option<Change<'o>>,
    recognized: bool,
}

impl PendingChange<'_> {
    /// Ends the change: it was applied.
    pub(crate) fn finish(mut self) {
        self.change = None;
    }

    /// Records that the store did not confirm the change. Returns whether it is deferred.
    pub(crate) fn failed(mut self, error: &StoreError) -> bool {
        self.defer(ChangeStatus::of(error))
    }

    fn defer(&mut self, status: ChangeStatus) -> bool {
        let Some(change) = self.change.take() else { return false };
        let may_repeat = status.may_repeat(change.adjustment, self.recognized);
        let correction = may_repeat.then(|| Correction::new(&change, status, self.outage.now()));
        let kept = correction.is_some_and(|it| self.outage.corrections.push(it, false));
        if !kept {
            self.outage.lose_correction(may_repeat);
        }
        kept
    }
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        self.defer(ChangeStatus::Unknown);
    }
}

/// A correction that is being applied. If dropped before its end, it is in doubt.
pub(crate) struct PendingCorrection<'o> {
    outage: &'o Outage,
    correction: Option<Correction>,
    recognized: bool,
}

impl PendingCorrection<'_> {
    pub(crate) fn get(&self) -> Option<&Correction> {
        self.correction.as_ref()
    }

    /// Ends the correction: it was applied, or nothing is left of it.
    pub(crate) fn finish(mut self) {
        self.correction = None;
    }

    /// Puts the correction back without an attempt.
    pub(crate) fn postpone(mut self) {
        self.put_back(ChangeStatus::NotApplied);
    }

    /// Ends a correction of which nothing is left to apply. A refund that was in doubt for too long
    /// is lost.
    pub(crate) fn expire(self) {
        let is_charge = |it: &Correction| matches!(it.adjustment, Adjustment::Charge { .. });
        if self.get().is_some_and(|it| it.in_doubt_since.is_some() && !is_charge(it)) {
            self.outage.ledger.count_lost();
        }
        self.finish();
    }

    /// Records that the store did not confirm the correction. Returns whether it will be repeated.
    pub(crate) fn failed(mut self, error: &StoreError) -> bool {
        self.put_back(ChangeStatus::of(error))
    }

    fn put_back(&mut self, status: ChangeStatus) -> bool {
        let Some(mut correction) = self.correction.take() else { return false };
        if status == ChangeStatus::Unknown {
            correction.in_doubt_since.get_or_insert_with(|| self.outage.now());
        }
        let may_repeat = status.may_repeat(correction.adjustment, self.recognized);
        let kept = may_repeat && self.outage.corrections.push(correction, true);
        if !kept {
            self.outage.lose_correction(may_repeat);
        }
        kept
    }
}

impl Drop for PendingCorrection<'_> {
    fn drop(&mut self) {
        self.put_back(ChangeStatus::Unknown);
    }
}
