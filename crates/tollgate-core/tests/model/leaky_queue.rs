//! A model of the leaky queue: a vessel that leaks `r` units a tick. A request pours its cost in if
//! the vessel holds it, and starts when all that was poured in before it, but `free`, has leaked.

use tollgate_core::{Bucket, ChargeTimes, Outcome, Overdraft, Timestamp, Verdict};

use super::{Exact, Model, span, ticks, whole};

/// Queues whose vessel leaks within a minute share their states.
const MINUTE: i128 = 60_000_000;

pub(crate) struct LeakyQueue {
    holds: Exact,
    free: Exact,
    per_tick: Exact,
    level: Exact,
    last: i128,
}

impl LeakyQueue {
    pub(super) fn new(bucket: &Bucket) -> Self {
        let queue = bucket.queue().expect("a bucket with a queue");
        let rate = bucket.rate();
        let per_tick = Exact::new(rate.count.into(), rate.period.as_micros().into());
        let of = |units: u64| Exact::from_integer(units.into());
        let by_length = of(queue.length) + 1;
        let by_wait = queue.wait.map(|wait| of(queue.free) + 1 + per_tick * of(wait.as_micros()));
        let holds = by_wait.map_or(by_length, |it| it.min(by_length));
        Self { holds, free: of(queue.free), per_tick, level: Exact::from_integer(0), last: 0 }
    }

    /// Leaks up to `now`. A clock that steps back fills the vessel, up to a bound.
    fn leak(&mut self, now: i128) -> Exact {
        let leaked = self.per_tick * Exact::from_integer(now - self.last);
        let level = (self.level - leaked).max(Exact::from_integer(0));
        let most = self.holds.max(self.per_tick * Exact::from_integer(MINUTE)) * 2;
        if level > most {
            self.write(most, now);
        }
        level.min(most)
    }

    fn write(&mut self, level: Exact, now: i128) {
        (self.level, self.last) = (level.max(Exact::from_integer(0)), now);
    }

    fn time_of(&self, units: Exact) -> i128 {
        (units / self.per_tick).ceil().to_integer()
    }

    fn answer(&self, verdict: Verdict, level: Exact) -> Outcome {
        Outcome {
            verdict,
            limit: whole(self.holds.to_integer()),
            remaining: whole((self.holds - level).floor().to_integer().max(0)),
            reset_after: span(self.time_of(level)),
        }
    }
}

impl Model for LeakyQueue {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome {
        let (now, cost) = (ticks(now), Exact::from_integer(units.into()));
        let level = self.leak(now);
        if cost > self.holds {
            return self.answer(Verdict::Never, level);
        }
        if units == 0 {
            return self.answer(super::admitted(0), level);
        }
        if level + cost > self.holds {
            let retry_after = span(self.time_of(level + cost - self.holds));
            return self.answer(Verdict::Refused { retry_after }, level);
        }
        self.write(level + cost, now);
        let ahead = (level - self.free).max(Exact::from_integer(0));
        self.answer(Verdict::Admitted { units, wait: span(self.time_of(ahead)), leased: false }, level + cost)
    }

    /// The vessel leaks in order, so only the units that were poured in last can be taken out again: those which
    /// leaks as the last when the charge ends.
    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp) {
        let now = ticks(now);
        let level = self.leak(now);
        if level > Exact::from_integer(0) && now + self.time_of(level) == ticks(charge.until) {
            self.write(level - Exact::from_integer(units.into()), now);
        }
    }

    fn grant(&mut self, units: u64, now: Timestamp) {
        let now = ticks(now);
        let level = self.leak(now);
        self.write(level - Exact::from_integer(units.into()), now);
    }

    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp) {
        let now = ticks(now);
        let level = self.leak(now);
        let most = match overdraft {
            Overdraft::None => self.holds,
            Overdraft::OneCapacity => self.holds * 2,
            Overdraft::Unlimited => self.holds.max(self.per_tick * Exact::from_integer(MINUTE)),
        };
        let after = level + Exact::from_integer(units.into());
        self.write(after.min(most.max(level)), now);
    }

    fn used(&mut self, now: Timestamp) -> u64 {
        whole(self.leak(ticks(now)).ceil().to_integer())
    }
}
