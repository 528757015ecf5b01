//! The report: rows, bars, and the conditions of the measurement.

use std::fmt;

use serde::Serialize;

use super::{Contestant, ReadOptions};
use crate::report::{Bar, Machine, median};

/// One program on one log size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Lines of the log.
    pub lines: usize,
    /// The program.
    pub contestant: Contestant,
    /// All rounds.
    pub rounds: Vec<ReadOptions>,
    /// The median of the rounds.
    pub lines_per_second: f64,
    /// The largest of the rounds.
    pub peak_bytes: u64,
}

impl Row {
    /// Creates a row from its rounds.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn new(lines: usize, contestant: Contestant, rounds: Vec<ReadOptions>) -> Self {
        let lines_per_second = lines as f64 / median(rounds.iter().map(|it| it.seconds));
        let peak_bytes = rounds.iter().map(|it| it.peak_bytes).max().unwrap_or(0);
        Self { lines, contestant, rounds, lines_per_second, peak_bytes }
    }
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The machine.
    pub machine: Machine,
    /// Version of goaccess.
    pub goaccess: String,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// Targets and results.
    pub bars: Vec<Bar>,
}

impl ReplayReport {
    /// Creates the report from its rows: those of the small log, then those of the large one.
    pub fn new(machine: Machine, goaccess: String, rows: Vec<Row>) -> Self {
        let bars = bars(&rows);
        Self { machine, goaccess, rows, bars }
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn bars(rows: &[Row]) -> Vec<Bar> {
    let row = |contestant, size| rows.iter().filter(|it| it.contestant == contestant).nth(size);
    let (ours, theirs) = (|size| row(Contestant::Tollgate, size), |size| row(Contestant::Goaccess, size));
    let faster = |size| Some(ours(size)?.lines_per_second / theirs(size)?.lines_per_second);
    let larger = || Some(ours(1)?.peak_bytes as f64 / ours(0)?.peak_bytes as f64);
    vec![
        Bar::at_least(1.0, "small log: tollgate / goaccess, lines/s", faster(0)),
        Bar::at_least(1.0, "large log: tollgate / goaccess, lines/s", faster(1)),
        Bar::at_most(1.1, "memory of tollgate, large log / small log", larger()),
    ]
}

impl fmt::Display for ReplayReport {
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, rustc, commit } = &self.machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}\n{}\n", self.goaccess)?;
        writeln!(f, "{:>10}  {:<10}{:>12}{:>10}{:>10}", "lines", "", "lines/s", "seconds", "peak MiB")?;
        for row in &self.rows {
            writeln!(
                f,
                "{:>10}  {:<10}{:>12.0}{:>10.2}{:>10.1}",
                row.lines,
                row.contestant.name(),
                row.lines_per_second,
                row.lines as f64 / row.lines_per_second,
                row.peak_bytes as f64 / f64::from(1 << 20),
            )?;
        }
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}
