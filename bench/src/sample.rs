//! What loading a server came to: a sample for each round, a row of the table for all.
//!
//! - [`Sample`]: one measurement, with what others did meanwhile.
//! - [`Row`]: the rounds of one server in one case, and ratios between rows.
//! - [`Rows`]: rows as people read them.
//!
//! Not here: how a server is loaded, and whether its answers were right.

mod row;
mod table;

use std::io;

use serde::Serialize;

use crate::process::{CpuTime, Family, are_disturbing, others};
use crate::report::median;

pub use self::row::{Entry, Row, ratio};
pub use self::table::Rows;

/// How often a measurement is tried, on a machine where others are at work.
const MAX_TRIES: usize = 4;

/// What one measurement came to.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// Answers that the load counted.
    pub requests: u64,
    /// Answers in a second.
    pub per_second: f64,
    /// Time on a core for each, in microseconds.
    pub cpu_us: f64,
    /// The kernel's part of that.
    pub system_us: f64,
    /// Half of the answers took at most so long.
    pub p50_us: f64,
    /// And 99 of 100.
    pub p99_us: f64,
    /// Share of the time that the contestant used its core. Well below one, the load held it back.
    pub busy: f64,
    /// Share of the time that it was able to run and had no core. Well above zero, others were at work.
    pub waited: f64,
    /// Cores that other programs used meanwhile.
    pub others: f64,
    /// In user space, for each request.
    pub instructions: Option<f64>,
    /// One answer, with its head where it has one.
    pub answer_bytes: usize,
}

/// What a load saw of the answers, whoever made it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Answers of any kind.
    pub requests: u64,
    /// Answers in a second.
    pub per_second: f64,
    /// Half of the answers took at most so many microseconds.
    pub p50_us: f64,
    /// And 99 of 100.
    pub p99_us: f64,
}

impl Sample {
    /// Loads a server, and looks at the kernel's accounts of it before and after.
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
        // A load takes a moment to start and to stop, in which the contestant has nothing to do.
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

    /// Measures, again if others disturbed it, and takes the calmest.
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

    /// The median of each number by itself.
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
