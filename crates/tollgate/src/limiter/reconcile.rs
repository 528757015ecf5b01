//! What comes after an outage: the store is charged with what it missed.

use tollgate_core::{Adjustment, Overdraft};
use tollgate_store::{Store, StoreError};

use super::Limiter;
use crate::outage::{Landed, Name};

impl<S: Store> Limiter<S> {
    /// Charges the store with what was admitted while it gave no answers, as far as
    /// that still counts, one key after the other. Stops when the store fails again,
    /// and keeps the rest. How many keys were charged.
    ///
    /// To be called every so often: every second, say, and by each node at its own
    /// second. Whoever calls chooses when; how fast the store is charged follows from
    /// how fast it answers, since no two charges are under way at once.
    ///
    /// While the breaker is open nothing happens, but for a probe when one is due: a
    /// node that nobody asks finds the store again too, if it owes it something.
    ///
    /// A charge whose end is not known is not repeated, and a future that is dropped
    /// charges nothing twice: what was under way then counts as lost.
    pub async fn reconcile(&self) -> usize {
        let mut charged = 0;
        loop {
            let names = self.outage.due();
            if names.is_empty() {
                return charged;
            }
            for name in names {
                match self.replay(&name).await {
                    Replay::Charged => charged += 1,
                    Replay::Nothing => {}
                    Replay::Stop => return charged,
                }
            }
        }
    }

    async fn replay(&self, name: &Name) -> Replay {
        let Some(attempt) = self.outage.attempt() else { return Replay::Stop };
        let Some(debt) = self.outage.take_debt(name) else { return Replay::Nothing };
        let limit = debt.share().and_then(|share| self.policy.limit(&share.limit));
        // Without a rule nobody asks any more.
        let rule = limit.and_then(|limit| limit.rule_after(name.0, &name.1));
        let (Some(rule), units @ 1..) = (rule, debt.units()) else {
            debt.settle(0);
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
                if attempt.failed(&error) == Landed::No && !is_about_this_key {
                    debt.put_back();
                }
                if is_about_this_key { Replay::Nothing } else { Replay::Stop }
            }
        }
    }
}

/// What came of charging one key.
enum Replay {
    Charged,
    /// There was nothing to charge.
    Nothing,
    /// The store does not answer.
    Stop,
}
