//! The report: rows, latencies, exactness, bars, and the conditions of the measurement.

mod bars;
mod table;

use serde::Serialize;

use super::Case;
use super::exactness::Spent;
use super::latency::{Latency, Round, RoundTrips};
use super::trial::Sample;
use crate::report::{Bar, Machine, median};

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// Version of Redis.
    pub redis: String,
    /// Concurrent requests.
    pub in_flight: usize,
    /// Seconds per measurement.
    pub seconds: f64,
}

/// A case, and the baseline right before it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// The baseline: one plain call per decision.
    pub baseline: Sample,
    /// The case.
    pub sample: Sample,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: &'static str,
    /// Medians of the undisturbed rounds; of all rounds if there are none.
    pub median: Sample,
    /// Decisions per second relative to the baseline; the median over rounds.
    pub times_baseline: f64,
    /// Redis CPU time per decision of the baseline relative to the case; the median over rounds.
    pub redis_cpu_saved: f64,
    /// Each round.
    pub rounds: Vec<Pair>,
}

impl Row {
    /// Creates a row from its rounds.
    pub fn new(case: Case, rounds: Vec<Pair>) -> Self {
        let counted = calm(&rounds);
        let ratio = |of: fn(&Pair) -> f64| median(counted.iter().map(of));
        Self {
            case: case.name(),
            median: median_of(counted.iter().map(|pair| &pair.sample)),
            times_baseline: ratio(|it| it.sample.per_second / it.baseline.per_second),
            redis_cpu_saved: ratio(|it| it.baseline.redis_cpu_us / it.sample.redis_cpu_us),
            rounds,
        }
    }

    fn is_disturbed(&self) -> bool {
        !self.rounds.iter().any(is_calm)
    }
}

/// Returns the undisturbed rounds; all rounds if there are none.
fn calm(rounds: &[Pair]) -> Vec<Pair> {
    let calm: Vec<Pair> = rounds.iter().filter(|it| is_calm(it)).copied().collect();
    if calm.is_empty() { rounds.to_vec() } else { calm }
}

fn is_calm(pair: &Pair) -> bool {
    !pair.baseline.is_disturbed() && !pair.sample.is_disturbed()
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct RedisReport {
    /// Under what conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// The median of all measurements of the baseline.
    pub baseline: Sample,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// Of a crowd, decisions in a second with three limits over those with one.
    pub three_limits_speed: Option<f64>,
    /// One decision at a time: the median of each number.
    pub latency_median: Round,
    /// Each round of that.
    pub latency: Vec<Round>,
    /// What one decision at a time costs in calls.
    pub round_trips: RoundTrips,
    /// Several processes, one budget: each round.
    pub exactness: Vec<Spent>,
    /// What was promised, and what came of it.
    pub bars: Vec<Bar>,
    /// What a reader should know of this run.
    pub remarks: Vec<String>,
}

/// What was measured.
pub struct Measured {
    /// Crowds, in the order of the table.
    pub rows: Vec<Row>,
    /// One decision at a time.
    pub latency: Vec<Round>,
    /// What one decision at a time costs in calls.
    pub round_trips: RoundTrips,
    /// Several processes, one budget.
    pub exactness: Vec<Spent>,
}

impl RedisReport {
    /// A run, from what was measured.
    pub fn new(setting: Setting, measured: Measured, mut remarks: Vec<String>) -> Self {
        let bars = bars::all(&measured);
        let Measured { rows, latency, round_trips, exactness } = measured;
        let disturbed = rows.iter().filter(|row| row.is_disturbed()).count();
        if disturbed > 0 {
            remarks.push(format!(
                "the machine was busy: in {disturbed} of {} cases other programs took time in every round; \
                 their numbers mean little, run it again",
                rows.len()
            ));
        }
        if bars::own_script(&rows) > 1.0 {
            remarks.push("own_script was faster than the baseline: bars are against own_script".into());
        }
        let all: Vec<Pair> = rows.iter().flat_map(|row| calm(&row.rounds)).collect();
        let baseline = median_of(all.iter().map(|pair| &pair.baseline));
        let three_limits_speed = three_limits(&rows);
        if let Some(speed) = three_limits_speed {
            remarks.push(format!(
                "in a crowd, three limits make {speed:.2} times the decisions/s of one (three_limits / many_keys)"
            ));
        }
        Self {
            setting,
            baseline,
            rows,
            three_limits_speed,
            latency_median: median_round(&latency),
            latency,
            round_trips,
            exactness,
            bars,
            remarks,
        }
    }
}

/// Each against the baseline right before it, since they are not next to each other.
fn three_limits(rows: &[Row]) -> Option<f64> {
    let of = |case: Case| rows.iter().find(|row| row.case == case.name()).map(|row| row.times_baseline);
    Some(of(Case::ThreeLimits)? / of(Case::ManyKeys)?)
}

/// The median of each number by itself.
fn median_round(rounds: &[Round]) -> Round {
    let of = |who: fn(&Round) -> &Latency| {
        let number = |number: fn(&Latency) -> f64| median(rounds.iter().map(|it| number(who(it))));
        let answers = rounds.iter().map(|it| who(it).answers).sum();
        Latency { answers, p50_us: number(|it| it.p50_us), p99_us: number(|it| it.p99_us) }
    };
    Round {
        bare: of(|it| &it.bare),
        one_limit: of(|it| &it.one_limit),
        three_limits: of(|it| &it.three_limits),
    }
}

/// The median of each number by itself.
fn median_of<'s>(samples: impl Iterator<Item = &'s Sample>) -> Sample {
    let samples: Vec<&Sample> = samples.collect();
    let of = |number: fn(&Sample) -> f64| median(samples.iter().map(|it| number(it)));
    let mut decisions: Vec<u64> = samples.iter().map(|it| it.decisions).collect();
    decisions.sort_unstable();
    let per_call = median(samples.iter().filter_map(|it| it.per_call));
    Sample {
        decisions: decisions.get(decisions.len() / 2).copied().unwrap_or_default(),
        per_second: of(|it| it.per_second),
        redis_cpu_us: of(|it| it.redis_cpu_us),
        client_cpu_us: of(|it| it.client_cpu_us),
        per_call: Some(per_call).filter(|it| it.is_finite()),
        commands: of(|it| it.commands),
        redis_busy: of(|it| it.redis_busy),
        waited: of(|it| it.waited),
        others: of(|it| it.others),
    }
}
