//! Reconciliation after an outage: charges the store with the usage that it missed.
//!
//! A store may answer in part (one node of a cluster is down): a key that fails is put back, and
//! the others are charged. The breaker determines whether the store is called at all, as for
//! requests.
//!
//! Corrections are applied lane by lane ([`Lane`]), then the ledger is charged. Each lane has its own
//! bound on failures, so that no lane takes the attempts of the next, and a key that failed is not
//! tried again in the same pass.

use std::collections::HashSet;

use tollgate_core::{Adjustment, Overdraft, Rule};
use tollgate_policy::Key;
use tollgate_store::{Store, StoreError};

use super::Limiter;
use super::settle::nth;
use crate::outage::{Change, ChargeStatus, Health, Lane, Name, Outage, Pass};

/// A pass leaves a lane after this many consecutive failures, since each may take a whole deadline.
const MAX_CONSECUTIVE_FAILURES: u32 = 8;

/// The keys that failed in a pass.
type FailedKeys = HashSet<Name>;

impl<S: Store> Limiter<S> {
    /// Renews the slots of permits that are due ([`keep_slots`](Self::keep_slots)), then
    /// applies the changes that the store has not taken, released slots before final costs and
    /// refunds, then charges it with the usage admitted during the outage, as far as it still counts,
    /// one key after the other. Returns the number of charged keys.
    ///
    /// A key that fails is kept for the next call, and the others are charged. After several
    /// consecutive failures, the pass leaves the rest of that kind to the next call. It stops when the
    /// breaker opens.
    ///
    /// Call it periodically, such as every second, with a different offset on each node. The store
    /// limits the speed, since charges run one at a time.
    ///
    /// While the breaker is open, nothing happens except a probe when it is due, so that a node
    /// without traffic detects the recovery if it has usage to replay.
    ///
    /// A change with an unknown result is repeated by the next call, and the store recognizes it by
    /// its id ([`Store::adjust_once`]). If the future is dropped, the correction in progress is
    /// repeated as well, and the charge of a key in progress counts as lost. It is therefore safe to
    /// call at shutdown under a timeout; the remaining keys are in [`Health::ledger_keys`].
    pub async fn reconcile(&self) -> usize {
        self.renewals.run().await;
        let (mut progress, mut failed_keys) = (Progress::default(), FailedKeys::new());
        // As many as there are now: a failed one goes to the end of its lane and is not retried in
        // this pass.
        for (lane, waiting) in Lane::ALL.into_iter().zip(self.outage.waiting_corrections()) {
            progress.consecutive_failures = 0;
            for _ in 0..waiting {
                progress.record(&self.apply_correction(lane, &mut failed_keys).await);
                if progress.must_stop(&self.outage) {
                    return progress.charged;
                }
                if progress.leaves_lane() {
                    break;
                }
            }
        }
        self.retry_left_places().await;
        progress.consecutive_failures = 0;
        let mut pass = self.outage.pass();
        loop {
            let names = self.outage.due(&mut pass);
            if names.is_empty() {
                return progress.charged;
            }
            for name in names {
                progress.record(&self.replay(&name, &pass).await);
                if progress.leaves_lane() || progress.must_stop(&self.outage) {
                    return progress.charged;
                }
            }
        }
    }

    /// Sends a probe to the store, unless the breaker is open, and returns its health.
    ///
    /// Call it at the start and every few seconds, so that a node without traffic notices an outage
    /// or a recovery. The breaker treats it like any other call.
    pub async fn probe(&self) -> Health {
        if let Some(attempt) = self.outage.attempt() {
            match self.store.probe().await {
                Ok(()) => attempt.succeeded(),
                Err(error) => {
                    attempt.failed(&error);
                }
            }
        }
        self.outage.health()
    }

    /// Returns the rule that counts a key now that was counted under `rule`. A rule that is in no
    /// policy stays.
    fn rule_now<'d>(&'d self, limit: &str, rule: &'d Rule, key: &Key) -> Option<&'d Rule> {
        if *limit == *self.policy.ad_hoc().name() {
            return Some(rule);
        }
        self.policy.limit(limit)?.rule_after(rule.id, key)
    }

    /// Applies the oldest correction of a lane, unless its key failed before.
    async fn apply_correction(&self, lane: Lane, failed_keys: &mut FailedKeys) -> Replay {
        let Some(attempt) = self.outage.attempt() else { return Replay::BreakerOpen };
        let pending = self.outage.take_correction(lane, self.store.recognizes_adjustments());
        let Some(pending) = pending else { return Replay::Nothing };
        let Some(correction) = pending.get() else { return Replay::Nothing };
        let name = (correction.rule.id, correction.key.clone());
        if failed_keys.contains(&name) {
            pending.postpone();
            return Replay::Nothing;
        }
        let Some(rule) = self.rule_now(&correction.limit, &correction.rule, &correction.key) else {
            // The limit no longer exists.
            pending.finish();
            return Replay::Nothing;
        };
        let Some(adjustment) = correction.adjustment(self.outage.now()) else {
            pending.expire();
            return Replay::Nothing;
        };
        match self.adjust_once(rule, &correction.key, adjustment, correction.id).await {
            Ok(_) => {
                attempt.succeeded();
                pending.finish();
                Replay::Charged
            }
            Err(error) => {
                attempt.failed(&error);
                failed_keys.insert(name);
                if pending.failed(&error) { Replay::Failed } else { Replay::Nothing }
            }
        }
    }

    async fn replay(&self, name: &Name, pass: &Pass) -> Replay {
        let Some(attempt) = self.outage.attempt() else { return Replay::BreakerOpen };
        let Some(debt) = self.outage.take_debt(name) else { return Replay::Nothing };
        let units @ 1.. = debt.units() else {
            debt.settle(0);
            return Replay::Nothing;
        };
        let rule = debt
            .share()
            .and_then(|share| Some((&*share.limit, self.rule_now(&share.limit, &share.whole, &name.1)?)));
        let Some((limit, rule)) = rule else {
            // The limit no longer exists: the debt is dropped and counted as lost.
            return Replay::Nothing;
        };
        let adjustment = Adjustment::Charge { units, overdraft: Overdraft::None };
        let (key, id, taken_at) = (&name.1, nth(self.outage.next_id(), 0), self.outage.now());
        match self.adjust_once(rule, key, adjustment, id).await {
            Ok(_) => {
                attempt.succeeded();
                debt.settle(units);
                Replay::Charged
            }
            Err(error) => {
                let status = attempt.failed(&error);
                if let StoreError::Foreign(_) = error {
                    return Replay::Nothing;
                }
                if status == ChargeStatus::NotCharged {
                    debt.put_back(pass);
                } else {
                    // In doubt: from now on it is a correction with an id of its own.
                    let change = Change { limit, rule, key, adjustment, id, reserve: 0, taken_at };
                    let recognized = self.store.recognizes_adjustments();
                    self.outage.start_change(change, recognized).failed(&error);
                    debt.settle(0);
                }
                Replay::Failed
            }
        }
    }
}

/// The progress of a pass.
#[derive(Default)]
struct Progress {
    charged: usize,
    consecutive_failures: u32,
    is_breaker_open: bool,
}

impl Progress {
    fn record(&mut self, replay: &Replay) {
        match replay {
            Replay::Charged => (self.charged, self.consecutive_failures) = (self.charged + 1, 0),
            Replay::Nothing => {}
            Replay::Failed => self.consecutive_failures += 1,
            Replay::BreakerOpen => self.is_breaker_open = true,
        }
    }

    /// Returns whether too many attempts in a row have failed.
    const fn leaves_lane(&self) -> bool {
        self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES
    }

    /// Returns whether the breaker does not permit further calls.
    fn must_stop(&self, outage: &Outage) -> bool {
        self.is_breaker_open || (self.consecutive_failures > 0 && !outage.is_closed())
    }
}

/// The result of charging one key.
enum Replay {
    Charged,
    /// Nothing was left to charge.
    Nothing,
    /// The store gave no answer about this key.
    Failed,
    /// The breaker is open.
    BreakerOpen,
}
