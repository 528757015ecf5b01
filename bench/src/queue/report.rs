//! The report: rows, bars, and the conditions of the measurement.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

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
    /// The median difference of the delays of requests that both admitted, in milliseconds.
    pub median_ms: f64,
    /// The largest difference of these delays, in milliseconds.
    pub largest_ms: f64,
    /// The largest difference of these delays, relative to the larger of 3 ms and one percent.
    pub largest_relative: f64,
    /// The largest time by which a request was sent too late, in milliseconds.
    pub late_ms: f64,
}

impl Row {
    /// Creates a row from the responses of nginx and of Tollgate to each request.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn new(words: &'static str, pairs: &[(Response, Response)]) -> Self {
        let is_admitted = |it: &Response| it.status == 200;
        let same = pairs.iter().filter(|(theirs, ours)| is_admitted(theirs) == is_admitted(ours)).count();
        let admitted: Vec<_> =
            pairs.iter().filter(|(theirs, ours)| is_admitted(theirs) && is_admitted(ours)).collect();
        let millis =
            |(theirs, ours): &&(Response, Response)| theirs.delay.abs_diff(ours.delay).as_secs_f64() * 1e3;
        let relative = |pair: &&(Response, Response)| {
            millis(pair) / (TOLERANCE.as_secs_f64() * 1e3).max(pair.0.delay.as_secs_f64() * 10.0)
        };
        Self {
            words,
            requests: pairs.len(),
            refused: pairs.iter().filter(|(theirs, _)| !is_admitted(theirs)).count(),
            same: same as f64 / pairs.len().max(1) as f64,
            delayed: admitted.iter().filter(|(theirs, _)| theirs.delay >= TOLERANCE).count(),
            median_ms: crate::report::median(admitted.iter().map(millis)),
            largest_ms: admitted.iter().map(millis).fold(0.0, f64::max),
            largest_relative: admitted.iter().map(relative).fold(0.0, f64::max),
            late_ms: pairs.iter().map(|it| it.0.late.max(it.1.late).as_secs_f64() * 1e3).fold(0.0, f64::max),
        }
    }
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
            "{:<18}{:>9}{:>9}{:>8}{:>9}{:>12}{:>12}{:>9}",
            "limit_req", "requests", "refused", "same", "delayed", "median ms", "largest ms", "late ms"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<18}{:>9}{:>9}{:>7.1}%{:>9}{:>12.2}{:>12.2}{:>9.2}",
                row.words,
                row.requests,
                row.refused,
                row.same * 100.0,
                row.delayed,
                row.median_ms,
                row.largest_ms,
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
        let row = Row::new(
            "burst=1",
            &[
                (response(200, 1), response(200, 2)),
                (response(200, 1_000), response(200, 1_005)),
                (response(429, 1), response(429, 90)),
                (response(429, 1), response(200, 90)),
            ],
        );
        assert_eq!((row.requests, row.refused, row.delayed), (4, 2, 1));
        assert!((row.same - 0.75).abs() < 1e-9 && (row.largest_ms - 5.0).abs() < 1e-9);
        assert!((row.largest_relative - 0.5).abs() < 1e-9, "5 of 10 ms");
    }
}
