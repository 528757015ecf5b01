//! Targets and results.
//!
//! They are printed and never enforced: a busy machine must not fail a build.

use serde::Serialize;

use super::{Row, ns};

/// A target and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// Description.
    pub what: &'static str,
    /// The measured value; `None` if the run did not measure it.
    pub got: Option<f64>,
    /// The bound.
    pub bound: f64,
    /// The side of the bound that meets the target.
    pub good: Side,
    /// Whether the target was met.
    pub met: Option<bool>,
}

impl Bar {
    /// Creates a target that is met at the bound or above.
    pub fn at_least(bound: f64, what: &'static str, got: Option<f64>) -> Self {
        Self { what, got, bound, good: Side::AtLeast, met: got.map(|got| got >= bound) }
    }

    /// Creates a target that is met at the bound or below.
    pub fn at_most(bound: f64, what: &'static str, got: Option<f64>) -> Self {
        Self { what, got, bound, good: Side::AtMost, met: got.map(|got| got <= bound) }
    }
}

/// A side of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The bound or more.
    AtLeast,
    /// The bound or less.
    AtMost,
}

pub(super) fn all(rows: &[Row]) -> Vec<Bar> {
    let ours = |case| ns(rows, case, "tollgate");
    let ratio = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
    let governor = |case| ratio(ns(rows, case, "governor"), ours(case));
    let fastest = |case| {
        let peers = rows.iter().filter(|row| row.case == case && !row.subject.starts_with("tollgate"));
        ratio(peers.map(|row| row.ns).min_by(f64::total_cmp), ours(case))
    };
    let bytes = rows.iter().filter(|row| row.subject == "tollgate").find_map(|row| row.bytes_per_key);
    let limiter = ours("limiter_1_of_1000");
    vec![
        Bar::at_least(1.5, "zipf_1m: fastest peer / tollgate", fastest("zipf_1m")),
        Bar::at_least(2.5, "zipf_1m: governor / tollgate", governor("zipf_1m")),
        Bar::at_least(2.5, "hot_key: governor / tollgate", governor("hot_key")),
        Bar::at_least(5.0, "hot_key_2_threads: governor / tollgate", governor("hot_key_2_threads")),
        Bar::at_least(
            8.0,
            "hot_key_refused_2_threads: governor / tollgate",
            governor("hot_key_refused_2_threads"),
        ),
        Bar::at_most(24.0, "bytes per key at 1 M keys", bytes),
        Bar::at_least(1.5, "zipf_1m: single / batch", ratio(ours("zipf_1m"), ours("zipf_1m_batch"))),
        Bar::at_least(1.5, "uniform_1m: single / batch", ratio(ours("uniform_1m"), ours("uniform_1m_batch"))),
        Bar::at_most(5.0, "limiter_1_of_1000 / bare_decide", ratio(limiter, ours("bare_decide"))),
        Bar::at_most(2.5, "limiter_3_limits / limiter_1_of_1000", ratio(ours("limiter_3_limits"), limiter)),
    ]
}
