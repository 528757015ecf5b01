//! What happens to one key, and when: random, but aimed at edges.
//!
//! A trace is written relative to a quota ("to the end of the window, less a
//! tick", "one more than is left"), so that one trace is interesting for all.

use proptest::prelude::*;
use tollgate_core::{Adjustment, Amount, Outcome, Overdraft, Quota, Span, State, Timestamp};

/// 17 May 2026, 12:34:56.789012: no edge of anything.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_779_021_296_789_012);

/// Traces stay clear of the epoch, where there is no time to move states back to; `damage` goes there.
const EARLIEST: Timestamp = Timestamp::from_micros(1 << 49);

/// How the clock moves before something happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Stay,
    Ticks(u64),
    /// So many thousandths of the quota's period.
    Part(u64),
    Periods(u64),
    /// To the next edge of a window, and this far past it.
    Edge(i64),
    /// To when the last refusal said to come back, and this far past it.
    Retry(i64),
    Back(u64),
    BackPeriods(u64),
}

/// How many units, seen from where the key stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UnitCount {
    Exactly(u64),
    /// So many thousandths of the capacity.
    Share(u64),
    /// What is left, and so many more.
    Left(u64),
    /// The capacity, and so many more.
    Capacity(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Take(UnitCount),
    UpTo(UnitCount),
    /// Of the take this many before the last one.
    Refund(usize),
    Grant(UnitCount),
    Charge(UnitCount, Overdraft),
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
    ]
    .boxed()
}

/// Takes only, on a clock that never goes back.
pub(crate) fn takes() -> impl Strategy<Value = Trace> {
    prop::collection::vec((forward(), unit_count().prop_map(Act::Take)), 1..40)
}

/// Anything, on a clock that never goes back.
pub(crate) fn steady() -> impl Strategy<Value = Trace> {
    prop::collection::vec((forward(), act()), 1..30)
}

/// Anything, on a clock that does what it likes.
pub(crate) fn wild() -> impl Strategy<Value = Trace> {
    prop::collection::vec((jumping(), act()), 1..30)
}

/// A quota with one key's state, and the clock as that key knows it.
#[derive(Clone, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) quota: &'a Quota,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    retry: Timestamp,
    taken: Vec<(Timestamp, u64)>,
}

/// An act with its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppliedAct {
    Acquired(Amount),
    Adjusted(Adjustment),
}

impl<'a> Key<'a> {
    pub(crate) fn new(quota: &'a Quota) -> Self {
        Self { quota, state: quota.fresh(), now: START, retry: START, taken: Vec::new() }
    }

    /// The state after a whole trace.
    pub(crate) fn after(quota: &'a Quota, trace: &Trace) -> Self {
        let mut key = Self::new(quota);
        for &(by, act) in trace {
            key.advance(by);
            key.act(act);
        }
        key
    }

    pub(crate) fn advance(&mut self, by: Move) {
        let period = self.quota.period().as_micros();
        let thousandths = |n| Span::from_micros(u64::try_from(u128::from(period) * n / 1_000).unwrap_or(0));
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

    /// Does it, and says what was done with what answer.
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
        if outcome.units() > 0 {
            self.taken.push((self.now, outcome.units()));
        }
        Some(outcome)
    }

    pub(crate) fn resolve(&self, act: Act) -> AppliedAct {
        match act {
            Act::Take(unit_count) => AppliedAct::Acquired(Amount::Exactly(self.units(unit_count))),
            Act::UpTo(unit_count) => AppliedAct::Acquired(Amount::UpTo(self.units(unit_count))),
            Act::Refund(before) => {
                let taken = self.taken.iter().rev().nth(before).copied();
                let (taken_at, units) = taken.unwrap_or((self.now, 1));
                AppliedAct::Adjusted(Adjustment::Refund { units, taken_at })
            }
            Act::Grant(unit_count) => {
                AppliedAct::Adjusted(Adjustment::Grant { units: self.units(unit_count) })
            }
            Act::Charge(unit_count, overdraft) => {
                AppliedAct::Adjusted(Adjustment::Charge { units: self.units(unit_count), overdraft })
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

    /// What the key is told, without letting it change even by being pulled back.
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
        // Of what is in view, the oldest steps leave.
        Quota::SlidingParts(it) => multiple(it.resolution().as_micros()),
        other => multiple(other.period().as_micros()),
    }
}
