//! A model of sliding windows in parts: pieces with a first and a last unit and the others evenly
//! between; allow iff the units that have not passed the border `t - W`, and `n` more, are at most
//! `L`.
//!
//! Positions are in steps. A unit passes when the border reaches the whole step at or after its
//! position; at the newest step, when it reaches the time of the newest unit, which is known to the
//! tick. Waits are searched for.
//!
//! In a strict window, all units of a piece are at the position of its last one.

use tollgate_core::{ChargeTimes, Outcome, Overdraft, SlidingParts, Timestamp, Verdict};

use super::{Exact, Model, admitted, first_tick, span, ticks, whole};

#[derive(Clone)]
struct Piece {
    first: i128,
    last: i128,
    units: i128,
}

impl Piece {
    /// Returns the position of the unit with index `after`.
    fn place(&self, after: i128) -> Exact {
        let first = Exact::from_integer(self.first);
        match self.units {
            1 => Exact::from_integer(self.last),
            units => first + Exact::new((self.last - self.first) * after, units - 1),
        }
    }

    /// Returns how many units have passed, given a predicate for steps. Bisects, since positions
    /// are sorted.
    fn passed(&self, has_passed: impl Fn(i128) -> bool) -> i128 {
        let (mut passed, mut beyond) = (0, self.units);
        while passed < beyond {
            let middle = passed + (beyond - passed) / 2;
            if has_passed(self.place(middle).ceil().to_integer()) {
                passed = middle + 1;
            } else {
                beyond = middle;
            }
        }
        passed
    }
}

pub(crate) struct Pieces {
    limit: i128,
    period: i128,
    most: usize,
    step: i128,
    strict: bool,
    held: Vec<Piece>,
    /// The time of the newest unit, in ticks.
    newest: i128,
}

/// Returns the smallest of 1, 2, 5, 10, 20, 50… of which the period has at most 60,000.
fn step(period: i128) -> i128 {
    let mut tens = 1;
    loop {
        if let Some(step) = [1, 2, 5].map(|digit| digit * tens).iter().find(|it| **it * 60_000 >= period) {
            return *step;
        }
        tens *= 10;
    }
}

impl Pieces {
    pub(super) fn new(quota: &SlidingParts) -> Self {
        let period = quota.rate().period.as_micros().into();
        let most = quota.parts() as usize;
        Self {
            limit: quota.rate().count.into(),
            period,
            most,
            step: step(period),
            strict: quota.is_strict(),
            held: Vec::new(),
            newest: 0,
        }
    }

    fn up(&self, at: i128) -> i128 {
        Exact::new(at, self.step).ceil().to_integer()
    }

    /// Returns the time of the key, which does not go back before its newest unit.
    fn instant(&self, now: i128) -> i128 {
        if self.held.is_empty() { now } else { now.max(self.newest) }
    }

    /// If the key is more than two windows ahead of the clock, moves it back by the most whole
    /// steps that leave the newest unit at the clock or after it.
    fn settle(&mut self, now: i128) {
        let ahead = self.instant(now) - now;
        if ahead > 2 * self.period {
            let steps = Exact::new(ahead, self.step).floor().to_integer();
            self.newest -= steps * self.step;
            for piece in &mut self.held {
                piece.first -= steps;
                piece.last -= steps;
            }
        }
    }

    fn has_passed(&self, step: i128, at: i128) -> bool {
        let time = if step == self.up(self.newest) { self.newest } else { step * self.step };
        time <= self.instant(at) - self.period
    }

    fn weight(&self, at: i128) -> i128 {
        self.held.iter().map(|piece| piece.units - piece.passed(|step| self.has_passed(step, at))).sum()
    }

    /// Drops passed units, before every write.
    fn drop_passed(&mut self, now: i128) {
        let mut held = std::mem::take(&mut self.held);
        // Held units stop the time of the key from going back.
        let now = now.max(if held.is_empty() { now } else { self.newest });
        for piece in &mut held {
            let passed = piece.passed(|step| self.has_passed(step, now));
            if passed > 0 && passed < piece.units {
                piece.first = piece.place(passed).ceil().to_integer();
            }
            piece.units -= passed;
        }
        held.retain(|piece| piece.units > 0);
        self.held = held;
    }

    fn add(&mut self, units: i128, now: i128) {
        let instant = self.instant(now);
        let at = self.up(instant);
        self.drop_passed(now);
        if units == 0 {
            return;
        }
        self.newest = instant;
        match self.held.last_mut() {
            Some(newest) if newest.last == at => newest.units += units,
            _ => self.held.push(Piece { first: at, last: at, units }),
        }
        if self.held.len() > self.most {
            let apart = |pair: &[Piece]| {
                if self.strict {
                    return (pair[1].last - pair[0].last) * pair[0].units;
                }
                (pair[1].first - pair[0].last) * (pair[0].units + pair[1].units)
            };
            let least = self.held.windows(2).map(apart).min().expect("more than two pieces");
            let at = self.held.windows(2).position(|pair| apart(pair) == least).expect("the minimum exists");
            let later = self.held.remove(at + 1);
            self.held[at].last = later.last;
            self.held[at].units += later.units;
            if self.strict {
                self.held[at].first = later.last;
            }
        }
    }

    fn take_from(&mut self, at: usize, units: i128) -> i128 {
        let piece = &mut self.held[at];
        let taken = units.min(piece.units);
        piece.units -= taken;
        if piece.units == 1 {
            piece.first = piece.last;
        }
        taken
    }

    /// Drops empty pieces. After a refund of the newest units, the new newest unit has a step, not
    /// an exact time.
    fn drop_empty(&mut self) {
        self.held.retain(|piece| piece.units > 0);
        if let Some(newest) = self.held.last().filter(|it| it.last != self.up(self.newest)) {
            self.newest = newest.last * self.step;
        }
    }

    fn answer(&self, verdict: Verdict, now: i128) -> Outcome {
        Outcome {
            verdict,
            limit: whole(self.limit),
            remaining: whole((self.limit - self.weight(now)).max(0)),
            reset_after: span(first_tick(now, |at| self.weight(at) == 0) - now),
        }
    }
}

impl Model for Pieces {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome {
        let (now, cost) = (ticks(now), i128::from(units));
        self.settle(now);
        if cost > self.limit {
            return self.answer(Verdict::Never, now);
        }
        if cost == 0 {
            return self.answer(admitted(0), now);
        }
        let fits = |at| self.weight(at) + cost <= self.limit;
        if !fits(now) {
            let retry_after = span(first_tick(now, fits) - now);
            return self.answer(Verdict::Refused { retry_after }, now);
        }
        self.add(cost, now);
        self.answer(admitted(units), now)
    }

    /// Refunds from the oldest piece that ends at or after the time, unless that time has passed.
    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp) {
        let now = ticks(now);
        self.settle(now);
        let taken_at = self.up(ticks(charge.at));
        let passed = self.has_passed(taken_at, now);
        self.drop_passed(now);
        let found = self.held.iter().position(|piece| piece.last >= taken_at);
        if let Some(at) = found.filter(|_| !passed) {
            self.take_from(at, units.into());
            self.drop_empty();
        }
    }

    /// The newest units stay longest, so they are removed first.
    fn grant(&mut self, units: u64, now: Timestamp) {
        self.settle(ticks(now));
        self.drop_passed(ticks(now));
        let mut units = i128::from(units);
        for at in (0..self.held.len()).rev() {
            units -= self.take_from(at, units);
        }
        self.drop_empty();
    }

    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp) {
        let now = ticks(now);
        self.settle(now);
        let most = match overdraft {
            Overdraft::None => self.limit,
            Overdraft::OneCapacity => 2 * self.limit,
            Overdraft::Unlimited => 1 << 31,
        };
        let room = (most - self.weight(now)).max(0);
        self.add(room.min(units.into()), now);
    }

    fn used(&mut self, now: Timestamp) -> u64 {
        self.settle(ticks(now));
        whole(self.weight(ticks(now)))
    }
}
