//! Decides requests on the states of a transaction: a batch is charged as a whole or not at all.
//!
//! No I/O, and no arithmetic of its own: states change by `Quota::step` and `Quota::adjust`.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Overdraft, Owner, RuleId, State, Timestamp, Verdict};
use tollgate_store::{ADJUSTMENT_ID_LIFETIME, Answer, Outcomes};

use crate::failure::Failure;
use crate::request::{Decided, OwnedChange, OwnedCheck, Reply, RequestResult, Work};
use crate::states::{States, column};

/// The ids of adjustments that were made before, and those of this transaction.
#[derive(Debug, Default)]
pub(crate) struct AdjustmentIds {
    known: Vec<u128>,
    /// The ids to write, with their expiries.
    pub(crate) made: Vec<(u128, i64)>,
}

impl AdjustmentIds {
    pub(crate) const fn new(known: Vec<u128>) -> Self {
        Self { known, made: Vec::new() }
    }
}

/// Decides a request.
pub(crate) fn decide(work: &Work, states: &mut States, ids: &mut AdjustmentIds) -> RequestResult {
    match work {
        Work::Decide(checks) => decide_batch(checks, states).map(Reply::Decided),
        Work::Change(change) => adjust(change, states, ids).map(Reply::Changed),
    }
}

/// The state of a key as a batch changes it. It is stored only if the batch is admitted.
struct Draft<'c> {
    rule: RuleId,
    key: &'c Arc<[u8]>,
    state: State,
}

fn decide_batch(checks: &[OwnedCheck], states: &mut States) -> Result<Decided, Failure> {
    for check in checks {
        states.carry_over(&check.rule, &check.key)?;
        pull_back(check, states);
    }
    let now = states.now;
    let mut drafts = SmallVec::<[Draft<'_>; 4]>::new();
    let (mut outcomes, mut renewed, mut admitted) = (Outcomes::new(), Vec::new(), true);
    for (at, check) in checks.iter().enumerate() {
        let is_same = |draft: &Draft<'_>| draft.rule == check.rule.id && draft.key == &check.key;
        let index = drafts.iter().position(is_same).unwrap_or_else(|| {
            let state = states.read(&check.rule, &check.key);
            drafts.push(Draft { rule: check.rule.id, key: &check.key, state });
            drafts.len() - 1
        });
        let state = &mut drafts[index].state;
        if let Amount::Slot(owner) = check.amount
            && holds(state, owner, now)
        {
            renewed.push(at);
        }
        let outcome = check.rule.quota.step(state, check.amount, now);
        admitted &= outcome.is_admitted() || !check.binding;
        outcomes.push(outcome);
    }
    if admitted {
        for check in checks {
            let draft = drafts.iter().position(|it| it.rule == check.rule.id && it.key == &check.key);
            // Each draft is stored once.
            if let Some(draft) = draft.map(|index| drafts.swap_remove(index)) {
                states.write(&check.rule, &check.key, draft.state);
            }
        }
        for (check, outcome) in checks.iter().zip(&outcomes) {
            charge_past(states, check, outcome.units());
        }
    } else {
        for (check, outcome) in checks.iter().zip(&mut outcomes) {
            *outcome = refuse(check, outcome.verdict, states);
        }
    }
    Ok(Decided { answer: Answer { admitted, at: now, outcomes }, renewed })
}

/// Pulls back a state that a clock has left in the far future. Every read does so, also of a refused
/// batch.
fn pull_back(check: &OwnedCheck, states: &mut States) {
    let before = states.read(&check.rule, &check.key);
    let mut state = before.clone();
    // Slots are pulled back only by an attempt to take one.
    let (attempt, is_slot) = match check.amount {
        Amount::Slot(_) => (check.amount, true),
        _ => (Amount::Exactly(0), false),
    };
    let verdict = check.rule.quota.acquire(&mut state, attempt, states.now);
    if state != before && !(is_slot && verdict.is_admitted()) {
        states.write(&check.rule, &check.key, state);
    }
}

/// Returns whether an owner holds a slot.
fn holds(state: &State, owner: Owner, now: Timestamp) -> bool {
    matches!(state, State::Concurrency(leases)
        if leases.held.iter().any(|lease| lease.owner == owner && lease.expires > now))
}

/// Returns the outcome of a check of a refused batch. A rule that counts refusals is charged.
fn refuse(check: &OwnedCheck, verdict: Verdict, states: &mut States) -> Outcome {
    let (quota, now) = (&check.rule.quota, states.now);
    let mut state = states.read(&check.rule, &check.key);
    let mut reply = if verdict.is_admitted() { Verdict::admitted(0) } else { verdict };
    if let (true, Amount::Exactly(units) | Amount::UpTo(units)) = (check.count_denied, check.amount) {
        let charge = Adjustment::Charge { units, overdraft: Overdraft::None };
        quota.adjust(&mut state, charge, now);
        states.write(&check.rule, &check.key, state.clone());
        charge_past(states, check, units);
        if let Verdict::Refused { .. } = verdict {
            // The charge may have made the wait longer.
            let again = quota.acquire(&mut state.clone(), check.amount, now);
            reply = if again.is_admitted() { verdict } else { again };
        }
    }
    quota.describe(&state, reply, now)
}

/// Charges the states under replaced rules for units that the present rule has admitted.
fn charge_past(states: &mut States, check: &OwnedCheck, units: u64) {
    let now = states.now;
    if units > 0 {
        states.follow(&check.rule, &check.key, |quota, state| {
            Some(match check.amount {
                Amount::Lease(request) => quota.echo_lease(units, request.ttl, state, now),
                _ => quota.echo(units),
            })
        });
    }
}

fn adjust(change: &OwnedChange, states: &mut States, ids: &mut AdjustmentIds) -> Result<Outcome, Failure> {
    let OwnedChange { rule, key, adjustment, id } = change;
    states.carry_over(rule, key)?;
    let (quota, now) = (&rule.quota, states.now);
    let mut state = states.read(rule, key);
    if let Some(id) = id {
        if ids.known.contains(&id.0) {
            return Ok(quota.describe(&state, Verdict::admitted(0), now));
        }
        ids.known.push(id.0);
        ids.made.push((id.0, column(now + ADJUSTMENT_ID_LIFETIME)));
    }
    let verdict = quota.adjust(&mut state, *adjustment, now);
    let outcome = quota.describe(&state, verdict, now);
    states.write(rule, key, state);
    states.follow(rule, key, |quota, _| match *adjustment {
        // A lease was taken under the present rule: the states before it keep its charge.
        Adjustment::Release { .. }
        | Adjustment::ReleaseOldest { .. }
        | Adjustment::Renew { .. }
        | Adjustment::ReturnLease { .. } => None,
        Adjustment::Charge { units, .. } => Some(quota.echo(units)),
        Adjustment::Refund { units, charge } => {
            Some(Adjustment::Refund { units, charge: charge.under_predecessor(quota) })
        }
        other @ (Adjustment::Grant { .. } | Adjustment::Reset) => Some(other),
    });
    Ok(outcome)
}
