//! A short time with a lower limit, in which the baseline is measured.

use std::time::Duration;

use super::cohort::Cohort;
use super::load_point::LoadPoint;
use super::whole;

/// The limit during a dip, as a share of the requests that the service is thought to work on. Also the
/// share of the requests in flight up to which requests are taken not to wait.
pub(super) const DIP_SHARE: f64 = 0.7;

/// The time in which the requests in flight must have fallen, in latencies.
const MAX_DRAIN_LATENCIES: f64 = 2.0;

/// A short time with a lower limit, in which no admitted request waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dip {
    limit: u32,
    /// The requests in flight up to which no request is thought to wait. There may be more: the most important
    /// class is admitted beyond the limit, and a limit that is only observed refuses none.
    pub(super) max_inflight: f64,
    /// The window before.
    pub(super) before: LoadPoint,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Requests that were admitted before the dip are in flight. It fails at this time.
    Draining(Duration),
    /// The requests that are admitted now are measured.
    Measuring,
    /// The limit may rise again. Requests that were admitted in the dip are still awaited.
    Served,
}

/// The state of a dip whose requests in flight fall.
pub(super) enum Drain {
    /// Too many requests are in flight.
    Continues,
    /// The requests of this cohort are measured.
    Done(Cohort),
    /// Too many requests are in flight for too long.
    Failed,
}

impl Dip {
    /// Starts a dip of a service that is thought to work on this number of requests.
    pub(super) fn new(working: f64, before: LoadPoint, now: Duration) -> Self {
        let time = Duration::from_secs_f64(MAX_DRAIN_LATENCIES * before.mean.latency);
        Self {
            limit: whole((working * DIP_SHARE).floor().max(1.0)),
            max_inflight: (working * 1.1).max(2.0),
            before,
            stage: Stage::Draining(now.saturating_add(time)),
        }
    }

    /// Returns the limit, as long as it is needed.
    pub(super) fn limit(&self) -> Option<u32> {
        (self.stage != Stage::Served).then_some(self.limit)
    }

    /// Returns whether the requests in flight have fallen; `None` if they had before.
    pub(super) fn drain(&mut self, next: u64, inflight: u32, now: Duration) -> Option<Drain> {
        let Stage::Draining(until) = self.stage else { return None };
        // Fewer than before are enough for a comparison.
        let max_measured = whole(self.max_inflight.max(self.before.inflight * DIP_SHARE));
        Some(if inflight <= max_measured {
            self.stage = Stage::Measuring;
            Drain::Done(Cohort::of_dip(next, self.limit, max_measured))
        } else if now >= until {
            Drain::Failed
        } else {
            Drain::Continues
        })
    }

    /// Lets the limit rise again.
    pub(super) const fn end(&mut self) {
        self.stage = Stage::Served;
    }
}
