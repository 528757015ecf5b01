//! What a simulation found out: numbers by algorithm, and when it happened.
//!
//! The JSON of `tollgate simulate --json` and of the Lab is this.

use serde::Serialize;

use crate::distance::Disagreement;
use crate::traffic::{By, Retry};

use super::contestant::Choice;
use super::nodes::{Routing, Stores};
use super::series::Cell;

/// One rate, and how each algorithm did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// As it is written: `10/minute`.
    pub rate: String,
    /// How many may pass in a window.
    pub limit: u64,
    /// How long a window is, in seconds.
    pub window_s: f64,
    /// What was asked; null on a log.
    pub traffic: Option<TrafficReport>,
    /// In the order in which they were asked for.
    pub algorithms: Vec<AlgorithmReport>,
    /// What is left out, or not exact, and why.
    pub notes: Vec<String>,
    /// When the numbers of all series begin: seconds since 1970.
    pub from_s: f64,
    /// How long each of their cells is.
    pub step_s: f64,
}

/// The traffic, as it was understood.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficReport {
    /// Its shape.
    pub shape: &'static str,
    /// The shape in words.
    pub words: &'static str,
    /// A multiple of the rate.
    pub load: f64,
    /// How many clients.
    pub clients: u32,
    /// Whom the limit counts: `ip` or `global`.
    pub by: By,
    /// How long, in seconds.
    pub duration_s: f64,
    /// What refused clients do; null where they do not come back.
    pub retry: Option<Retry>,
    /// Other numbers, other chances.
    pub seed: u64,
    /// How many nodes decide.
    pub nodes: u32,
    /// Where they count.
    pub store: Stores,
    /// Which of them is asked.
    pub routing: Routing,
    /// In seconds; before `duration_s` where there were more events than are worked through.
    pub until_s: f64,
}

/// How one algorithm did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlgorithmReport {
    /// As it is chosen: `sliding-parts` is a sliding window in parts.
    pub algorithm: Choice,
    /// Its numbers, as everywhere.
    pub quota: String,
    /// Tries, the first and all others.
    pub offered: u64,
    /// Of those, admitted.
    pub admitted: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Requests, however often each was tried.
    pub requests: u64,
    /// Tries that were not the first.
    pub retries: u64,
    /// Of those, refused once more.
    pub wasted_retries: u64,
    /// Requests that were tried often enough, and never admitted.
    pub given_up: u64,
    /// The most that one key was let through in any window of the rate's length.
    pub most_in_a_window: u64,
    /// That, as a multiple of the limit.
    pub times_the_limit: f64,
    /// When that window ended, in seconds since the beginning.
    pub most_at_s: Option<f64>,
    /// The longest wait that anybody was told, in seconds.
    pub longest_wait_told_s: f64,
    /// The longest from a first try to an admission, in seconds.
    pub longest_wait_s: f64,
    /// The share of its requests that the client got admitted who fared worst; null with one client, or very many.
    pub least_served: Option<f64>,
    /// The same of the client who fared best.
    pub most_served: Option<f64>,
    /// Against an exact log of its own; null where there is none.
    pub closed_loop: Option<Disagreement>,
    /// Against an exact log, both shown every request; null for buckets.
    pub open_loop: Option<Disagreement>,
    /// The most bytes that the state of a key took, as it is written.
    pub state_bytes: usize,
    /// What to make of it, in words.
    pub words: String,
    /// Cell by cell.
    pub series: SeriesReport,
}

/// Cell by cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SeriesReport {
    /// Tries.
    pub offered: Vec<u64>,
    /// Admitted tries.
    pub admitted: Vec<u64>,
    /// The most that one key had been let through in the window that ended in the cell; empty on a log.
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
