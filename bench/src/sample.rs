//! Results of loading a server: a sample per round, and a row of the table for all rounds.
//!
//! - [`Sample`]: one measurement, with the activity of other programs.
//! - [`Row`]: the rounds of one server in one case, and ratios between rows.
//! - [`Rows`]: rows as a table.
//!
//! Not here: loading a server, and checking its responses.

mod row;
mod table;

use std::io;

use serde::Serialize;

use crate::process::{CpuTime, Family, are_disturbing, others};
use crate::report::median;

pub use self::row::{Entry, Row, ratio};
pub use self::table::Rows;

/// The most attempts of a measurement on a busy machine.
const MAX_TRIES: usize = 4;

/// The result of one measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// Responses that the load counted.
    pub requests: u64,
    /// Responses per second.
    pub per_second: f64,
    /// CPU time per response, in microseconds.
    pub cpu_us: f64,
    /// The kernel's part of the CPU time.
    pub system_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// Share of the time that the contestant used its core. Well below one, the load was the bottleneck.
    pub busy: f64,
    /// Share of the time that the contestant was runnable without a core. Well above zero, other programs disturbed
    /// it.
    pub waited: f64,
    /// Cores that other programs used meanwhile.
    pub others: f64,
    /// User-space instructions per request.
    pub instructions: Option<f64>,
    /// Bytes of one response, including its head.
    pub answer_bytes: usize,
}

/// The results of a load generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Responses of any kind.
    pub requests: u64,
    /// Responses per second.
    pub per_second: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
}

impl Sample {
    /// Loads a server, and reads its kernel statistics before and after.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn take<T>(
        family: &Family,
        load: impl FnOnce() -> io::Result<T>,
        pace: impl FnOnce(&T) -> Pace,
    ) -> io::Result<(Self, T)> {
        let (earlier, others_earlier) = (family.time()?, others()?);
        let seen = load()?;
        let spent: CpuTime = family.time()?.since(&earlier);
        let others = others()?.saturating_sub(others_earlier);
        let pace = pace(&seen);
        let requests = pace.requests as f64;
        // A load takes a moment to start and to stop, in which the contestant is idle.
        let seconds = requests / pace.per_second;
        let sample = Self {
            requests: pace.requests,
            per_second: pace.per_second,
            cpu_us: spent.busy().as_secs_f64() * 1e6 / requests,
            system_us: spent.system.as_secs_f64() * 1e6 / requests,
            p50_us: pace.p50_us,
            p99_us: pace.p99_us,
            busy: spent.busy().as_secs_f64() / seconds,
            waited: spent.waited.as_secs_f64() / seconds,
            others: others.as_secs_f64() / seconds,
            instructions: None,
            answer_bytes: 0,
        };
        Ok((sample, seen))
    }

    /// Whether other programs took time from the contestant or the load.
    pub fn is_disturbed(&self) -> bool {
        are_disturbing(self.waited, self.others)
    }

    /// Measures, repeats disturbed measurements, and returns the least disturbed one.
    pub fn calmest(measure: impl Fn() -> io::Result<Self>) -> io::Result<Self> {
        let mut calmest = measure()?;
        for _ in 1..MAX_TRIES {
            if !calmest.is_disturbed() {
                break;
            }
            let again = measure()?;
            if again.waited + again.others < calmest.waited + calmest.others {
                calmest = again;
            }
        }
        Ok(calmest)
    }

    /// Returns the median of each number separately.
    fn median(rounds: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| median(rounds.iter().map(number));
        let counted = rounds.iter().filter_map(|sample| sample.instructions);
        let mut requests: Vec<u64> = rounds.iter().map(|sample| sample.requests).collect();
        requests.sort_unstable();
        Self {
            requests: requests.get(requests.len() / 2).copied().unwrap_or_default(),
            per_second: of(|sample| sample.per_second),
            cpu_us: of(|sample| sample.cpu_us),
            system_us: of(|sample| sample.system_us),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            busy: of(|sample| sample.busy),
            waited: of(|sample| sample.waited),
            others: of(|sample| sample.others),
            instructions: Some(median(counted)).filter(|number| number.is_finite()),
            answer_bytes: rounds.first().map_or(0, |sample| sample.answer_bytes),
        }
    }
}
