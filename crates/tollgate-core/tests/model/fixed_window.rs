//! A model of fixed windows: `w0 = floor(t/W)·W`; allow iff `c + n <= L`, where `c` was spent in
//! this window.
//!
//! A read (`n = 0`) is always allowed, except by a tally, which applies the rule to reads too and
//! counts up to 2^49.

use tollgate_core::{
    Algorithm as _, ChargeTimes, FixedWindow, Outcome, Overdraft, Span, Timestamp, Verdict, Window,
};

use super::{Model, admitted, calendar, lease_available, span, ticks, whole};

pub(crate) struct Counter {
    limit: i128,
    window: Window,
    tally: bool,
    /// The latest window with spent units: start, end, units.
    latest: Option<WindowUsage>,
}

#[derive(Clone, Copy)]
struct WindowUsage {
    start: i128,
    end: i128,
    units: i128,
}

impl Counter {
    pub(super) fn new(quota: &FixedWindow) -> Self {
        let (limit, window) = (quota.capacity().into(), quota.window().clone());
        Self { limit, window, tally: quota.is_tally(), latest: None }
    }

    fn bounds(&self, now: i128) -> (i128, i128) {
        match &self.window {
            Window::Epoch(length) => {
                let length = i128::from(length.as_micros());
                (now / length * length, (now / length + 1) * length)
            }
            Window::Anchored(length) => (now, now + i128::from(length.as_micros())),
            Window::Calendar(calendar) => calendar::square(calendar, now),
        }
    }

    fn longest(&self) -> i128 {
        match &self.window {
            Window::Epoch(length) | Window::Anchored(length) => length.as_micros().into(),
            Window::Calendar(calendar) => calendar::longest(calendar.unit()),
        }
    }

    /// Returns the window that `now` counts in. A clock that steps back continues in the latest
    /// window, unless that closes more than two lengths ahead: then its units count as spent now.
    fn current(&mut self, now: i128) -> WindowUsage {
        let (start, end) = self.bounds(now);
        let longest = self.longest();
        match &mut self.latest {
            Some(latest) if now < latest.end => {
                if latest.end - now > 2 * longest {
                    (latest.start, latest.end) = (start, end);
                }
                *latest
            }
            _ => WindowUsage { start, end, units: 0 },
        }
    }

    /// Stores a window. A window without spent units was never opened.
    fn write(&mut self, spent: WindowUsage) {
        self.latest = (spent.units > 0).then_some(spent);
    }

    fn answer(&self, verdict: Verdict, spent: WindowUsage, now: i128) -> Outcome {
        let unopened = spent.units == 0 && matches!(self.window, Window::Anchored(_));
        Outcome {
            verdict,
            limit: whole(self.limit),
            remaining: whole((self.limit - spent.units).max(0)),
            reset_after: span(if unopened { 0 } else { spent.end - now }),
        }
    }
}

impl Model for Counter {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome {
        let (now, cost) = (ticks(now), i128::from(units));
        let mut current = self.current(now);
        if cost > self.limit {
            return self.answer(Verdict::Never, current, now);
        }
        if cost == 0 && !self.tally {
            return self.answer(admitted(0), current, now);
        }
        if current.units + cost > self.limit {
            let retry_after = span(current.end - now);
            return self.answer(Verdict::Refused { retry_after }, current, now);
        }
        current.units += cost;
        if cost > 0 {
            self.write(current);
        }
        self.answer(admitted(units), current, now)
    }

    /// Units taken before this window opened came back when their own window closed.
    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp) {
        if ticks(charge.at) >= self.current(ticks(now)).start {
            self.grant(units, now);
        }
    }

    fn lease(&mut self, units: u64, _ttl: Span, now: Timestamp) -> Outcome {
        if self.tally {
            return Outcome { verdict: admitted(0), ..self.take(0, now) };
        }
        lease_available(self, units, now)
    }

    fn return_lease(&mut self, units: u64, taken_at: Timestamp, _ttl: Span, now: Timestamp) {
        if !self.tally {
            self.refund(units, ChargeTimes::without_end(taken_at), now);
        }
    }

    fn grant(&mut self, units: u64, now: Timestamp) {
        let mut current = self.current(ticks(now));
        if current.units > 0 {
            current.units = (current.units - i128::from(units)).max(0);
            self.write(current);
        }
    }

    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp) {
        let mut current = self.current(ticks(now));
        let most = match overdraft {
            _ if self.tally => 1 << 49,
            Overdraft::None => self.limit,
            Overdraft::OneCapacity => 2 * self.limit,
            Overdraft::Unlimited => 1 << 49,
        };
        let room = (most - current.units).max(0);
        current.units += room.min(units.into());
        if current.units > 0 {
            self.write(current);
        }
    }

    fn used(&mut self, now: Timestamp) -> u64 {
        whole(self.current(ticks(now)).units)
    }
}
