//! Counts over time, in cells of equal length, which grow if the end is unknown.

use serde::Serialize;
use tollgate::{Span, Timestamp};

/// The most cells, which is the resolution of a chart.
const MAX_CELLS: usize = 240;

/// Counts over time.
#[derive(Clone, Debug)]
pub(super) struct Series {
    from: Timestamp,
    step: u64,
    cells: Vec<Cell>,
}

/// Counts of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Cell {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    /// The most units of any key in the window that ends in this cell.
    pub(super) window: u64,
}

impl Series {
    /// Creates cells for a known length.
    pub(super) fn over(from: Timestamp, length: Span) -> Self {
        let step = length.as_micros().div_ceil(MAX_CELLS as u64).max(1);
        let count =
            usize::try_from(length.as_micros().div_ceil(step)).unwrap_or(MAX_CELLS).clamp(1, MAX_CELLS);
        Self { from, step, cells: vec![Cell::default(); count] }
    }

    /// Creates cells of a second, which double as needed.
    pub(super) const fn open(from: Timestamp) -> Self {
        Self { from, step: 1_000_000, cells: Vec::new() }
    }

    /// Returns the index of the cell of a time.
    pub(super) fn index(&self, at: Timestamp) -> usize {
        usize::try_from(at.since(self.from).as_micros() / self.step).unwrap_or(usize::MAX)
    }

    /// Returns the start of a cell.
    pub(super) fn start_of(&self, index: usize) -> Timestamp {
        self.from + Span::from_micros(self.step.saturating_mul(index as u64))
    }

    /// Returns the cell of a time.
    pub(super) fn cell(&mut self, at: Timestamp) -> &mut Cell {
        while self.index(at) >= MAX_CELLS {
            self.step = self.step.saturating_mul(2);
            self.cells = self.cells.chunks(2).map(joined).collect();
        }
        let index = self.index(at);
        if index >= self.cells.len() {
            self.cells.resize(index + 1, Cell::default());
        }
        &mut self.cells[index]
    }

    pub(super) const fn step(&self) -> Span {
        Span::from_micros(self.step)
    }

    pub(super) fn cells(&self) -> &[Cell] {
        &self.cells
    }
}

fn joined(cells: &[Cell]) -> Cell {
    cells.iter().fold(Cell::default(), |all, it| Cell {
        offered: all.offered + it.offered,
        admitted: all.admitted + it.admitted,
        window: all.window.max(it.window),
    })
}
