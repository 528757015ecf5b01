//! Leases admit no more than the limit without them, in any stretch, however they are spent.
//!
//! A schedule mixes exact requests, leases, spending, returns and lost leases on one key. Only the
//! spent units are checked, by a virtual queue in rational arithmetic: neither states nor models
//! are consulted.

use proptest::prelude::*;
use tollgate_core::{Adjustment, Amount, ChargeTimes, LeaseRequest, Quota, Span, Timestamp, Window};

use crate::model::Exact;
use crate::quotas;
use crate::seed::{Holds, check};
use crate::trace::START;

/// A step of a schedule. Lengths of time are in thousandths of the `ttl`, units in thousandths of
/// the capacity.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Exact(u64),
    Lease(u64),
    /// Spends all units of all leases.
    SpendAll,
    /// Spends a part of the lease this many before the last.
    Spend(usize, u64),
    /// Returns the unspent units of the lease this many before the last.
    Return(usize),
    /// Forgets all leases: their holder was killed.
    Crash,
    /// Undoes the last exact charge: its request was not admitted.
    Undo,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![Just(1), 1..=400u64, Just(999), Just(1_000), Just(1_001)].prop_map(Step::Wait),
        3 => (0..=1_000u64).prop_map(Step::Exact),
        4 => (1..=1_000u64).prop_map(Step::Lease),
        2 => Just(Step::SpendAll),
        2 => (0..3usize, 1..=1_000u64).prop_map(|(at, part)| Step::Spend(at, part)),
        3 => (0..4usize).prop_map(Step::Return),
        1 => Just(Step::Crash),
    ]
}

/// A lease that is held.
struct Held {
    units: u32,
    taken_at: Timestamp,
    /// The last instant at which it may be spent.
    until: Timestamp,
    /// The end of the window that it was charged to.
    window: Timestamp,
}

/// Units that were spent.
struct Spending {
    at: i128,
    units: i128,
    /// The end of the window that they were charged to.
    window: i128,
}

/// A key, the leases on it, and every unit that was spent.
struct Schedule<'q> {
    quota: &'q Quota,
    state: tollgate_core::State,
    ttl: Span,
    now: Timestamp,
    held: Vec<Held>,
    spent: Vec<Spending>,
    /// The exact charges: their index in `spent`, and their times.
    exact: Vec<(usize, ChargeTimes)>,
    /// The times and units of charges that were undone while a later lease was held.
    undone: Vec<(Timestamp, u64)>,
}

fn part(of: u64, thousandths: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(thousandths) / 1_000).expect("a part of a number")
}

impl<'q> Schedule<'q> {
    fn run(quota: &'q Quota, ttl: Span, steps: &[Step]) -> Vec<Spending> {
        Self::finish(quota, ttl, steps).spent
    }

    fn finish(quota: &'q Quota, ttl: Span, steps: &[Step]) -> Self {
        let mut schedule = Self {
            quota,
            state: quota.fresh(),
            ttl,
            now: START,
            held: Vec::new(),
            spent: Vec::new(),
            exact: Vec::new(),
            undone: Vec::new(),
        };
        for &step in steps {
            schedule.step(step);
        }
        schedule
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(thousandths) => {
                self.now = self.now + Span::from_micros(part(self.ttl.as_micros(), thousandths));
            }
            Step::Exact(thousandths) => {
                let units = part(self.quota.capacity(), thousandths).max(1);
                let outcome = self.quota.step(&mut self.state, Amount::UpTo(units), self.now);
                let until = self.now + outcome.reset_after;
                self.exact.push((self.spent.len(), ChargeTimes { at: self.now, until }));
                self.spend(outcome.units(), until);
            }
            Step::Lease(thousandths) => self.lease(thousandths),
            Step::SpendAll => {
                while let Some(held) = self.held.pop() {
                    if self.now <= held.until {
                        self.spend(held.units.into(), held.window);
                    }
                }
            }
            Step::Spend(before, thousandths) => {
                let now = self.now;
                if let Some(held) = self.held.iter_mut().rev().nth(before).filter(|it| now <= it.until) {
                    let units = u32::try_from(part(held.units.into(), thousandths)).expect("a part");
                    held.units -= units;
                    let window = held.window;
                    self.spend(units.into(), window);
                }
            }
            Step::Return(before) => {
                if let Some(at) = self.held.len().checked_sub(before + 1) {
                    let Held { units, taken_at, .. } = self.held.remove(at);
                    let back = Adjustment::ReturnLease { units, taken_at, ttl: self.ttl };
                    self.quota.adjust(&mut self.state, back, self.now);
                }
            }
            Step::Crash => self.held.clear(),
            Step::Undo => self.undo(),
        }
    }

    /// Undoes the last exact charge, as a store does whose answer came too late, or a cluster of which
    /// another shard refused.
    fn undo(&mut self) {
        let Some((index, charge)) = self.exact.pop() else { return };
        let units = u64::try_from(self.spent[index].units).expect("spent units");
        self.spent[index].units = 0;
        self.quota.adjust(&mut self.state, Adjustment::Refund { units, charge }, self.now);
        if self.held.iter().any(|held| held.taken_at >= charge.at) {
            self.undone.push((self.now, units));
        }
    }

    fn lease(&mut self, thousandths: u64) {
        let units = u32::try_from(part(self.quota.capacity(), thousandths).max(1)).unwrap_or(u32::MAX);
        let request = LeaseRequest { units, ttl: self.ttl };
        let outcome = self.quota.step(&mut self.state, Amount::Lease(request), self.now);
        assert!(outcome.is_admitted() && outcome.units() <= units.into());
        let closes = match self.quota {
            Quota::FixedWindow(_) => self.now + outcome.reset_after,
            Quota::SlidingWindow(it) => Window::Epoch(it.rate().period).closes(self.now),
            _ => self.now + self.ttl + self.ttl,
        };
        let until = (self.now + self.ttl).min(closes.before(Span::from_micros(1)));
        let units = u32::try_from(outcome.units()).expect("at most the requested units");
        self.held.push(Held { units, taken_at: self.now, until, window: closes });
    }

    fn spend(&mut self, units: u64, window: Timestamp) {
        let (at, window) = (self.now.as_micros().into(), window.as_micros().into());
        self.spent.push(Spending { at, units: units.into(), window });
    }
}

/// Returns a `ttl` as a part of the time to fill: up to a half, beyond which nothing is leased.
fn ttl(quota: &Quota, thousandths: u64) -> Span {
    Span::from_micros(part(quota.period().as_micros(), thousandths).max(1))
}

/// Returns by how many units the spent ones exceed burst + rate · stretch in the worst stretch: the
/// virtual queue exceeds the burst iff a stretch admits more.
fn excess(quota: &Quota, spent: &[Spending]) -> Exact {
    let Quota::Bucket(bucket) = quota else { unreachable!("only buckets have a rate of refill") };
    let rate = Exact::new(bucket.rate().count.into(), bucket.rate().period.as_micros().into());
    let burst = Exact::from_integer(quota.capacity().into());
    let zero = Exact::from_integer(0);
    let (mut level, mut last, mut excess) = (zero, 0, zero);
    for Spending { at, units, .. } in spent {
        level = (level - rate * Exact::from_integer(at - last)).max(zero) + Exact::from_integer(*units);
        last = *at;
        excess = excess.max(level - burst);
    }
    excess
}

#[test]
fn a_bucket_with_leases_admits_its_burst_and_what_flowed_in() {
    let inputs = (quotas::buckets(), 1..=500u64, prop::collection::vec(step(), 1..120));
    check(600, inputs, |(quota, thousandths, steps)| -> Holds {
        let spent = Schedule::run(&quota, ttl(&quota, thousandths), &steps);
        prop_assert_eq!(excess(&quota, &spent), Exact::from_integer(0));
        Ok(())
    });
}

/// The bound of charges that are undone under a lease: the refill of one `ttl`, and at most the units
/// that were undone within it.
///
/// A lease that is taken on top of a debt of `m` units has its pad in that debt, and undoing them takes the
/// pad away. (1) Undoing `m` units lowers the debt by at most `m`, so the lemma that the bound rests on
/// (debt >= held units + refill until their end) fails by at most the units that were charged before a lease that
/// is held, and undone. (2) Charges of leases are never undone: with the oldest held lease taken at `t`, the debt at
/// any later time is at least the held units less the refill since `t`, which is at most that of one `ttl`.
#[test]
fn undone_charges_admit_at_most_the_refill_of_one_lease_or_their_own_units() {
    let steps = prop_oneof![6 => step(), 2 => Just(Step::Undo)];
    let inputs = (quotas::buckets(), 1..=500u64, prop::collection::vec(steps, 1..120));
    check(600, inputs, |(quota, thousandths, steps)| -> Holds {
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only buckets") };
        let ttl = ttl(&quota, thousandths);
        let Schedule { spent, undone, .. } = Schedule::finish(&quota, ttl, &steps);
        let within_ttl = |&(at, _): &(Timestamp, u64)| {
            undone
                .iter()
                .filter(|it| it.0 <= at && at.since(it.0) <= ttl)
                .map(|it| i128::from(it.1))
                .sum::<i128>()
        };
        let units = Exact::from_integer(undone.iter().map(within_ttl).max().unwrap_or(0));
        let (count, period) = (bucket.rate().count, bucket.rate().period.as_micros());
        let refill = Exact::new(count.into(), period.into()) * Exact::from_integer(ttl.as_micros().into());
        let excess = excess(&quota, &spent);
        prop_assert!(excess <= units.min(refill), "{} with {} undone, a refill of {}", excess, units, refill);
        Ok(())
    });
}

#[test]
fn a_charge_that_is_undone_under_a_lease_takes_its_pad_away() {
    // 100 a second: a lease of 100 ms has a pad of 20 units. Half of the bucket is charged and leased on top.
    let quota = Quota::from(tollgate_core::Bucket::new(tollgate_core::Rate::per_second(100)).expect("valid"));
    let steps = [
        Step::Exact(500),
        Step::Lease(500),
        Step::Undo,
        Step::Wait(1_000),
        Step::Exact(1_000),
        Step::SpendAll,
    ];
    let Schedule { spent, .. } = Schedule::finish(&quota, Span::from_millis(100), &steps);
    assert_eq!(excess(&quota, &spent), Exact::from_integer(10), "the refill of one lease");
}

#[test]
fn a_bucket_without_the_pad_would_admit_too_much() {
    // The arithmetic of an ordinary charge in advance, to show that the property can fail.
    let quota = Quota::from(tollgate_core::Bucket::new(tollgate_core::Rate::per_second(100)).expect("valid"));
    let (mut state, start) = (quota.fresh(), START);
    let later = start + Span::from_millis(500);
    let in_advance = quota.step(&mut state, Amount::UpTo(50), start).units();
    let at_end = quota.step(&mut state, Amount::UpTo(100), later).units();
    assert_eq!(in_advance + at_end, 150, "the burst and the units that were held");
    let mut state = quota.fresh();
    let lease = Amount::Lease(LeaseRequest { units: 50, ttl: Span::from_millis(100) });
    let leased = quota.step(&mut state, lease, start).units();
    let end = start + Span::from_millis(100);
    assert_eq!(leased + quota.step(&mut state, Amount::UpTo(100), end).units(), 90);
}

#[test]
fn a_fixed_window_with_leases_admits_its_limit_in_each_window() {
    let inputs = (quotas::fixed_windows(), 1..=500u64, prop::collection::vec(step(), 1..120));
    check(200, inputs, |(quota, thousandths, steps)| -> Holds {
        let Quota::FixedWindow(fixed) = &quota else { unreachable!("the strategy yields only windows") };
        let spent = Schedule::run(&quota, ttl(&quota, thousandths), &steps);
        let length = i128::from(fixed.window().longest().as_micros());
        let mut counts = std::collections::BTreeMap::<i128, i128>::new();
        for Spending { at, units, window } in spent.into_iter().filter(|it| it.units > 0) {
            prop_assert!(window - length <= at && at < window, "{} outside of the window to {}", at, window);
            let count = counts.entry(window).or_default();
            *count += units;
            prop_assert!(*count <= quota.capacity().into(), "{} at {}", count, at);
        }
        Ok(())
    });
}

#[test]
fn a_sliding_window_with_leases_spends_what_its_estimate_admits() {
    let inputs = (quotas::sliding_windows(), 1..=500u64, prop::collection::vec(step(), 1..120));
    check(200, inputs, |(quota, thousandths, steps)| -> Holds {
        let Quota::SlidingWindow(window) = &quota else { return Ok(()) };
        let spent = Schedule::run(&quota, ttl(&quota, thousandths), &steps);
        let width = i128::from(window.rate().period.as_micros());
        let mut counts = std::collections::BTreeMap::<i128, i128>::new();
        for Spending { at, units, .. } in spent {
            *counts.entry(at / width).or_default() += units;
            let count = |window: i128| Exact::from_integer(counts.get(&window).copied().unwrap_or(0));
            let estimate = count(at / width) + count(at / width - 1) * Exact::new(width - at % width, width);
            prop_assert!(estimate <= Exact::from_integer(quota.capacity().into()), "{} at {}", estimate, at);
        }
        Ok(())
    });
}

#[test]
fn the_sustained_rate_of_a_leased_bucket_is_the_whole_rate() {
    check(300, (quotas::buckets(), 1..=50u64), |(quota, thousandths)| -> Holds {
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only buckets") };
        let ttl = ttl(&quota, thousandths);
        // A small bucket has no whole unit beside the pad.
        if quota.capacity() < 20 || 20 * ttl.as_micros() > quota.period().as_micros() {
            return Ok(());
        }
        let (mut state, mut now, mut leased) = (quota.fresh(), START, 0);
        let request = Amount::Lease(LeaseRequest { units: u32::MAX, ttl });
        let rounds = 200;
        for _ in 0..rounds {
            leased += quota.step(&mut state, request, now).units();
            now = now + ttl;
        }
        let (count, period) = (u128::from(bucket.rate().count), u128::from(bucket.rate().period.as_micros()));
        let refilled = u128::from(ttl.as_micros()) * (rounds - 1) * count / period;
        // All but the pad, and less than one unit of rounding.
        let pad = 2 * u128::from(ttl.as_micros()) * count / period + 2;
        let ideal = refilled + u128::from(quota.capacity());
        let most_requested = u128::from(u32::MAX) * rounds;
        prop_assert!(u128::from(leased) + pad >= ideal.min(most_requested), "{} of {}", leased, ideal);
        Ok(())
    });
}
