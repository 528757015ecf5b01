//! Decides without the store, as each limit's `on_outage` says.
//!
//! The limits that count are a batch for a store in this process, so all or
//! nothing, shadow mode and `count_denied` mean what they always mean. A limit in
//! shadow mode that says `deny` refuses nobody, here as elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Outcome, Quota, Span, Timestamp, Verdict};
use tollgate_policy::{Key, Limit, Mode, OnOutage};
use tollgate_store::{Check, MemoryStore, Outcomes};

use super::{ChargeStatus, Outage, Share, SharedClock};
use crate::limiter::ask;

/// When to come back for what this node's share is too small for: the store may be
/// back any moment.
const DEFAULT_RETRY_AFTER: Span = Span::from_secs(1);

/// What was decided without the store.
#[derive(Clone, Debug)]
pub(crate) struct LocalDecision {
    /// By this node's clock.
    pub(crate) at: Timestamp,
    /// Whether the store may have been charged as well.
    pub(crate) landed: ChargeStatus,
    /// First those that were counted, then those that were let pass; each in the
    /// order of the policy.
    pub(crate) parts: SmallVec<[Part; 2]>,
}

/// One check that was not made by the store.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Which of the decision's checks.
    pub(crate) check: usize,
    pub(crate) share: Arc<Share>,
    /// Its writing in the ledger, if it has one.
    pub(crate) writing: Option<u64>,
}

/// What came of it.
pub(crate) struct FallbackOutcome {
    pub(crate) degraded: LocalDecision,
    /// Whether the limits that count admitted it; `None`: a limit would rather refuse.
    pub(crate) admitted: Option<bool>,
    /// What each that counted says.
    pub(crate) outcomes: Outcomes,
}

impl Outage {
    /// Decides about these checks, for one of so many nodes.
    pub(crate) fn decide(
        &self,
        checks: &[tollgate_policy::Check<'_>],
        owner: Option<tollgate_core::Owner>,
        landed: ChargeStatus,
        nodes: usize,
    ) -> FallbackOutcome {
        let at = self.now();
        let mut degraded = LocalDecision { at, landed, parts: SmallVec::new() };
        if checks.iter().any(|check| denies(check.limit)) {
            self.counts.deny.fetch_add(1, Ordering::Relaxed);
            return FallbackOutcome { degraded, admitted: None, outcomes: Outcomes::new() };
        }
        let has_grace = at.as_micros() < self.grace_ends.load(Ordering::Relaxed);
        let rule_of = |limit: &Limit| match limit.on_outage() {
            OnOutage::Allow if !has_grace => OnOutage::Local,
            rule => rule,
        };
        let mut select = |wanted: OnOutage| {
            for (index, check) in checks.iter().enumerate() {
                if rule_of(check.limit) == wanted {
                    let share = self.shares.of(check, nodes);
                    degraded.parts.push(Part { check: index, share, writing: None });
                }
            }
            degraded.parts.len()
        };
        let counted = select(OnOutage::Local);
        select(OnOutage::Allow);
        let kind = if counted > 0 { &self.counts.local } else { &self.counts.allow };
        kind.fetch_add(1, Ordering::Relaxed);

        let batch: SmallVec<[Check<'_>; 8]> = degraded.parts[..counted]
            .iter()
            .map(|part| Check { rule: &part.share.local, ..ask(&checks[part.check], owner) })
            .collect();
        let mut outcomes = Outcomes::new();
        let admitted = batch.is_empty() || self.local().decide_into(&batch, at, &mut outcomes);
        for (part, outcome) in degraded.parts.iter().zip(&mut outcomes) {
            soften(outcome, &part.share, checks[part.check].cost);
        }
        drop(batch);
        self.record_charge(&mut degraded, checks, admitted, &outcomes);
        FallbackOutcome { degraded, admitted: Some(admitted), outcomes }
    }

    /// Writes down what the store is to be charged when it is back. What it may have been
    /// charged already is not, and counts as lost: it may as well be missing there.
    fn record_charge(
        &self,
        degraded: &mut LocalDecision,
        checks: &[tollgate_policy::Check<'_>],
        admitted: bool,
        outcomes: &[Outcome],
    ) {
        for (at, part) in degraded.parts.iter_mut().enumerate() {
            let check = &checks[part.check];
            let units = if admitted {
                outcomes.get(at).map_or(check.cost, Outcome::units)
            } else if ask(check, None).count_denied {
                check.cost
            } else {
                0
            };
            if units > 0 && !has_slots(&part.share) {
                part.writing = self.write(&part.share, &check.key, units, degraded.landed, degraded.at);
            }
        }
    }

    /// Counts refusals that needed no counting, for limits that count those too.
    pub(crate) fn charge_denied(
        &self,
        checks: &[tollgate_policy::Check<'_>],
        landed: ChargeStatus,
        nodes: usize,
    ) {
        let now = self.now();
        for check in checks.iter().filter(|check| check.limit.count_denied()) {
            let share = self.shares.of(check, nodes);
            if check.limit.on_outage() == OnOutage::Local {
                let check = Check { rule: &share.local, ..ask(check, None) };
                self.local().decide_into(&[check], now, &mut Outcomes::new());
            }
            if check.cost > 0 && !has_slots(&share) {
                self.write(&share, &check.key, check.cost, landed, now);
            }
        }
    }

    /// Changes what a key has spent of this node's share.
    pub(crate) fn adjust_local(&self, share: &Share, key: &Key, adjustment: Adjustment) {
        self.local().adjust_now(&share.local, key.as_bytes(), adjustment);
    }

    /// Corrects what was written down. Whether it was still there: if not, the store
    /// has been charged with it.
    pub(crate) fn correct(&self, share: &Share, key: &Key, writing: u64, adjustment: Adjustment) -> bool {
        self.ledger.correct(share, key, writing, adjustment, self.now())
    }

    /// Writes down what is to be charged later.
    pub(crate) fn charge_later(&self, share: &Arc<Share>, key: &Key, units: u64) {
        self.write(share, key, units, ChargeStatus::No, self.now());
    }

    /// One key's part of that. `None` if it is lost.
    fn write(
        &self,
        share: &Arc<Share>,
        key: &Key,
        units: u64,
        landed: ChargeStatus,
        now: Timestamp,
    ) -> Option<u64> {
        if landed == ChargeStatus::Perhaps {
            self.ledger.count_lost();
            return None;
        }
        let writing = self.ledger.write(share, key, units, now);
        if writing.is_none() {
            self.warn_of_loss(now);
        }
        writing
    }

    fn local(&self) -> &MemoryStore<SharedClock> {
        self.local.get_or_init(|| MemoryStore::with_clock(self.keys, self.clock.clone()))
    }
}

/// Whether a limit refuses what cannot be counted.
pub(crate) fn denies(limit: &Limit) -> bool {
    limit.mode() != Mode::Shadow && limit.on_outage() == OnOutage::Deny
}

/// A request that only this node's share is too small for can pass: later, when the
/// store is back.
fn soften(outcome: &mut Outcome, share: &Share, cost: u64) {
    if outcome.verdict == Verdict::Never && cost <= share.whole.quota.capacity() {
        outcome.verdict = Verdict::Refused { retry_after: DEFAULT_RETRY_AFTER };
    }
}

fn has_slots(share: &Share) -> bool {
    matches!(share.whole.quota, Quota::Concurrency(_))
}
