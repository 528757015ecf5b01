//! A model of the sliding window: `estimate = P·(W - e)/W + C`; allow iff `estimate + n <= L`.
//!
//! Time is measured in windows, `x = t/W`: the present window counts in full, the previous one by
//! the part still in view.

use std::collections::BTreeMap;

use tollgate_core::{ChargeTimes, Outcome, Overdraft, SlidingWindow, Span, Timestamp, Verdict};

use super::{Exact, Model, admitted, first_tick, lease_available, span, ticks, whole};

pub(crate) struct Estimate {
    limit: i128,
    period: i128,
    /// Units by the number of their window.
    spent: BTreeMap<i128, i128>,
    /// The latest window that was written. The key does not go back before it.
    reached: i128,
}

impl Estimate {
    pub(super) fn new(quota: &SlidingWindow) -> Self {
        let (limit, period) = (quota.rate().count.into(), quota.rate().period.as_micros().into());
        Self { limit, period, spent: BTreeMap::new(), reached: 0 }
    }

    fn position(&self, at: i128) -> Exact {
        Exact::new(at, self.period)
    }

    fn window(&self, at: i128) -> i128 {
        self.position(at).floor().to_integer()
    }

    /// Returns the position of the key at `at`, after `settle` has handled large steps back.
    fn place(&self, at: i128) -> Exact {
        self.position(at).max(Exact::from_integer(self.reached))
    }

    /// If the key is more than two windows ahead of the clock, everything is moved back to now, and
    /// the fading units count in full again.
    fn settle(&mut self, now: i128) {
        let here = self.window(now);
        if self.spent.is_empty() {
            self.reached = 0;
        }
        if self.reached - here > 3 {
            let (back, fading) = (self.reached - here, self.reached - 1);
            let spent = std::mem::take(&mut self.spent);
            for (window, units) in spent.range(fading..) {
                *self.spent.entry(window.max(&(fading + 1)) - back).or_default() += units;
            }
            self.reached = here;
        }
    }

    fn estimate(&self, at: i128) -> Exact {
        let place = self.place(at);
        let newest = place.floor().to_integer();
        let oldest = newest - 1;
        let rest = self.spent.get(&newest).copied().unwrap_or(0);
        let faded = place - Exact::from_integer(newest);
        let fading = Exact::from_integer(self.spent.get(&oldest).copied().unwrap_or(0));
        fading * (Exact::from_integer(1) - faded) + Exact::from_integer(rest)
    }

    fn fits(&self, units: i128, at: i128) -> bool {
        self.estimate(at) + Exact::from_integer(units) <= Exact::from_integer(self.limit)
    }

    /// Writes at `now`, and drops units that are out of view.
    fn write(&mut self, now: i128, change: impl FnOnce(&mut BTreeMap<i128, i128>, i128)) {
        self.reached = self.place(now).floor().to_integer();
        self.spent = self.spent.split_off(&(self.reached - 1));
        change(&mut self.spent, self.reached);
        self.spent.retain(|_, units| *units > 0);
    }

    fn answer(&self, verdict: Verdict, now: i128) -> Outcome {
        let zero = Exact::from_integer(0);
        let left = Exact::from_integer(self.limit) - self.estimate(now);
        Outcome {
            verdict,
            limit: whole(self.limit),
            remaining: whole(left.floor().to_integer().max(0)),
            reset_after: span(first_tick(now, |at| self.estimate(at) == zero) - now),
        }
    }
}

impl Model for Estimate {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome {
        let (now, cost) = (ticks(now), i128::from(units));
        self.settle(now);
        if cost > self.limit {
            return self.answer(Verdict::Never, now);
        }
        if cost == 0 {
            return self.answer(admitted(0), now);
        }
        if !self.fits(cost, now) {
            let retry_after = span(first_tick(now, |at| self.fits(cost, at)) - now);
            return self.answer(Verdict::Refused { retry_after }, now);
        }
        self.write(now, |spent, window| *spent.entry(window).or_default() += cost);
        self.answer(admitted(units), now)
    }

    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp) {
        self.settle(ticks(now));
        let taken_in = self.window(ticks(charge.at));
        self.write(ticks(now), |spent, window| {
            if let Some(left) = spent.get_mut(&taken_in.min(window)) {
                *left -= i128::from(units).min(*left);
            }
        });
    }

    /// The newest units weigh most, so they are removed first.
    fn lease(&mut self, units: u64, _ttl: Span, now: Timestamp) -> Outcome {
        lease_available(self, units, now)
    }

    fn return_lease(&mut self, units: u64, taken_at: Timestamp, _ttl: Span, now: Timestamp) {
        self.refund(units, ChargeTimes::without_end(taken_at), now);
    }

    fn grant(&mut self, units: u64, now: Timestamp) {
        self.settle(ticks(now));
        let mut units = i128::from(units);
        self.write(ticks(now), |spent, _| {
            for (_, left) in spent.iter_mut().rev() {
                let forgiven = units.min(*left);
                *left -= forgiven;
                units -= forgiven;
            }
        });
    }

    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp) {
        let now = ticks(now);
        self.settle(now);
        let most = match overdraft {
            Overdraft::None => self.limit,
            Overdraft::OneCapacity => 2 * self.limit,
            Overdraft::Unlimited => 1 << 31,
        };
        let room = (Exact::from_integer(most) - self.estimate(now)).floor().to_integer().max(0);
        self.write(now, |spent, window| *spent.entry(window).or_default() += room.min(units.into()));
    }

    fn used(&mut self, now: Timestamp) -> u64 {
        self.settle(ticks(now));
        whole(self.estimate(ticks(now)).ceil().to_integer())
    }
}
