//! Every answer equals that of the model: verdict, wait, remaining units, reset.

use proptest::prelude::*;
use proptest::strategy::Strategy;
use tollgate_core::{Adjustment, Amount, LeaseRequest, Outcome, Quota, Timestamp};

use crate::model::{self, Model};
use crate::quotas;
use crate::seed::{Holds, check};
use crate::trace::{AppliedAct, Key, Trace, wild};

fn agrees((quota, trace): (Quota, Trace)) -> Holds {
    let mut key = Key::new(&quota);
    let mut model = model::of(&quota);
    for (by, act) in trace {
        key.advance(by);
        let did = key.resolve(act);
        let (ours, theirs) = (key.perform(did), perform(&mut *model, did, key.now));
        prop_assert_eq!(ours, theirs, "after {:?} at {:?}, now {:?}", did, key.now, key.state);
        prop_assert_eq!(key.used(), model.used(key.now), "used after {:?}", did);
        let (ours, theirs) = (key.take(0), model.take(0, key.now));
        prop_assert_eq!(ours, theirs, "a read after {:?} at {:?}, now {:?}", did, key.now, key.state);
    }
    Ok(())
}

fn perform(model: &mut dyn Model, did: AppliedAct, now: Timestamp) -> Option<Outcome> {
    match did {
        AppliedAct::Acquired(Amount::Exactly(units)) => Some(model.take(units, now)),
        AppliedAct::Acquired(Amount::UpTo(most)) => Some(model.take_up_to(most, now)),
        AppliedAct::Acquired(Amount::Lease(LeaseRequest { units, ttl })) => {
            Some(model.lease(units.into(), ttl, now))
        }
        AppliedAct::Acquired(Amount::Slot(_)) => unreachable!("traces ask for units"),
        AppliedAct::Adjusted(adjustment) => {
            adjust(model, adjustment, now);
            None
        }
    }
}

fn adjust(model: &mut dyn Model, adjustment: Adjustment, now: Timestamp) {
    match adjustment {
        Adjustment::Refund { units, charge } => model.refund(units, charge, now),
        Adjustment::Grant { units } => model.grant(units, now),
        Adjustment::Charge { units, overdraft } => model.charge(units, overdraft, now),
        Adjustment::ReturnLease { units, taken_at, ttl } => {
            model.return_lease(units.into(), taken_at, ttl, now);
        }
        Adjustment::Reset
        | Adjustment::Release { .. }
        | Adjustment::ReleaseOldest { .. }
        | Adjustment::Renew { .. } => {
            unreachable!("traces deal in units")
        }
    }
}

#[track_caller]
fn check_agreement(cases: u32, quotas: impl Strategy<Value = Quota>) {
    check(cases, (quotas, wild()), agrees);
}

#[test]
fn a_bucket_answers_like_rational_tokens() {
    check_agreement(600, quotas::buckets());
}

#[test]
fn a_queue_answers_like_a_leaking_vessel() {
    check_agreement(1_000, quotas::queues());
}

#[test]
fn a_fixed_window_answers_like_its_definition() {
    check_agreement(400, quotas::fixed_windows());
}

#[test]
fn a_tally_answers_like_its_definition() {
    check_agreement(400, quotas::tallies());
}

#[test]
fn a_sliding_window_answers_like_the_estimate() {
    check_agreement(300, quotas::sliding_windows());
}

#[test]
fn a_sliding_window_in_parts_answers_like_its_pieces() {
    check_agreement(500, quotas::sliding_parts());
}

#[test]
fn a_strict_window_in_parts_answers_like_its_pieces() {
    check_agreement(500, quotas::strict_parts());
}

#[test]
fn a_sliding_log_answers_like_a_list_of_units() {
    check_agreement(500, quotas::sliding_logs());
}
