//! The report: rows, bars, and the conditions of the measurement.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Pair;
use super::arrivals::Response;
use crate::report::{Bar, Machine};

/// Delays are the same if they differ by at most this much, or by one percent.
const TOLERANCE: Duration = Duration::from_millis(3);

/// A request that is sent later than this is not the same arrival for both servers.
pub(super) const MAX_LATE: Duration = Duration::from_millis(1);

/// One `limit_req` of nginx and the policy imported from it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The words of nginx.
    pub words: &'static str,
    /// The number of requests.
    pub requests: usize,
    /// The number of requests that nginx refused.
    pub refused: usize,
    /// The share of requests that both admitted or both refused.
    pub same: f64,
    /// The number of admitted requests that nginx delayed for at least a tolerance.
    pub delayed: usize,
    /// The median difference of the delays of requests that both admitted, in milliseconds. The delay of a request is
    /// its median over the rounds: a machine that takes a core away for a moment delays one round.
    pub median_ms: f64,
    /// The largest difference of these delays, in milliseconds.
    pub largest_ms: f64,
    /// The largest difference of these delays, relative to the larger of 3 ms and one percent.
    pub largest_relative: f64,
    /// The largest difference in a single round, in milliseconds.
    pub outlier_ms: f64,
    /// The largest time by which a request was sent too late, in milliseconds.
    pub late_ms: f64,
}

impl Row {
    /// Creates a row from the responses of nginx and of Tollgate to each request, by round.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn new(words: &'static str, rounds: &[Vec<Pair>]) -> Self {
        let is_admitted = |it: &Response| it.status == 200;
        let pairs = || rounds.iter().flatten();
        let requests = pairs().count();
        let same = pairs().filter(|(theirs, ours)| is_admitted(theirs) == is_admitted(ours)).count();
        let both = |it: &&Pair| is_admitted(&it.0) && is_admitted(&it.1);
        let delays: Vec<Delays> = (0..rounds.first().map_or(0, Vec::len))
            .map(|nth| rounds.iter().filter_map(|round| round.get(nth)).filter(both).collect::<Vec<_>>())
            .filter(|each| !each.is_empty())
            .map(|each| Delays::of(&each))
            .collect();
        let differences = || delays.iter().map(Delays::difference_ms);
        Self {
            words,
            requests,
            refused: pairs().filter(|(theirs, _)| !is_admitted(theirs)).count(),
            same: same as f64 / requests.max(1) as f64,
            delayed: pairs().filter(both).filter(|(theirs, _)| theirs.delay >= TOLERANCE).count(),
            median_ms: crate::report::median(differences()),
            largest_ms: differences().fold(0.0, f64::max),
            largest_relative: delays.iter().map(Delays::relative).fold(0.0, f64::max),
            outlier_ms: pairs().filter(both).map(|it| Delays::of(&[it]).difference_ms()).fold(0.0, f64::max),
            late_ms: pairs().map(|it| millis(it.0.late.max(it.1.late))).fold(0.0, f64::max),
        }
    }
}

/// The delays of one request by both servers, in milliseconds: medians over the rounds.
struct Delays {
    theirs: f64,
    ours: f64,
}

impl Delays {
    fn of(pairs: &[&Pair]) -> Self {
        let median =
            |delay: fn(&Pair) -> Duration| crate::report::median(pairs.iter().map(|it| millis(delay(it))));
        Self { theirs: median(|it| it.0.delay), ours: median(|it| it.1.delay) }
    }

    fn difference_ms(&self) -> f64 {
        (self.theirs - self.ours).abs()
    }

    /// Returns the difference, relative to the larger of 3 ms and one percent.
    fn relative(&self) -> f64 {
        self.difference_ms() / millis(TOLERANCE).max(self.theirs / 100.0)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct QueueReport {
    /// The machine.
    pub machine: Machine,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Remarks on this run.
    pub remarks: Vec<String>,
}

impl QueueReport {
    /// Creates the report from its rows.
    pub fn new(machine: Machine, rows: Vec<Row>) -> Self {
        let (same, largest) = (rows.iter().map(|it| it.same), rows.iter().map(|it| it.largest_relative));
        let bars = vec![
            Bar::at_least(1.0, "requests that both admit or both refuse", same.reduce(f64::min)),
            Bar::at_most(1.0, "difference of delays / larger of 3 ms and 1 %", largest.reduce(f64::max)),
        ];
        let remarks = rows.iter().filter(|it| it.late_ms > MAX_LATE.as_secs_f64() * 1e3).map(|it| {
            let Row { words, late_ms, .. } = it;
            format!("{words}: the machine was busy: a request was sent {late_ms:.1} ms late; run it again")
        });
        Self { machine, remarks: remarks.collect(), rows, bars }
    }
}

impl fmt::Display for QueueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, rustc, commit } = &self.machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}\n")?;
        writeln!(
            f,
            "{:<18}{:>9}{:>9}{:>8}{:>9}{:>12}{:>12}{:>12}{:>9}",
            "limit_req",
            "requests",
            "refused",
            "same",
            "delayed",
            "median ms",
            "largest ms",
            "outlier ms",
            "late ms"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<18}{:>9}{:>9}{:>7.1}%{:>9}{:>12.2}{:>12.2}{:>12.2}{:>9.2}",
                row.words,
                row.requests,
                row.refused,
                row.same * 100.0,
                row.delayed,
                row.median_ms,
                row.largest_ms,
                row.outlier_ms,
                row.late_ms
            )?;
        }
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_largest_difference_of_requests_that_both_admit() {
        let response =
            |status, millis| Response { status, delay: Duration::from_millis(millis), late: Duration::ZERO };
        let round = |outlier: u64| {
            vec![
                (response(200, 1), response(200, 2 + outlier)),
                (response(200, 1_000), response(200, 1_005)),
                (response(429, 1), response(429, 90)),
                (response(429, 1), response(200, 90)),
            ]
        };
        let row = Row::new("burst=1", &[round(0), round(40), round(0)]);
        assert_eq!((row.requests, row.refused, row.delayed), (12, 6, 3));
        assert!((row.same - 0.75).abs() < 1e-9 && (row.largest_ms - 5.0).abs() < 1e-9);
        assert!((row.largest_relative - 0.5).abs() < 1e-9, "5 of 10 ms");
        assert!((row.outlier_ms - 41.0).abs() < 1e-9, "one round is shown, but decides nothing");
    }
}
