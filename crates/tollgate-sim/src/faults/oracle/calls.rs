//! The calls that the shards executed, and the requests that they belong to.

use tollgate::store::AdjustmentId;
use tollgate::{Adjustment, Amount, Rule, RuleId, Verdict};

use super::super::clock::TrueTime;
use super::super::wire::{Body, Origin, OwnedCheck, Reply, RequestId};
use super::account::{Bounds, Charged, Moment};
use super::{Charge, ChargeState, Checked, Oracle, REQUEST_BIT, violation};

impl Oracle {
    /// Records a call that a shard executed.
    pub(in super::super) fn executed(
        &mut self,
        (now, shown): (TrueTime, u64),
        shard: usize,
        origin: Origin,
        body: &Body,
        (reply, is_effective): (&Reply, bool),
    ) -> Checked {
        let moment = Moment { now, shown };
        match (body, reply) {
            (Body::Decide(checks), Reply::Decided(answer)) => {
                for (check, outcome) in checks.iter().zip(&answer.outcomes) {
                    self.check_region(check.rule.id, shard)?;
                    if let Amount::Lease(request) = check.amount {
                        // The store only reads the leases of a refused batch: their states stay as they are.
                        if answer.admitted {
                            let ttl = request.ttl.as_micros();
                            self.executed_lease(check, outcome.units(), ttl, moment)?;
                        }
                    } else {
                        self.executed_check(
                            origin,
                            (check, shard),
                            (answer.admitted, outcome.verdict),
                            moment,
                        )?;
                    }
                }
                Ok(())
            }
            (Body::Change { rule, key, adjustment, id }, _) => {
                if let Origin::Undo(request) = origin
                    && let Some(record) = self.requests.get_mut(&request)
                {
                    record.undos[1] += 1;
                }
                self.check_region(rule.id, shard)?;
                if is_effective {
                    self.executed_change(origin, (rule, key), *adjustment, *id, moment)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the share of a region is counted by the store of that region.
    fn check_region(&self, rule: RuleId, shard: usize) -> Checked {
        match self.rules.get(&rule) {
            Some(&(limit, region)) if region != self.plan.region_of_shard(shard) => {
                let name = self.limits()[limit].name;
                violation(
                    "conservation",
                    format!("limit {name}: shard {shard} counts the share of region {region}"),
                )
            }
            _ => Ok(()),
        }
    }

    fn executed_check(
        &mut self,
        origin: Origin,
        (check, shard): (&OwnedCheck, usize),
        (admitted, verdict): (bool, Verdict),
        moment: Moment,
    ) -> Checked {
        let is_replaced = self.is_replaced(check.rule.id);
        let charged = match check.amount {
            Amount::Exactly(units) | Amount::UpTo(units) => Charged::Units(units),
            Amount::Slot(owner) => Charged::Slot(owner.0),
            Amount::Lease(_) => return Ok(()),
        };
        if admitted && is_replaced {
            self.allow_late_charge(check, moment);
        }
        let Some((limit, region, bounds, account)) = self.account_of(check.rule.id, &check.key) else {
            return Ok(());
        };
        let store = &mut account.stores[region];
        if admitted {
            if !is_replaced && let Err(text) = store.admit(bounds, charged, moment) {
                return violation("bound", format!("limit {}: {text}", self.limits()[limit].name));
            }
            if let Origin::Request(request) = origin
                && let Some(record) = self.requests.get_mut(&request)
            {
                let account = (limit, check.key.clone());
                let status = ChargeState::Applied;
                let (amount, at) = (charged, moment.now);
                let (is_undo_sent, is_counted) = (false, false);
                let charge = Charge { account, shard, amount, at, status, is_undo_sent, is_counted };
                record.charges.push(charge);
            }
        } else if let Verdict::Refused { .. } = verdict
            && let Err(text) = store.refuse(bounds, charged, moment)
        {
            let name = self.limits()[limit].name;
            return violation("no refusal with room", format!("limit {name} refused {charged:?}: {text}"));
        }
        Ok(())
    }

    fn executed_lease(&mut self, check: &OwnedCheck, units: u64, ttl: u64, moment: Moment) -> Checked {
        if self.is_replaced(check.rule.id) {
            if units > 0 {
                self.allow_late_charge(check, moment);
            }
            return Ok(());
        }
        let Some((limit, region, bounds, account)) = self.account_of(check.rule.id, &check.key) else {
            return Ok(());
        };
        match account.stores[region].lease(bounds, units, ttl, moment) {
            Err(text) => violation("bound", format!("limit {}: {text}", self.limits()[limit].name)),
            Ok(()) => Ok(()),
        }
    }

    /// Allows for a charge under the rule of an earlier policy, by a request that began before the reload.
    ///
    /// A state of the earlier rule that had expired begins anew with it, without the usage under the present rule: charges are
    /// repeated only in states that still count. As much is then available under a raised bucket as under the earlier one, so the key
    /// regains up to the capacity of the earlier rule, once (`tollgate-store/tests/late_charges.rs`).
    fn allow_late_charge(&mut self, check: &OwnedCheck, moment: Moment) {
        let Some(&(limit, region)) = self.rules.get(&check.rule.id) else { return };
        let policy = self.policy;
        let present = self.plan.regions.share(self.plan.policies[policy][limit].counting, region);
        let earlier = check.rule.quota.capacity();
        let (bounds, account) = (self.shares[limit][region], self.account(limit, &check.key).1);
        let Some(more) = Bounds::of(present).capacity().checked_sub(earlier) else { return };
        if account.stores[region].relieve(bounds, more, moment) && account.relieved_under != Some(policy) {
            account.relieved_under = Some(policy);
            account.credit(moment.now, earlier as f64);
        }
    }

    fn executed_change(
        &mut self,
        origin: Origin,
        (rule, key): (&Rule, &[u8]),
        adjustment: Adjustment,
        id: Option<AdjustmentId>,
        moment: Moment,
    ) -> Checked {
        let Some(&(limit, region)) = self.rules.get(&rule.id) else { return Ok(()) };
        let (name, max_refill) = (self.limits()[limit].name, self.refill_in_lease(limit));
        let bounds = self.shares[limit][region];
        let (_, account) = self.account(limit, key);
        let returned = account.stores[region].change(bounds, adjustment, moment);
        if returned > 0 || matches!(adjustment, Adjustment::Release { .. } | Adjustment::ReturnLease { .. }) {
            account.given_back_at = Some(moment.now);
            account.stretch.credit(moment.now, returned as f64);
            let credit = match (adjustment, origin) {
                (Adjustment::Refund { .. }, Origin::Undo(_)) => {
                    account.undone.credit(returned as f64, max_refill)
                }
                _ => returned as f64,
            };
            account.answered.credit(moment.now, credit);
        }
        if let Origin::Undo(request) = origin {
            self.undone(request, (limit, key), adjustment);
        }
        let Some(id) = id else { return Ok(()) };
        let times = self.executed.entry(id.0).or_default();
        *times += 1;
        if *times > 1 {
            return violation(
                "conservation",
                format!("limit {name}: one adjustment was applied {times} times"),
            );
        }
        let request = u64::try_from(id.0 >> 64).unwrap_or(0) & !REQUEST_BIT;
        if let Some(record) = self.requests.get_mut(&request) {
            *record.applied.entry(limit as u64).or_default() += 1;
        }
        Ok(())
    }

    /// Records that a node sends the call that undoes a charge of a request.
    pub(super) fn undoing(&mut self, request: RequestId, body: &Body) {
        let Body::Change { rule, key, adjustment, .. } = body else { return };
        let limit = self.rules.get(&rule.id).map(|it| it.0);
        let Some(record) = self.requests.get_mut(&request) else { return };
        record.undos[0] += 1;
        let Some(limit) = limit else { return };
        let is_meant =
            |charge: &&mut Charge| !charge.is_undo_sent && charge.is_undone_by((limit, key), *adjustment);
        if let Some(charge) = record.charges.iter_mut().find(is_meant) {
            charge.is_undo_sent = true;
        }
    }

    fn undone(&mut self, request: RequestId, key: (usize, &[u8]), adjustment: Adjustment) {
        let Some(record) = self.requests.get_mut(&request) else { return };
        let is_meant = |charge: &&mut Charge| {
            charge.status == ChargeState::Applied && charge.is_undone_by(key, adjustment)
        };
        if let Some(charge) = record.charges.iter_mut().find(is_meant) {
            charge.status = ChargeState::Undone;
        }
    }

    /// Records that the answer to a call of a request was lost.
    pub(in super::super) fn lost_answer(&mut self, origin: Origin) {
        if let Origin::Request(request) = origin
            && let Some(record) = self.requests.get_mut(&request)
        {
            record.lost_answers += 1;
        }
    }

    /// Records that a client left.
    pub(in super::super) fn cancelled(&mut self, request: RequestId) {
        if let Some(record) = self.requests.get_mut(&request) {
            record.is_cancelled = true;
        }
        self.taken_in_vain(request);
    }
}
