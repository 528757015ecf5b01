//! The pace of calls within a window.
//!
//! A tenth of the window may be sent at once; the rest follows a little faster than evenly, so that the window is used
//! up before it ends. After a pause, the pace is the one that uses up the rest of the window in the time that is left.
//! The tenth bounds every burst: servers have secondary limits against bursts that the headers do not show, such as
//! GitHub's points per minute. A refusal by such a limit halves it.

use tollgate::{Span, Timestamp};

use super::{Ready, after, span_us};

/// The part of a window that may be sent at once: at first, and at the least.
const BURST: (f64, f64) = (0.1, 0.01);
/// The pace, as a multiple of the even one: with a tenth at once, the window is used up after three quarters of it.
const PACE: f64 = 1.2;
/// The part of the remaining time in which the rest of a window is used after a pause.
const CATCH_UP: f64 = 0.7;

/// The state of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowState {
    pub(super) level: f64,
    pub(super) limit: f64,
    /// The time from the start to the reset, if it is known.
    pub(super) length: Option<Span>,
    /// The time to the reset.
    pub(super) left: Span,
}

/// The units that may be sent at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowPace {
    burst_share: f64,
    /// The units at `updated`; `None` at the start of a window.
    units: Option<f64>,
    updated: Timestamp,
}

impl WindowPace {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { burst_share: BURST.0, units: None, updated: now }
    }

    /// Starts a new window.
    pub(super) fn restart(&mut self) {
        self.units = None;
    }

    /// Takes the units of a call.
    pub(super) fn take(&mut self, cost: f64) {
        self.units = self.units.map(|units| units - cost);
    }

    /// Makes bursts smaller, because a limit that no header shows has refused one.
    pub(super) fn slow_down(&mut self) {
        self.burst_share = (self.burst_share / 2.0).max(BURST.1);
        self.units = Some(0.0);
    }

    /// Returns when a call may be sent.
    pub(super) fn ready(&mut self, window: &WindowState, cost: f64, now: Timestamp) -> Ready {
        let burst = (window.limit * self.burst_share).max(cost).max(1.0);
        let even = window.length.map_or(0.0, |length| window.limit / span_us(length).max(1.0));
        let rest = window.level / (CATCH_UP * span_us(window.left)).max(1.0);
        let rate = rest.max(PACE * even).max(f64::MIN_POSITIVE);
        let refilled = self.units.map_or(burst, |units| units + rate * span_us(now.since(self.updated)));
        let units = refilled.min(burst);
        (self.units, self.updated) = (Some(units), now.max(self.updated));
        if units >= cost { Ready::Now } else { Ready::At(after(now, (cost - units) / rate)) }
    }
}
