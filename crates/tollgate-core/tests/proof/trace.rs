//! Random traces of one key, aimed at edge cases.
//!
//! A trace is relative to a quota ("to the end of the window, less a tick", "one more than is
//! left"), so that one trace is relevant for all quotas.

use proptest::prelude::*;
use tollgate_core::{
    Adjustment, Amount, ChargeTimes, LeaseRequest, Outcome, Overdraft, Quota, Span, State, Timestamp,
};

/// May 17, 2026, 12:34:56.789012: not an edge of any window.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_779_021_296_789_012);

/// Traces stay away from the epoch, where states cannot be moved back; `robustness` tests that.
const EARLIEST: Timestamp = Timestamp::from_micros(1 << 49);

/// The movement of the clock before an act.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Stay,
    Ticks(u64),
    /// Thousandths of the quota's period.
    Part(u64),
    Periods(u64),
    /// To the next edge of a window, plus an offset.
    Edge(i64),
    /// To the time given by the last refusal, plus an offset.
    Retry(i64),
    Back(u64),
    BackPeriods(u64),
}

/// A number of units, relative to the key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnitCount {
    Exactly(u64),
    /// Thousandths of the capacity.
    Share(u64),
    /// The remaining units, plus a number.
    Left(u64),
    /// The capacity, plus a number.
    Capacity(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Take(UnitCount),
    UpTo(UnitCount),
    /// A refund of the take this many before the last one.
    Refund(usize),
    Grant(UnitCount),
    Charge(UnitCount, Overdraft),
    /// A lease for this many thousandths of the quota's period.
    Lease(UnitCount, u64),
    /// A return of the lease this many before the last one.
    ReturnLease(usize),
}

pub(crate) type Trace = Vec<(Move, Act)>;

fn forward() -> BoxedStrategy<Move> {
    prop_oneof![
        4 => Just(Move::Stay),
        3 => (1..=3u64).prop_map(Move::Ticks),
        5 => (1..=400u64).prop_map(Move::Part),
        1 => (1..=3u64).prop_map(Move::Periods),
        2 => (-1..=1i64).prop_map(Move::Edge),
        2 => (-1..=1i64).prop_map(Move::Retry),
    ]
    .boxed()
}

fn jumping() -> BoxedStrategy<Move> {
    prop_oneof![
        6 => forward(),
        1 => (1..=3_000u64).prop_map(Move::Back),
        1 => (1..=40u64).prop_map(Move::BackPeriods),
        1 => (1..=40u64).prop_map(Move::Periods),
    ]
    .boxed()
}

fn unit_count() -> impl Strategy<Value = UnitCount> {
    prop_oneof![
        1 => Just(UnitCount::Exactly(0)),
        5 => (1..=3u64).prop_map(UnitCount::Exactly),
        3 => (1..=700u64).prop_map(UnitCount::Share),
        3 => (0..=1u64).prop_map(UnitCount::Left),
        1 => (0..=1u64).prop_map(UnitCount::Capacity),
        1 => Just(UnitCount::Exactly(u64::MAX)),
    ]
}

fn act() -> BoxedStrategy<Act> {
    let overdraft = prop_oneof![Just(Overdraft::None), Just(Overdraft::OneCapacity)];
    prop_oneof![
        10 => unit_count().prop_map(Act::Take),
        2 => unit_count().prop_map(Act::UpTo),
        2 => (0..4usize).prop_map(Act::Refund),
        1 => unit_count().prop_map(Act::Grant),
        2 => (unit_count(), overdraft).prop_map(|(unit_count, overdraft)| Act::Charge(unit_count, overdraft)),
        2 => (unit_count(), 0..=600u64).prop_map(|(unit_count, part)| Act::Lease(unit_count, part)),
        1 => (0..3usize).prop_map(Act::ReturnLease),
    ]
    .boxed()
}

/// Takes only, on a clock that never goes back.
pub(crate) fn takes() -> impl Strategy<Value = Trace> {
    prop::collection::vec((forward(), unit_count().prop_map(Act::Take)), 1..40)
}

/// Any acts, on a clock that never goes back.
pub(crate) fn steady() -> impl Strategy<Value = Trace> {
    prop::collection::vec((forward(), act()), 1..30)
}

/// Any acts, on a clock that moves arbitrarily.
pub(crate) fn wild() -> impl Strategy<Value = Trace> {
    prop::collection::vec((jumping(), act()), 1..30)
}

/// A quota with the state of one key, and the time of that key.
#[derive(Clone, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) quota: &'a Quota,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    retry: Timestamp,
    taken: Vec<(ChargeTimes, u64)>,
    /// Units, time and life of each lease.
    leased: Vec<(u32, Timestamp, Span)>,
}

/// An act with its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppliedAct {
    Acquired(Amount),
    Adjusted(Adjustment),
}

impl<'a> Key<'a> {
    pub(crate) fn new(quota: &'a Quota) -> Self {
        Self { quota, state: quota.fresh(), now: START, retry: START, taken: Vec::new(), leased: Vec::new() }
    }

    /// Returns the state after a whole trace.
    pub(crate) fn after(quota: &'a Quota, trace: &Trace) -> Self {
        let mut key = Self::new(quota);
        for &(by, act) in trace {
            key.advance(by);
            key.act(act);
        }
        key
    }

    pub(crate) fn advance(&mut self, by: Move) {
        let thousandths = |n| self.part_of_period(n);
        self.now = match by {
            Move::Stay => self.now,
            Move::Ticks(n) => self.now + Span::from_micros(n),
            Move::Part(n) => self.now + thousandths(n.into()),
            Move::Periods(n) => self.now + thousandths(u128::from(n) * 1_000),
            Move::Edge(past) => shift(edge(self.quota, self.now), past).max(self.now),
            Move::Retry(past) => shift(self.retry, past).max(self.now),
            Move::Back(n) => self.now.before(thousandths(n.into())).max(EARLIEST),
            Move::BackPeriods(n) => self.now.before(thousandths(u128::from(n) * 1_000)).max(EARLIEST),
        };
    }

    /// Returns thousandths of the quota's period.
    fn part_of_period(&self, thousandths: u128) -> Span {
        let period = u128::from(self.quota.period().as_micros());
        Span::from_micros(u64::try_from(period * thousandths / 1_000).unwrap_or(0))
    }

    /// Performs an act, and returns it with its numbers and the answer.
    pub(crate) fn act(&mut self, act: Act) -> (AppliedAct, Option<Outcome>) {
        let did = self.resolve(act);
        (did, self.perform(did))
    }

    pub(crate) fn perform(&mut self, did: AppliedAct) -> Option<Outcome> {
        let amount = match did {
            AppliedAct::Acquired(amount) => amount,
            AppliedAct::Adjusted(adjustment) => {
                self.adjust(adjustment);
                return None;
            }
        };
        let outcome = self.ask(amount);
        self.retry = outcome.retry_after().map_or(self.retry, |wait| self.now + wait);
        if let Amount::Lease(lease) = amount {
            self.leased.push((u32::try_from(outcome.units()).unwrap_or(u32::MAX), self.now, lease.ttl));
        } else if outcome.units() > 0 {
            self.taken.push((ChargeTimes::of(self.now, &outcome), outcome.units()));
        }
        Some(outcome)
    }

    pub(crate) fn resolve(&self, act: Act) -> AppliedAct {
        match act {
            Act::Take(unit_count) => AppliedAct::Acquired(Amount::Exactly(self.units(unit_count))),
            Act::UpTo(unit_count) => AppliedAct::Acquired(Amount::UpTo(self.units(unit_count))),
            Act::Refund(before) => {
                let taken = self.taken.iter().rev().nth(before).copied();
                let (charge, units) = taken.unwrap_or((ChargeTimes::without_end(self.now), 1));
                AppliedAct::Adjusted(Adjustment::Refund { units, charge })
            }
            Act::Grant(unit_count) => {
                AppliedAct::Adjusted(Adjustment::Grant { units: self.units(unit_count) })
            }
            Act::Charge(unit_count, overdraft) => {
                AppliedAct::Adjusted(Adjustment::Charge { units: self.units(unit_count), overdraft })
            }
            Act::Lease(unit_count, part) => {
                let units = u32::try_from(self.units(unit_count)).unwrap_or(u32::MAX);
                let ttl = self.part_of_period(part.into());
                AppliedAct::Acquired(Amount::Lease(LeaseRequest { units, ttl }))
            }
            Act::ReturnLease(before) => {
                let leased = self.leased.iter().rev().nth(before).copied();
                let (units, taken_at, ttl) = leased.unwrap_or((1, self.now, Span::from_secs(1)));
                AppliedAct::Adjusted(Adjustment::ReturnLease { units, taken_at, ttl })
            }
        }
    }

    fn units(&self, unit_count: UnitCount) -> u64 {
        match unit_count {
            UnitCount::Exactly(n) => n,
            UnitCount::Share(n) => {
                u64::try_from(u128::from(self.quota.capacity()) * u128::from(n) / 1_000).unwrap_or(0)
            }
            UnitCount::Left(more) => self.peek().remaining + more,
            UnitCount::Capacity(more) => self.quota.capacity() + more,
        }
    }

    pub(crate) fn ask(&mut self, amount: Amount) -> Outcome {
        self.quota.step(&mut self.state, amount, self.now)
    }

    pub(crate) fn take(&mut self, units: u64) -> Outcome {
        self.ask(Amount::Exactly(units))
    }

    pub(crate) fn adjust(&mut self, adjustment: Adjustment) {
        self.quota.adjust(&mut self.state, adjustment, self.now);
    }

    pub(crate) fn used(&self) -> u64 {
        self.quota.used(&self.state, self.now)
    }

    /// Returns the answer to a read, without changing the state, not even by moving it back.
    pub(crate) fn peek(&self) -> Outcome {
        self.clone().take(0)
    }

    pub(crate) fn at(&self, now: Timestamp) -> Self {
        Self { now, ..self.clone() }
    }
}

fn shift(at: Timestamp, by: i64) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add_signed(by))
}

fn edge(quota: &Quota, now: Timestamp) -> Timestamp {
    let multiple = |of: u64| Timestamp::from_micros((now.as_micros() / of + 1).saturating_mul(of));
    match quota {
        Quota::FixedWindow(it) => it.window().closes(now),
        // The oldest steps in view leave.
        Quota::SlidingParts(it) => multiple(it.resolution().as_micros()),
        other => multiple(other.period().as_micros()),
    }
}
