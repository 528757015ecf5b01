//! What comes after an outage: the store is charged with what it missed.
//!
//! A store may answer in part (one node of a cluster is down): a key that fails is put
//! back, and the others are charged. Whether the store as a whole is worth asking is the
//! breaker's to say, here as for requests.

use tollgate_core::{Adjustment, Overdraft, Rule};
use tollgate_store::{Store, StoreError};

use super::Limiter;
use crate::outage::{ChargeStatus, Health, Name, Pass, Share};

/// A pass ends after so many failures in a row: each may take a whole deadline.
const MAX_CONSECUTIVE_FAILURES: u32 = 8;

impl<S: Store> Limiter<S> {
    /// Makes the changes that the store has not taken (final costs, refunds), then charges it
    /// with what was admitted while it gave no answers, as far as
    /// that still counts, one key after the other. What fails is kept for the next call
    /// and the others are charged; stops when the breaker opens, or after some failures
    /// in a row. How many keys were charged.
    ///
    /// To be called every so often: every second, say, and by each node at its own
    /// second. Whoever calls chooses when; how fast the store is charged follows from
    /// how fast it answers, since no two charges are under way at once.
    ///
    /// While the breaker is open nothing happens, but for a probe when one is due: a
    /// node that nobody asks finds the store again too, if it owes it something.
    ///
    /// A charge whose end is not known is not repeated, and a future that is dropped
    /// charges nothing twice: what was under way then counts as lost, which is one key.
    /// So this is for the end of a process too, under a timeout of the caller's; what is
    /// left then is in [`Health::ledger_keys`].
    pub async fn reconcile(&self) -> usize {
        let (mut charged, mut in_a_row) = (0, 0);
        // As many as there are now: one that fails goes to the end, and is not tried again at once.
        for _ in 0..self.outage.waiting_corrections() {
            match self.apply_correction().await {
                Replay::Charged => (charged, in_a_row) = (charged + 1, 0),
                Replay::Nothing => {}
                Replay::Failed => in_a_row += 1,
                Replay::LeftAlone => return charged,
            }
            if in_a_row >= MAX_CONSECUTIVE_FAILURES || (in_a_row > 0 && !self.outage.is_closed()) {
                return charged;
            }
        }
        let mut pass = self.outage.pass();
        loop {
            let names = self.outage.due(&mut pass);
            if names.is_empty() {
                return charged;
            }
            for name in names {
                match self.replay(&name, &pass).await {
                    Replay::Charged => (charged, in_a_row) = (charged + 1, 0),
                    Replay::Nothing => {}
                    Replay::Failed => in_a_row += 1,
                    Replay::LeftAlone => return charged,
                }
                if in_a_row >= MAX_CONSECUTIVE_FAILURES || (in_a_row > 0 && !self.outage.is_closed()) {
                    return charged;
                }
            }
        }
    }

    /// Asks the store whether it answers, unless it is left alone, and tells how it is
    /// doing then.
    ///
    /// To be called at the start and every few seconds: a node that nobody asks would
    /// otherwise not notice that the store is gone, or back. To the breaker this is a
    /// question like any other.
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

    /// The rule that a debt is charged under: the one that counts the key by now. Rules that
    /// stand in no policy are brought along by whoever asks, so there it is the debt's own.
    fn rule_of<'d>(&'d self, share: &'d Share, name: &Name) -> Option<&'d Rule> {
        if *share.limit == *self.policy.ad_hoc().name() {
            return Some(&share.whole);
        }
        self.policy.limit(&share.limit)?.rule_after(name.0, &name.1)
    }

    /// Makes the oldest change that the store has not taken.
    async fn apply_correction(&self) -> Replay {
        let Some(attempt) = self.outage.attempt() else { return Replay::LeftAlone };
        let Some(pending) = self.outage.take_correction() else { return Replay::Nothing };
        let Some(correction) = pending.get() else { return Replay::Nothing };
        let rule = self.policy.limit(&correction.limit);
        let rule = rule.and_then(|limit| limit.rule_after(correction.rule.id, &correction.key));
        let (Some(rule), Some(adjustment)) = (rule, correction.adjustment(self.outage.now())) else {
            // The limit is gone, or time has made the change.
            pending.finish();
            return Replay::Nothing;
        };
        match self.store.adjust(rule, correction.key.as_bytes(), adjustment).await {
            Ok(_) => {
                attempt.succeeded();
                pending.finish();
                Replay::Charged
            }
            Err(error) => {
                attempt.failed(&error);
                if pending.failed(&error) { Replay::Failed } else { Replay::Nothing }
            }
        }
    }

    async fn replay(&self, name: &Name, pass: &Pass) -> Replay {
        let Some(attempt) = self.outage.attempt() else { return Replay::LeftAlone };
        let Some(debt) = self.outage.take_debt(name) else { return Replay::Nothing };
        let units @ 1.. = debt.units() else {
            debt.settle(0);
            return Replay::Nothing;
        };
        let Some(rule) = debt.share().and_then(|share| self.rule_of(share, name)) else {
            // Nobody asks for it any more: dropped, and told to be lost.
            return Replay::Nothing;
        };
        let charge = Adjustment::Charge { units, overdraft: Overdraft::None };
        match self.store.adjust(rule, name.1.as_bytes(), charge).await {
            Ok(_) => {
                attempt.succeeded();
                debt.settle(units);
                Replay::Charged
            }
            Err(error) => {
                let is_about_this_key = matches!(error, StoreError::Foreign(_));
                if attempt.failed(&error) == ChargeStatus::No && !is_about_this_key {
                    debt.put_back(pass);
                }
                if is_about_this_key { Replay::Nothing } else { Replay::Failed }
            }
        }
    }
}

/// What came of charging one key.
enum Replay {
    Charged,
    /// There was nothing to charge.
    Nothing,
    /// The store gave no answer about this key.
    Failed,
    /// The store is not asked.
    LeftAlone,
}
