//! The reference answers of a store, computed by the core: states in a map, without sharing or
//! network.

use std::collections::HashMap;

use tollgate_core::{Adjustment, Amount, Outcome, Overdraft, Quota, Rule, RuleId, State, Timestamp, Verdict};
use tollgate_store::{Answer, Check, Outcomes};

#[derive(Default)]
pub(crate) struct Model {
    states: HashMap<(RuleId, Vec<u8>), State>,
}

impl Model {
    fn state(&mut self, rule: &Rule, key: &[u8]) -> &mut State {
        self.states.entry((rule.id, key.to_vec())).or_insert_with(|| rule.quota.fresh())
    }

    /// Returns the end of the last charge of a key.
    pub(crate) fn ends(&mut self, rule: &Rule, key: &[u8]) -> Timestamp {
        rule.quota.expires_at(self.state(rule, key))
    }

    pub(crate) fn decide(&mut self, checks: &[Check<'_>], now: Timestamp) -> Answer {
        // Reading a key pulls back a state that a stepped clock left in the far future; for slots,
        // only acquiring one does.
        for check in checks {
            let state = self.state(check.rule, check.key);
            check.rule.quota.acquire(state, Amount::Exactly(0), now);
            if let (Quota::Concurrency(_), Amount::Slot(_), State::Concurrency(leases)) =
                (&check.rule.quota, check.amount, state)
            {
                pull_back(&check.rule.quota, leases, now);
            }
        }
        let before = self.states.clone();
        let (mut outcomes, mut admitted) = (Outcomes::new(), true);
        for check in checks {
            let outcome = check.rule.quota.step(self.state(check.rule, check.key), check.amount, now);
            admitted &= outcome.is_admitted() || !check.binding;
            outcomes.push(outcome);
        }
        if admitted {
            return Answer { admitted, at: now, outcomes };
        }
        let verdicts: Vec<_> = outcomes.iter().map(|it| it.verdict).collect();
        self.states = before;
        let reply =
            checks.iter().zip(verdicts).map(|(check, verdict)| self.refuse(check, verdict, now)).collect();
        Answer { admitted, at: now, outcomes: reply }
    }

    fn refuse(&mut self, check: &Check<'_>, verdict: Verdict, now: Timestamp) -> Outcome {
        let (quota, state) = (&check.rule.quota, self.state(check.rule, check.key));
        let mut reply = if verdict.is_admitted() { Verdict::admitted(0) } else { verdict };
        if let (true, Amount::Exactly(units) | Amount::UpTo(units)) = (check.count_denied, check.amount) {
            quota.adjust(state, Adjustment::Charge { units, overdraft: Overdraft::None }, now);
            if let Verdict::Refused { .. } = verdict {
                let again = quota.acquire(&mut state.clone(), check.amount, now);
                reply = if again.is_admitted() { verdict } else { again };
            }
        }
        let outcome = quota.describe(state, reply, now);
        if check.count_denied && !matches!(check.amount, Amount::Slot(_) | Amount::Lease(_)) {
            forget(&check.rule.quota, state, now);
        }
        outcome
    }

    pub(crate) fn adjust(
        &mut self,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Outcome {
        let state = self.state(rule, key);
        let verdict = rule.quota.adjust(state, adjustment, now);
        let outcome = rule.quota.describe(state, verdict, now);
        forget(&rule.quota, state, now);
        outcome
    }
}

/// Drops a state that equals a fresh one. The difference is visible when the clock steps back.
fn forget(quota: &Quota, state: &mut State, now: Timestamp) {
    if !matches!(quota, Quota::Concurrency(_)) && quota.expires_at(state) <= now {
        *state = quota.fresh();
    }
}

fn pull_back(quota: &Quota, leases: &mut tollgate_core::Leases, now: Timestamp) {
    let ttl = quota.period();
    for lease in &mut leases.held {
        if lease.expires.since(now) > ttl + ttl {
            lease.expires = now + ttl;
        }
    }
    leases.held.sort_by_key(|lease| lease.expires);
}
