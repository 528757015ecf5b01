//! The counts of one mode.

use tollgate::{Algorithm as _, Bucket};

/// The decisions and calls of one mode.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) offered: u64,
    /// The times at which requests were admitted, in microseconds since the start.
    pub(super) admitted: Vec<u64>,
    /// The times of calls to the store.
    pub(super) calls: Vec<u64>,
    /// Requests that waited for a call.
    pub(super) waited: u64,
}

impl Tally {
    /// Returns the units above the bound in the worst stretch of time: a queue that is served at the rate of the bucket
    /// holds more than its burst. Whole units: fractions of a unit are rounding.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "units of a simulation are few"
    )]
    pub(super) fn overshoot(&mut self, bucket: &Bucket) -> u64 {
        self.admitted.sort_unstable();
        let per_us = bucket.rate().count as f64 / bucket.rate().period.as_micros() as f64;
        let (mut level, mut last, mut most) = (0.0_f64, 0, 0.0_f64);
        for &at in &self.admitted {
            level = (level - (at - last) as f64 * per_us).max(0.0) + 1.0;
            last = at;
            most = most.max(level);
        }
        (most - bucket.capacity() as f64 + 0.01).max(0.0) as u64
    }
}

/// Counts times by cells of `step` microseconds.
pub(super) fn by_cell(times: &[u64], step: u64, cells: usize) -> Vec<u64> {
    let mut counts = vec![0; cells];
    for at in times {
        let cell = usize::try_from(at / step).unwrap_or(usize::MAX).min(cells.saturating_sub(1));
        if let Some(count) = counts.get_mut(cell) {
            *count += 1;
        }
    }
    counts
}
