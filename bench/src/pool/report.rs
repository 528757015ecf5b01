//! The report: rows, bars, and the conditions of the measurement.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::CAPACITY;
use super::load::{Answer, Tenant};
use crate::report::{Bar, Machine};

/// An answer is of use within this time.
const USEFUL: Duration = Duration::from_secs(1);

/// One variant of the service.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the variant.
    pub variant: &'static str,
    /// Requests sent.
    pub requests: usize,
    /// Successful answers within one second, in a second.
    pub goodput: f64,
    /// Requests that were refused at once or after a wait, as a share of all.
    pub refused: f64,
    /// Requests whose caller left without an answer, as a share of all.
    pub abandoned: f64,
    /// Median latency of successful answers, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of that latency, in milliseconds.
    pub p99_ms: f64,
    /// 99th percentile of the latency of refusals, in milliseconds.
    pub refusal_p99_ms: f64,
    /// For each tenant: the share of its requests that succeeded within one second.
    pub success: BTreeMap<&'static str, f64>,
    /// Cores that other programs used meanwhile.
    pub others: f64,
}

impl Row {
    /// Creates a row from all answers.
    pub fn new(
        variant: &'static str,
        tenants: &[Tenant],
        answers: &[Answer],
        length: Duration,
        others: f64,
    ) -> Self {
        let is_success = |it: &&Answer| it.status.is_some_and(|status| (200..300).contains(&status));
        let is_refusal = |it: &&Answer| matches!(it.status, Some(429 | 503));
        let is_useful = |it: &&Answer| is_success(it) && it.latency <= USEFUL;
        let success = |nth: usize| {
            let own = || answers.iter().filter(|it| it.tenant == nth);
            share(own().filter(is_useful).count(), own().count())
        };
        let served: Vec<Duration> = answers.iter().filter(is_success).map(|it| it.latency).collect();
        let refused: Vec<Duration> = answers.iter().filter(is_refusal).map(|it| it.latency).collect();
        let useful = answers.iter().filter(is_useful).count();
        let abandoned = answers.iter().filter(|it| it.status.is_none()).count();
        Self {
            variant,
            requests: answers.len(),
            goodput: count(useful) / length.as_secs_f64(),
            refused: share(refused.len(), answers.len()),
            abandoned: share(abandoned, answers.len()),
            p50_ms: percentile(&served, 50),
            p99_ms: percentile(&served, 99),
            refusal_p99_ms: percentile(&refused, 99),
            success: tenants.iter().enumerate().map(|(nth, it)| (it.name, success(nth))).collect(),
            others,
        }
    }

    /// The smallest success of the tenants other than the greedy one.
    fn quiet(&self) -> Option<f64> {
        self.success.iter().filter(|(name, _)| **name != "greedy").map(|(_, share)| *share).reduce(f64::min)
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

fn share(part: usize, whole: usize) -> f64 {
    count(part) / count(whole.max(1))
}

/// Returns a percentile in milliseconds; NaN without values.
fn percentile(latencies: &[Duration], percent: usize) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(f64::NAN, |it| it.as_secs_f64() * 1e3)
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PoolReport {
    /// The machine.
    pub machine: Machine,
    /// Version of PostgreSQL.
    pub postgres: String,
    /// Requests in a second that the pool can answer.
    pub capacity: f64,
    /// Rows in the order of the table.
    pub rows: Vec<Row>,
    /// Targets and results.
    pub bars: Vec<Bar>,
}

impl PoolReport {
    /// Creates the report from its rows.
    pub fn new(machine: Machine, postgres: String, rows: Vec<Row>) -> Self {
        let ceiling = rows.iter().find(|row| row.variant == "ceiling");
        let bars = vec![
            Bar::at_least(0.9, "ceiling: goodput / capacity", ceiling.map(|it| it.goodput / CAPACITY)),
            Bar::at_least(0.99, "ceiling: success of the quiet tenants", ceiling.and_then(Row::quiet)),
            Bar::at_most(1_000.0, "ceiling: p99 of successful answers, ms", ceiling.map(|it| it.p99_ms)),
        ];
        Self { machine, postgres, capacity: CAPACITY, rows, bars }
    }
}

impl fmt::Display for PoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, rustc, commit } = &self.machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        writeln!(f, "PostgreSQL {}, capacity {:.0}/s\n", self.postgres, self.capacity)?;
        writeln!(
            f,
            "{:<20}{:>9}{:>11}{:>9}{:>11}{:>9}{:>9}{:>9}{:>9}{:>8}",
            "variant",
            "requests",
            "goodput/s",
            "refused",
            "abandoned",
            "p50 ms",
            "p99 ms",
            "greedy",
            "quiet",
            "others"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<20}{:>9}{:>11.1}{:>8.1}%{:>10.1}%{:>9.1}{:>9.1}{:>8.1}%{:>8.1}%{:>8.2}",
                row.variant,
                row.requests,
                row.goodput,
                row.refused * 100.0,
                row.abandoned * 100.0,
                row.p50_ms,
                row.p99_ms,
                row.success.get("greedy").copied().unwrap_or(f64::NAN) * 100.0,
                row.quiet().unwrap_or(f64::NAN) * 100.0,
                row.others
            )?;
        }
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_only_successes_within_a_second() {
        let tenants = [Tenant { name: "greedy", rate: 2 }, Tenant { name: "quiet", rate: 2 }];
        let answer =
            |tenant, status, millis| Answer { tenant, status, latency: Duration::from_millis(millis) };
        let answers = [
            answer(0, Some(201), 10),
            answer(0, Some(429), 1),
            answer(0, Some(201), 1_500),
            answer(0, None, 2_000),
            answer(1, Some(201), 20),
            answer(1, Some(201), 30),
        ];
        let row = Row::new("pool", &tenants, &answers, Duration::from_secs(2), 0.0);
        assert!((row.goodput - 1.5).abs() < 1e-9);
        assert!((row.success["greedy"] - 0.25).abs() < 1e-9 && row.quiet() == Some(1.0));
        assert!((row.p50_ms - 20.0).abs() < 1e-9 && (row.p99_ms - 1_500.0).abs() < 1e-9);
        assert!((row.refused - 1.0 / 6.0).abs() < 1e-9 && (row.abandoned - 1.0 / 6.0).abs() < 1e-9);
    }
}
