//! Compares the ways in which a fleet of nodes can share a limit.
//!
//! | | counts | asks the store |
//! |---|---|---|
//! | exact | all nodes in one shared store | for each request, except refusals that the deny cache repeats |
//! | split | each node its own part of the limit: the limit divided by the nodes | never |
//! | local | each node its share of the limit, as while the store is out of reach (`on_outage: local`) | never |
//!
//! All ways see the same traffic. Network delays are not simulated: the number of calls is the number of requests that
//! wait for a round trip.
//!
//! Not here: faults (`faults`), drawing (`plot`).

use schemars::JsonSchema;
use serde::Serialize;

use super::nodes::{Network, Stores};
use super::picture::{points_of, window_time};
use super::report::AlgorithmReport;
use super::run::{Question, QuestionError, Simulation};
use crate::plot::{Axis, Chart, Mark, Role, Series};

/// A way in which a fleet shares a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Strategy {
    /// One shared store.
    Exact,
    /// A part of the limit for each node.
    Split,
    /// The share that nodes grant while the store is out of reach.
    Local,
}

impl Strategy {
    /// All ways, the exact one first.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Split, Self::Local];

    /// Returns the name in tables and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Split => "split",
            Self::Local => "local",
        }
    }

    const fn stores(self) -> Stores {
        match self {
            Self::Exact => Stores::Shared,
            Self::Split => Stores::Memory,
            Self::Local => Stores::Outage,
        }
    }
}

/// The results of one way.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StrategyReport {
    /// The way.
    pub strategy: Strategy,
    /// Requests.
    pub offered: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Calls to the store: requests that wait for a round trip.
    pub calls: u64,
    /// Calls as a part of all requests.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub waiting: f64,
    /// The most units that one key was granted in any window of the rate's length.
    pub most_in_a_window: u64,
    /// The part of that above the most that the exact way granted, in units.
    pub overshoot: u64,
    /// The requests that the exact way admitted and this way did not, as a part of the former.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub underuse: f64,
    /// The most units that one key was granted in the window that ends in each cell.
    pub window: Vec<u64>,
}

/// The results of all ways for one rate and one algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetReport {
    /// The rate as written: `10/minute`.
    pub rate: String,
    /// Units per window.
    pub limit: u64,
    /// The algorithm.
    pub algorithm: &'static str,
    /// The shape of the traffic.
    pub shape: &'static str,
    /// Number of nodes.
    pub nodes: u32,
    /// Length of a cell of the series, in seconds.
    #[schemars(extend("minimum" = 0))]
    pub step_s: f64,
    /// The ways, the exact one first.
    pub strategies: Vec<StrategyReport>,
}

/// Runs the traffic of a question against each way to share the limit of its first algorithm.
///
/// ```
/// # use tollgate_sim::simulate::{Choice, Contestant, Network, Question, compare_fleet};
/// # use tollgate_sim::traffic::{By, Shape, Traffic};
/// let bucket = Contestant::new(Choice::TokenBucket, "60/minute", None, "global")?;
/// let traffic = Traffic { by: By::Everybody, load: 3.0, ..Traffic::new(Shape::Steady, bucket.rate) };
/// let network = Network { nodes: 4, ..Network::default() };
/// let question = Question { traffic, contestants: vec![bucket], network, most_events: 100_000, notes: Vec::new() };
/// let report = compare_fleet(&question)?;
/// assert_eq!(report.strategies[0].overshoot, 0);
/// assert_eq!(report.strategies[1].calls, 0);                         // a split limit makes no calls
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compare_fleet(question: &Question) -> Result<FleetReport, QuestionError> {
    let Some(contestant) = question.contestants.first() else { return Err(QuestionError::Nobody) };
    let mut runs = Vec::new();
    let mut step_s = 0.0;
    for strategy in Strategy::ALL {
        let network = Network { store: strategy.stores(), ..question.network };
        let question = Question { contestants: vec![contestant.clone()], network, ..question.clone() };
        let mut simulation = Simulation::new(question)?;
        if strategy == Strategy::Split {
            simulation.split_limit()?;
        }
        while simulation.step(1 << 16) {}
        let calls = simulation.calls();
        let mut round = simulation.round();
        step_s = round.step_s;
        if let Some(report) = round.algorithms.pop() {
            runs.push((strategy, report, calls));
        }
    }
    let exact =
        runs.first().map(|(_, report, _)| (report.admitted, report.most_in_a_window)).unwrap_or_default();
    let traffic = &question.traffic;
    Ok(FleetReport {
        rate: traffic.rate.to_string(),
        limit: traffic.rate.count,
        algorithm: contestant.choice.word(),
        shape: traffic.shape.word(),
        nodes: question.network.nodes,
        step_s,
        strategies: runs
            .into_iter()
            .map(|(strategy, report, calls)| summarize(strategy, report, calls, exact))
            .collect(),
    })
}

fn summarize(strategy: Strategy, report: AlgorithmReport, calls: u64, exact: (u64, u64)) -> StrategyReport {
    let (admitted, most) = exact;
    StrategyReport {
        strategy,
        offered: report.offered,
        admitted: report.admitted,
        calls,
        waiting: ratio(calls, report.offered),
        most_in_a_window: report.most_in_a_window,
        overshoot: report.most_in_a_window.saturating_sub(most),
        underuse: ratio(admitted.saturating_sub(report.admitted), admitted),
        window: report.series.window,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a part of one")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Draws the most units that one key was granted in the window that ends at each time, per way, with the limit as a
/// level.
pub fn fleet_window(report: &FleetReport) -> Chart {
    let cells = report.strategies.iter().map(|it| it.window.len()).max().unwrap_or(0);
    let (unit, label) = window_time(cells, report.step_s);
    let each = |(number, it): (usize, &StrategyReport)| Series {
        name: it.strategy.word().to_owned(),
        mark: Mark::Steps,
        role: Role::Contestant(u8::try_from(number).unwrap_or(u8::MAX)),
        points: points_of(&it.window, report.step_s, unit),
    };
    Chart {
        title: format!(
            "{} at {}, {} nodes: let through in the last window",
            report.shape, report.rate, report.nodes
        ),
        x: Axis { label, ..Axis::default() },
        y: Axis { label: "requests".to_owned(), ..Axis::default() },
        series: report.strategies.iter().enumerate().map(each).collect(),
        #[allow(clippy::cast_precision_loss, reason = "for a picture")]
        levels: vec![(report.limit as f64, format!("limit {}", report.rate))],
        moments: Vec::new(),
    }
}
