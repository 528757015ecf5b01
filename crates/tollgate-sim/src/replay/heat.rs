//! Counts requests and refusals in time cells, which widen as the log goes on.
//!
//! All strips of a report begin at the first request of the log and end at its last, so they have the same step and
//! can be compared.
//!
//! Not here: drawing.

use tollgate::Timestamp;

use super::report;

/// The most cells of a strip.
const MAX_CELLS: u64 = 240;
/// Lengths of a cell in seconds, each a multiple of the one before. Longer ones are doubled.
const CELL_SECONDS: [u64; 13] = [1, 2, 10, 30, 60, 120, 600, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400];

/// Requests and refusals over time.
#[derive(Clone, Debug)]
pub(super) struct Heat {
    /// Start of the first cell, in seconds since 1970; a multiple of the step.
    from: u64,
    step: u64,
    /// Requests and refusals.
    cells: Vec<(u64, u64)>,
}

impl Heat {
    /// Creates a strip for a log that begins at this time.
    pub(super) const fn starting(first: Timestamp) -> Self {
        Self { from: first.as_micros() / 1_000_000, step: 1, cells: Vec::new() }
    }

    /// Counts a request.
    pub(super) fn note(&mut self, at: Timestamp, refused: bool) {
        let cell = self.reach(at);
        cell.0 += 1;
        cell.1 += u64::from(refused);
    }

    /// Returns the cell of a time, and creates the cells before it.
    fn reach(&mut self, at: Timestamp) -> &mut (u64, u64) {
        let second = (at.as_micros() / 1_000_000).max(self.from);
        while second / self.step - self.from / self.step >= MAX_CELLS {
            self.widen();
        }
        let place = usize::try_from(second / self.step - self.from / self.step).unwrap_or(0);
        if place >= self.cells.len() {
            self.cells.resize(place + 1, (0, 0));
        }
        &mut self.cells[place]
    }

    fn widen(&mut self) {
        let next = CELL_SECONDS.into_iter().find(|&step| step > self.step).unwrap_or(2 * self.step);
        let from = self.from / next * next;
        let mut wide = Vec::with_capacity(self.cells.len());
        for (place, cell) in (0..).zip(&self.cells) {
            let start = self.from / self.step * self.step + place * self.step;
            let place = usize::try_from((start - from) / next).unwrap_or(0);
            if place >= wide.len() {
                wide.resize(place + 1, (0, 0));
            }
            wide[place].0 += cell.0;
            wide[place].1 += cell.1;
        }
        (self.from, self.step, self.cells) = (from, next, wide);
    }

    /// Returns the strip of a log that ends at this time.
    pub(super) fn finish(mut self, last: Timestamp) -> report::Heat {
        self.reach(last);
        let (requests, refused) = self.cells.into_iter().unzip();
        report::Heat { from: self.from, step: self.step, requests, refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_cells_loses_no_counts_and_all_strips_agree() {
        let first = 1_431_857_103;
        for span in [0, 1, 239, 240, 100_000, 40_000_000, 4_000_000_000] {
            let mut often = Heat::starting(Timestamp::from_secs(first));
            let mut once = often.clone();
            for part in 0..=100 {
                often.note(Timestamp::from_secs(first + span * part / 100), part % 4 == 0);
            }
            once.note(Timestamp::from_secs(first + span / 2), true);
            let last = Timestamp::from_secs(first + span);
            let (often, once) = (often.finish(last), once.finish(last));
            assert_eq!((often.requests.iter().sum::<u64>(), often.refused.iter().sum::<u64>()), (101, 26));
            assert_eq!(
                (often.from, often.step, often.requests.len()),
                (once.from, once.step, once.requests.len())
            );
            assert!(often.requests.len() <= 240 && often.from <= first && first - often.from < often.step);
        }
    }
}
