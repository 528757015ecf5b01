//! A model of the sliding log: every unit has its own time; allow iff the units in `(t - W, t]` and
//! `n` more are at most `L`.

use tollgate_core::{ChargeTimes, Outcome, Overdraft, SlidingLog, Timestamp, Verdict};

use super::{Model, admitted, span, ticks};

pub(crate) struct Log {
    limit: usize,
    period: i128,
    /// One entry per unit, oldest first.
    stamps: Vec<i128>,
}

impl Log {
    pub(super) fn new(quota: &SlidingLog) -> Self {
        let limit = usize::try_from(quota.rate().count).expect("a log's limit is small");
        Self { limit, period: quota.rate().period.as_micros().into(), stamps: Vec::new() }
    }

    /// Returns the time of the key, which never goes back before its newest unit. If that is more
    /// than two windows ahead, the whole log is moved back.
    fn instant(&mut self, now: i128) -> i128 {
        let ahead = self.stamps.last().map_or(0, |newest| newest - now);
        if ahead > 2 * self.period {
            self.stamps.iter_mut().for_each(|stamp| *stamp -= ahead);
            return now;
        }
        now + ahead.max(0)
    }

    fn in_view(&self, at: i128) -> usize {
        self.stamps.iter().filter(|stamp| at - self.period < **stamp).count()
    }

    /// Returns when `units` fit if no other request spends. Room appears only when a unit leaves,
    /// so only those instants are tried.
    fn fits_at(&self, units: usize) -> i128 {
        let mut leaving = self.stamps.iter().map(|stamp| stamp + self.period);
        leaving.find(|&at| self.in_view(at) + units <= self.limit).expect("when all have left, it fits")
    }

    fn answer(&self, verdict: Verdict, instant: i128, now: i128) -> Outcome {
        let gone =
            self.stamps.last().filter(|_| self.in_view(instant) > 0).map(|newest| newest + self.period);
        Outcome {
            verdict,
            limit: self.limit as u64,
            remaining: self.limit.saturating_sub(self.in_view(instant)) as u64,
            reset_after: span(gone.map_or(0, |gone| gone - now)),
        }
    }

    fn append(&mut self, units: usize, instant: i128) {
        if units > 0 {
            self.stamps.retain(|stamp| instant - self.period < *stamp);
            self.stamps.extend(std::iter::repeat_n(instant, units));
        }
    }
}

impl Model for Log {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome {
        let now = ticks(now);
        let instant = self.instant(now);
        let cost = usize::try_from(units).unwrap_or(usize::MAX);
        if cost > self.limit {
            return self.answer(Verdict::Never, instant, now);
        }
        if cost == 0 {
            return self.answer(admitted(0), instant, now);
        }
        if self.in_view(instant) + cost > self.limit {
            let retry_after = span(self.fits_at(cost) - now);
            return self.answer(Verdict::Refused { retry_after }, instant, now);
        }
        self.append(cost, instant);
        self.answer(admitted(units), instant, now)
    }

    /// Units in the window are removed. They are recorded under the time they were taken at, or
    /// under a later time if the clock had stepped back.
    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp) {
        let instant = self.instant(ticks(now));
        if ticks(charge.at) <= instant - self.period {
            return;
        }
        if let Some(found) = self.stamps.iter().position(|stamp| *stamp >= ticks(charge.at)) {
            let stamp = self.stamps[found];
            for _ in 0..units.min(2 * self.limit as u64) {
                if self.stamps.get(found) == Some(&stamp) {
                    self.stamps.remove(found);
                }
            }
        }
    }

    /// The newest units would stay longest, so they are removed first.
    fn grant(&mut self, units: u64, now: Timestamp) {
        self.instant(ticks(now));
        let units = usize::try_from(units).unwrap_or(usize::MAX);
        self.stamps.truncate(self.stamps.len().saturating_sub(units));
    }

    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp) {
        let instant = self.instant(ticks(now));
        let most = match overdraft {
            Overdraft::None => self.limit,
            Overdraft::OneCapacity => 2 * self.limit,
            Overdraft::Unlimited => 1 << 17,
        };
        let room = most.saturating_sub(self.in_view(instant));
        self.append(room.min(usize::try_from(units).unwrap_or(usize::MAX)), instant);
    }

    fn used(&mut self, now: Timestamp) -> u64 {
        let instant = self.instant(ticks(now));
        self.in_view(instant) as u64
    }
}
