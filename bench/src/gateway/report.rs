//! What came of it: rows, weights, bars, and where all of it was measured.

mod bars;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use super::contestant::Duty;
use super::idle::Weight;
use super::trial::Sample;
use crate::report::{Bar, Machine, median};

/// Below this share of a core, a contestant was held back by the load.
const HELD_BACK: f64 = 0.95;

/// One contestant on one duty.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `admitted`, `refused`, `limiting_off`.
    pub case: &'static str,
    /// Who.
    pub subject: &'static str,
    /// Of each number, the median of the rounds that nobody disturbed; of all, if there are none.
    pub median: Sample,
    /// Each round.
    pub rounds: Vec<Sample>,
}

impl Row {
    /// A row, from its rounds.
    pub fn new(duty: Duty, subject: &'static str, rounds: Vec<Sample>) -> Self {
        let calm: Vec<Sample> = rounds.iter().filter(|it| !it.is_disturbed()).copied().collect();
        let median = median_of(if calm.is_empty() { &rounds } else { &calm });
        Self { case: duty.name(), subject, median, rounds }
    }
}

/// Under what conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Where.
    pub machine: Machine,
    /// Of the contestants and of wrk, as they say themselves.
    pub versions: BTreeMap<&'static str, String>,
    /// Connections of wrk.
    pub connections: usize,
    /// Seconds of load in each round.
    pub seconds: u64,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayReport {
    /// Under what conditions.
    #[serde(flatten)]
    pub setting: Setting,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// With ten thousand connections.
    pub idle: Vec<Weight>,
    /// What was promised, and what came of it.
    pub bars: Vec<Bar>,
    /// What a reader should know of this run.
    pub remarks: Vec<String>,
}

impl GatewayReport {
    /// A run, from what was measured.
    pub fn new(setting: Setting, rows: Vec<Row>, idle: Vec<Weight>, mut remarks: Vec<String>) -> Self {
        remarks.extend(rows.iter().filter_map(held_back));
        remarks.extend(rows.iter().filter_map(disturbed));
        let bars = bars::all(&rows, &idle);
        Self { setting, rows, idle, bars, remarks }
    }
}

fn held_back(row: &Row) -> Option<String> {
    let Row { case, subject, median, .. } = row;
    (median.busy < HELD_BACK && !median.is_disturbed()).then(|| {
        format!(
            "{case}, {subject}: it used {:.0} % of its core, so the load held it back and it could do more; \
             compare CPU per request",
            median.busy * 100.0
        )
    })
}

fn disturbed(row: &Row) -> Option<String> {
    let Row { case, subject, median, .. } = row;
    median.is_disturbed().then(|| {
        format!(
            "{case}, {subject}: the machine was busy: others used {:.2} cores and it waited {:.0} % of the time \
             for its own; its numbers mean little and count for no bar, run it again",
            median.others,
            median.waited * 100.0
        )
    })
}

/// The median of each number by itself.
fn median_of(rounds: &[Sample]) -> Sample {
    let of = |number: fn(&Sample) -> f64| median(rounds.iter().map(number));
    let counted = rounds.iter().filter_map(|sample| sample.instructions);
    let mut requests: Vec<u64> = rounds.iter().map(|sample| sample.requests).collect();
    requests.sort_unstable();
    Sample {
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
