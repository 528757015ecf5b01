//! Windows in a row whose latency is far above the baseline.
//!
//! Either the service has fewer workers, and requests wait, or each request takes longer, and the baseline
//! is obsolete. The limit falls in both cases. A window below the capacity of the service tells which.

use super::load_point::LoadPoint;

/// The number of windows after which no more conclusions are drawn: the limit has settled, and windows
/// differ by chance. Requests wait permanently if important ones exceed the capacity by themselves.
const MAX_WINDOWS: u32 = 16;

/// The factor of the latency from which the service has changed again.
const CHANGE_FACTOR: f64 = 1.25;

/// Windows in a row whose latency is far above the baseline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm {
    windows: u32,
    /// Whether the requests in flight did not fall in a dip: only important requests are admitted beyond its limit.
    has_failed_dip: bool,
    /// The window with the most requests in flight.
    highest: Option<LoadPoint>,
}

impl Alarm {
    /// Adds a window. The first one does not count: the service changed during it.
    pub(super) fn add(&mut self, window: LoadPoint) {
        self.windows = self.windows.saturating_add(1);
        match self.highest {
            None if self.windows == 1 => {}
            Some(it) if window.is_slower(it) && window.mean.latency > CHANGE_FACTOR * it.mean.latency => {
                (self.windows, self.highest) = (1, None);
            }
            Some(it) if window.inflight < it.inflight && !window.is_slower(it) => {}
            _ => self.highest = Some(window),
        }
    }

    /// Records a dip in which too many requests were in flight to measure the baseline.
    pub(super) const fn fail_dip(&mut self) {
        self.has_failed_dip = true;
    }

    /// Whether the limit still follows the change.
    pub(super) const fn is_recent(self) -> bool {
        self.windows <= MAX_WINDOWS
    }

    /// Whether the given requests did not wait, so that the baseline is obsolete. While dips measure it, windows
    /// need not.
    pub(super) fn proves_slower_service(self, point: LoadPoint) -> bool {
        self.has_failed_dip && self.is_recent() && self.highest.is_some_and(|it| point.is_below_capacity(it))
    }
}
