//! Windows in a row whose latency is far above the baseline.
//!
//! Either the service has fewer workers, and requests wait, or each request takes longer, and the baseline
//! is obsolete. The limit falls in both cases. A window below the capacity of the service tells which.

use super::load_point::LoadPoint;

/// The number of windows after which no more conclusions are drawn: the limit has settled, and windows
/// differ by chance. Requests wait permanently if important ones exceed the capacity by themselves.
const MAX_WINDOWS: u32 = 16;

/// The number of windows and dips in a row that prove a slower service. One may be below the capacity by chance: the
/// throughput of a window varies by about a tenth, and many windows are compared.
const MIN_PROOFS: u32 = 2;

/// Windows in a row whose latency is far above the baseline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm {
    windows: u32,
    /// Whether the requests in flight did not fall in a dip: only important requests are admitted beyond its limit.
    has_failed_dip: bool,
    /// The window with the most requests in flight.
    highest: Option<LoadPoint>,
    /// The windows and dips in a row that were below the capacity.
    proofs: u32,
}

impl Alarm {
    /// Adds a window. The first one does not count: the service changed during it.
    pub(super) fn add(&mut self, window: LoadPoint) {
        self.windows = self.windows.saturating_add(1);
        match self.highest {
            None if self.windows == 1 => {}
            Some(it) if window.has_changed_since(it) => {
                (self.windows, self.highest, self.proofs) = (1, None, 0);
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

    /// Adds a window or dip to those that may prove that the baseline is obsolete. Returns whether they do: the requests
    /// of several in a row did not wait. While dips measure the baseline, windows need not.
    pub(super) fn prove_slower_service(&mut self, point: LoadPoint) -> bool {
        let is_below = self.highest.is_some_and(|it| point.is_below_capacity(it));
        self.proofs = if is_below { self.proofs.saturating_add(1) } else { 0 };
        self.has_failed_dip && self.is_recent() && self.proofs >= MIN_PROOFS
    }
}
