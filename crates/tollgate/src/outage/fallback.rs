//! Decides without the store, by the `on_outage` of each limit.
//!
//! The limits that count form a batch for a store in this process, so all-or-nothing charging,
//! shadow mode and `count_denied` work as usual. A limit in shadow mode with `deny` refuses no
//! request, as elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Outcome, Quota, Rule, Span, Timestamp, Verdict};
use tollgate_policy::{Key, Limit, Mode, OnOutage};
use tollgate_store::{Check, MemoryStore, Outcomes};

use super::{ChargeStatus, Outage, Share, SharedClock};
use crate::limiter::ask;
use crate::randomness::Randomness;

/// The wait for requests that exceed only this node's share: the store may be back at any time.
const DEFAULT_RETRY_AFTER: Span = Span::from_secs(1);

/// The decision that was made without the store.
#[derive(Clone, Debug)]
pub(crate) struct LocalDecision {
    /// The time by this node's clock.
    pub(crate) at: Timestamp,
    /// Whether the store may have been charged as well.
    pub(crate) charge_status: ChargeStatus,
    /// The counted checks, then those that passed uncounted; each group in the order of the policy.
    pub(crate) parts: SmallVec<[Part; 2]>,
}

/// A check that the store did not make.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The index of the check in the decision.
    pub(crate) check: usize,
    pub(crate) share: Arc<Share>,
    /// The number of its record in the ledger, if it has one.
    pub(crate) record_id: Option<u64>,
}

/// The result of a fallback decision.
pub(crate) struct FallbackOutcome {
    pub(crate) degraded: LocalDecision,
    /// Whether the limits that count admitted the request; `None` if a limit refused because it
    /// cannot count.
    pub(crate) admitted: Option<bool>,
    /// The outcomes of the limits that counted.
    pub(crate) outcomes: Outcomes,
}

impl Outage {
    /// Decides about these checks, as one of `nodes` nodes.
    pub(crate) fn decide(
        &self,
        checks: &[tollgate_policy::Check<'_>],
        owner: Option<tollgate_core::Owner>,
        charge_status: ChargeStatus,
        nodes: usize,
    ) -> FallbackOutcome {
        let at = self.now();
        let mut degraded = LocalDecision { at, charge_status, parts: SmallVec::new() };
        if checks.iter().any(|check| denies(check.limit)) {
            self.counts.deny.fetch_add(1, Ordering::Relaxed);
            return FallbackOutcome { degraded, admitted: None, outcomes: Outcomes::new() };
        }
        let has_grace = at.as_micros() < self.grace_ends.load(Ordering::Relaxed);
        let rule_of = |limit: &Limit| match limit.on_outage() {
            // An outage of the store must not become an overload: a shedder has no grace to spend.
            OnOutage::Allow if !has_grace && !limit.is_shed() => OnOutage::Local,
            rule => rule,
        };
        let mut select = |wanted: OnOutage| {
            for (index, check) in checks.iter().enumerate() {
                if rule_of(check.limit) == wanted {
                    let share = self.shares.of(check, nodes);
                    degraded.parts.push(Part { check: index, share, record_id: None });
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

    /// Records the usage to charge when the store is back. Usage that the store may already have is
    /// not recorded and counts as lost, since it may be missing there.
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
            // Requests that a shedder admitted during an outage are no load when the store is back.
            if units > 0 && !has_slots(&part.share) && !check.limit.is_shed() {
                part.record_id =
                    self.write(&part.share, &check.key, units, degraded.charge_status, degraded.at);
            }
        }
    }

    /// Counts refusals that were decided without counting, for limits that count refusals.
    pub(crate) fn charge_denied(
        &self,
        checks: &[tollgate_policy::Check<'_>],
        charge_status: ChargeStatus,
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
                self.write(&share, &check.key, check.cost, charge_status, now);
            }
        }
    }

    /// Returns this node's share of the limit of a check.
    pub(crate) fn share_of(&self, check: &tollgate_policy::Check<'_>, nodes: usize) -> Arc<Share> {
        self.shares.of(check, nodes)
    }

    /// Returns this node's share of a rule of a limit.
    pub(crate) fn share_of_rule(&self, limit: &str, rule: &Rule, nodes: usize) -> Arc<Share> {
        self.shares.of_rule(limit, rule, nodes)
    }

    /// Releases a slot that was taken on this node while the store gave no answer. Returns whether there
    /// was one.
    pub(crate) fn release_local(
        &self,
        check: &tollgate_policy::Check<'_>,
        release: Adjustment,
        nodes: usize,
    ) -> bool {
        if self.local.get().is_none() {
            return false;
        }
        let share = self.share_of(check, nodes);
        let before = self.adjust_local(&share, &check.key, Adjustment::Grant { units: 0 }).remaining;
        self.adjust_local(&share, &check.key, release).remaining > before
    }

    /// Adjusts the usage of a key in this node's share.
    pub(crate) fn adjust_local(&self, share: &Share, key: &Key, adjustment: Adjustment) -> Outcome {
        self.local().adjust_now(&share.local, key.as_bytes(), adjustment)
    }

    /// Corrects a record in the ledger. Returns whether it was still there: if not, the store has
    /// been charged with it.
    pub(crate) fn is_recorded(&self, share: &Share, key: &Key, record_id: u64) -> bool {
        self.ledger.has(share, key, record_id)
    }

    /// Corrects a record of the ledger if it is still there. Returns whether it is.
    pub(crate) fn correct(&self, share: &Share, key: &Key, record_id: u64, adjustment: Adjustment) -> bool {
        self.ledger.correct(share, key, record_id, adjustment, self.now())
    }

    /// Records usage to charge later.
    pub(crate) fn charge_later(&self, share: &Arc<Share>, key: &Key, units: u64) {
        self.write(share, key, units, ChargeStatus::NotCharged, self.now());
    }

    /// Records the usage of one key. Returns `None` if it is lost.
    fn write(
        &self,
        share: &Arc<Share>,
        key: &Key,
        units: u64,
        charge_status: ChargeStatus,
        now: Timestamp,
    ) -> Option<u64> {
        if charge_status == ChargeStatus::Unknown {
            self.ledger.count_lost();
            return None;
        }
        let record_id = self.ledger.write(share, key, units, now);
        if record_id.is_none() {
            self.warn_of_loss(now);
        }
        record_id
    }

    fn local(&self) -> &MemoryStore<SharedClock> {
        self.local.get_or_init(|| match self.randomness {
            Randomness::System => MemoryStore::with_clock(self.keys, self.clock.clone()),
            Randomness::Seed(seed) => MemoryStore::with_seed(self.keys, self.clock.clone(), seed),
        })
    }
}

/// Returns whether a limit refuses requests that it cannot count.
pub(crate) fn denies(limit: &Limit) -> bool {
    limit.mode() != Mode::Shadow && limit.on_outage() == OnOutage::Deny
}

/// Turns `Never` into a refusal with a wait for a request that exceeds only this node's share: it
/// can pass when the store is back.
fn soften(outcome: &mut Outcome, share: &Share, cost: u64) {
    if outcome.verdict == Verdict::Never && cost <= share.whole.quota.capacity() {
        outcome.verdict = Verdict::Refused { retry_after: DEFAULT_RETRY_AFTER };
    }
}

fn has_slots(share: &Share) -> bool {
    matches!(share.whole.quota, Quota::Concurrency(_))
}
