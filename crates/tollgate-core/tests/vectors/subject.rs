//! The subject that answers: the model or the implementation.

use tollgate_core::vectors::{Act, Step, StoreCall, owner};
use tollgate_core::{Adjustment, Amount, Outcome, Quota, Span, State, Timestamp, Verdict};

use crate::model::{self, Model, Slots};

pub(crate) enum Subject {
    Ours(Quota, State),
    Units(Box<dyn Model>),
    Slots(Slots),
}

impl Subject {
    pub(crate) fn ours(quota: Quota) -> Self {
        let fresh = quota.fresh();
        Self::Ours(quota, fresh)
    }

    pub(crate) fn model(quota: &Quota) -> Self {
        match quota {
            Quota::Concurrency(it) => Self::Slots(Slots::new(it)),
            other => Self::Units(model::of(other)),
        }
    }

    /// Returns the answer, or the result of a read right after an act without an answer.
    pub(crate) fn perform(&mut self, step: &Step) -> Outcome {
        let now = Timestamp::from_micros(step.at_us);
        match self {
            Self::Ours(quota, state) => {
                let amount = match step.act.store_call() {
                    StoreCall::Adjust(adjustment) => {
                        quota.adjust(state, adjustment, now);
                        Amount::Exactly(0)
                    }
                    StoreCall::Acquire(amount) => amount,
                };
                quota.step(state, amount, now)
            }
            Self::Units(model) => units(&mut **model, &step.act, now),
            Self::Slots(model) => slots(model, &step.act, now),
        }
    }
}

fn units(model: &mut dyn Model, act: &Act, now: Timestamp) -> Outcome {
    if let StoreCall::Adjust(Adjustment::Refund { units, charge }) = act.store_call() {
        model.refund(units, charge, now);
    }
    match act {
        Act::Take(units) => return model.take(*units, now),
        Act::TakeUpTo(most) => return model.take_up_to(*most, now),
        Act::Grant(units) => model.grant(*units, now),
        Act::Charge { units, overdraft } => model.charge(*units, overdraft.build(), now),
        Act::Refund { .. } => {}
        Act::Lease { units, ttl_us } => {
            return model.lease((*units).into(), Span::from_micros(*ttl_us), now);
        }
        Act::ReturnLease { units, taken_at_us, ttl_us } => {
            let (taken_at, ttl) = (Timestamp::from_micros(*taken_at_us), Span::from_micros(*ttl_us));
            model.return_lease((*units).into(), taken_at, ttl, now);
        }
        Act::Acquire(_) | Act::Release(_) => unreachable!("units have no owner"),
    }
    model.take(0, now)
}

fn slots(model: &mut Slots, act: &Act, now: Timestamp) -> Outcome {
    match act {
        Act::Acquire(name) => return model.acquire(owner(name).0, now),
        Act::Release(name) => model.release(owner(name).0),
        Act::Take(1..) | Act::TakeUpTo(1..) | Act::Lease { .. } => {
            return Outcome { verdict: Verdict::Never, ..model.peek(now) };
        }
        Act::Take(0)
        | Act::TakeUpTo(0)
        | Act::Refund { .. }
        | Act::ReturnLease { .. }
        | Act::Grant(_)
        | Act::Charge { .. } => {}
    }
    model.peek(now)
}
