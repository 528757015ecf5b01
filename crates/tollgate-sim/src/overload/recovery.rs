//! The time that a service needs to recover after the overload.

use super::tally::{CELLS, Cell, share};

/// The share of the calls that a recovered service answers in time.
const MIN_SUCCESS: f64 = 0.95;
/// The mean latency of a recovered service, as a multiple of the latency before the overload.
const MAX_LATENCY: f64 = 2.0;

/// Returns the number of cells from the end of the overload to the first cell from which on the service is as it was
/// before; `None` if it has not recovered at the end. `calm` is the number of cells before the overload, `over` the
/// number of cells before its end.
pub(super) fn cells_to_recover(cells: &[Cell], calm: usize, over: usize) -> Option<usize> {
    let before = cells.get(..calm)?;
    let sum = |of: fn(&Cell) -> u64| before.iter().map(of).sum::<u64>();
    let calm_latency = share(sum(|it| it.latency_sum), sum(|it| it.succeeded).max(1));
    let is_recovered = |cell: &Cell| {
        let latency = share(cell.latency_sum, cell.succeeded.max(1));
        share(cell.succeeded, cell.calls) >= MIN_SUCCESS && latency <= MAX_LATENCY * calm_latency
    };
    let after = cells.get(over..)?;
    let last_bad = after.iter().rposition(|cell| !is_recovered(cell));
    let needed = last_bad.map_or(0, |at| at + 1);
    (needed < after.len()).then_some(needed)
}

/// Returns the number of cells before a time of the run.
pub(super) fn cells_until(at: u64, duration: u64) -> usize {
    usize::try_from((u128::from(at) * u128::from(CELLS)).div_ceil(u128::from(duration.max(1)))).unwrap_or(0)
}
