//! The results of a simulation.
//!
//! `tollgate simulate --json` and the Lab return this as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::distance::Disagreement;
use crate::traffic::{By, Retry, Shape};
use crate::waits::Waits;

use super::contestant::Choice;
use super::nodes::{Routing, Stores};
use super::series::Cell;

/// The results of all algorithms at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Simulated")]
pub struct Round {
    /// The rate as written: `10/minute`.
    pub rate: String,
    /// Units per window.
    pub limit: u64,
    /// Length of the window, in seconds.
    #[schemars(extend("minimum" = 0))]
    pub window_s: f64,
    /// The generated traffic; null for a log.
    #[schemars(with = "TrafficReport")]
    pub traffic: Option<TrafficReport>,
    /// Algorithms in the order of the arguments.
    pub algorithms: Vec<AlgorithmReport>,
    /// Notes on omitted or inexact results.
    pub notes: Vec<String>,
    /// Start of all series, in seconds since 1970, in virtual time.
    #[schemars(extend("minimum" = 0))]
    pub from_s: f64,
    /// Length of a cell of the series, in seconds.
    #[schemars(extend("minimum" = 0))]
    pub step_s: f64,
}

/// The generated traffic, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SimulatedTraffic")]
pub struct TrafficReport {
    /// Shape.
    #[schemars(extend("enum" = Shape::ALL.map(Shape::word)))]
    pub shape: &'static str,
    /// Description of the shape.
    pub words: &'static str,
    /// Load as a multiple of the rate.
    #[schemars(extend("minimum" = 0))]
    pub load: f64,
    /// Number of clients.
    pub clients: u32,
    /// Key of the limit: `ip` or `global`.
    pub by: By,
    /// Duration in seconds.
    #[schemars(extend("minimum" = 0))]
    pub duration_s: f64,
    /// Behavior of refused clients; null if they do not retry.
    pub retry: Option<Retry>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: u32,
    /// Where nodes count.
    pub store: Stores,
    /// How a node is chosen.
    pub routing: Routing,
    /// End in seconds; earlier than `duration_s` if the maximum of events was reached.
    #[schemars(extend("minimum" = 0))]
    pub until_s: f64,
}

/// The results of one algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SimulatedAlgorithm")]
pub struct AlgorithmReport {
    /// The name of the algorithm: `sliding-parts` is a sliding window with parts.
    pub algorithm: Choice,
    /// The quota as text.
    pub quota: String,
    /// All attempts.
    pub offered: u64,
    /// Admitted attempts.
    pub admitted: u64,
    /// Refused attempts.
    pub refused: u64,
    /// Requests, regardless of the number of attempts.
    pub requests: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Retries that were refused.
    pub wasted_retries: u64,
    /// Requests that used all attempts without being admitted.
    pub given_up: u64,
    /// The most units that one key was granted in any window of the rate's length.
    pub most_in_a_window: u64,
    /// The same as a multiple of the limit.
    #[schemars(extend("minimum" = 0))]
    pub times_the_limit: f64,
    /// End of that window, in seconds since the start.
    pub most_at_s: Option<f64>,
    /// The longest `Retry-After`, in seconds.
    #[schemars(extend("minimum" = 0))]
    #[serde(rename = "longest_wait_told_s")]
    pub longest_retry_after_s: f64,
    /// The longest time from a first attempt to an admission, in seconds.
    #[schemars(extend("minimum" = 0))]
    pub longest_wait_s: f64,
    /// Admitted share of the client with the lowest share; null with one client or very many.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub least_served: Option<f64>,
    /// Admitted share of the client with the highest share.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub most_served: Option<f64>,
    /// Comparison with an exact log in a closed loop; null if there is no comparable log.
    pub closed_loop: Option<Disagreement>,
    /// Comparison with an exact log in an open loop; null for buckets.
    pub open_loop: Option<Disagreement>,
    /// The most bytes of a key's encoded state.
    pub state_bytes: usize,
    /// The waits of admitted requests; only of `leaky-queue`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Waits")]
    pub waits: Option<Waits>,
    /// Summary in words.
    pub words: String,
    /// Series over time.
    pub series: SeriesReport,
}

/// Series of one algorithm, one value per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SeriesReport {
    /// Attempts.
    pub offered: Vec<u64>,
    /// Admitted attempts.
    pub admitted: Vec<u64>,
    /// The most units that one key was granted in the window that ends in the cell; empty for a log.
    pub window: Vec<u64>,
}

impl SeriesReport {
    pub(super) fn of(cells: &[Cell], with_window: bool) -> Self {
        let each = |of: fn(&Cell) -> u64| cells.iter().map(of).collect::<Vec<_>>();
        Self {
            offered: each(|it| it.offered),
            admitted: each(|it| it.admitted),
            window: if with_window { each(|it| it.window) } else { Vec::new() },
        }
    }
}
