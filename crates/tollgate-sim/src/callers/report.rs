//! The result of a comparison.

use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate::{Span, Timestamp};

use super::manner::CallerManner;
use super::service::ServiceCounts;
use super::{CallersScenario, Limit, seconds};
use crate::executor::lock;

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CallersReport {
    /// The limit for all clients together.
    pub limit: String,
    /// The number of clients.
    pub clients: u32,
    /// Calls as a multiple of the rate.
    pub load: f64,
    /// The time in which calls arrive.
    pub duration_s: f64,
    /// The time that a call has.
    pub timeout_s: f64,
    /// The seed.
    pub seed: u64,
    /// The manners.
    pub manners: Vec<MannerReport>,
}

/// The result of one manner.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MannerReport {
    /// The manner.
    pub manner: CallerManner,
    /// Calls.
    pub calls: u64,
    /// Calls that were admitted in time.
    pub answered: u64,
    /// Requests to the service.
    pub attempts: u64,
    /// Requests that the limit refused.
    pub refused: u64,
    /// Refused requests as a share of all requests.
    pub refused_share: f64,
    /// Admitted calls as a share of those that the limit admits in the time of the run.
    pub goodput: f64,
    /// Jain's index of the calls that each client had admitted, as shares of its calls: 1 if all have the same.
    pub fairness: f64,
    /// The median time of an admitted call, in seconds.
    pub p50_s: f64,
    /// The time that 99 % of the admitted calls take at most, in seconds.
    pub p99_s: f64,
}

impl CallersReport {
    pub(super) fn new(scenario: &CallersScenario, manners: Vec<MannerReport>) -> Self {
        Self {
            limit: scenario.limit.clone(),
            clients: scenario.clients,
            load: scenario.load,
            duration_s: seconds(scenario.duration),
            timeout_s: seconds(scenario.timeout),
            seed: scenario.seed,
            manners,
        }
    }
}

/// Counts the calls of a run.
pub(super) struct Tally(Mutex<Counts>);

struct Counts {
    /// Calls and admitted calls of each client.
    clients: Vec<(u64, u64)>,
    times: Vec<Span>,
    /// The end of the last call.
    end: Timestamp,
}

impl Tally {
    pub(super) fn new(clients: usize) -> Self {
        Self(Mutex::new(Counts { clients: vec![(0, 0); clients], times: Vec::new(), end: Timestamp::EPOCH }))
    }

    pub(super) fn record(&self, client: usize, is_answered: bool, (started, ended): (Timestamp, Timestamp)) {
        let mut counts = lock(&self.0);
        counts.end = counts.end.max(ended);
        counts.clients[client].0 += 1;
        if is_answered {
            counts.clients[client].1 += 1;
            counts.times.push(ended.since(started));
        }
    }

    #[allow(clippy::cast_precision_loss)] // shares
    pub(super) fn report(
        &self,
        manner: CallerManner,
        limit: &Limit,
        service: ServiceCounts,
        start: Timestamp,
    ) -> MannerReport {
        let mut counts = lock(&self.0);
        counts.times.sort_unstable();
        let at = |share: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a place in the list
            let place = (counts.times.len() as f64 * share) as usize;
            counts.times.get(place.min(counts.times.len().saturating_sub(1))).map_or(0.0, |it| seconds(*it))
        };
        let (p50_s, p99_s) = (at(0.5), at(0.99));
        let calls = counts.clients.iter().map(|it| it.0).sum();
        let answered: u64 = counts.clients.iter().map(|it| it.1).sum();
        let possible = limit.per_second() * seconds(counts.end.since(start)) + limit.burst as f64;
        let shares: Vec<_> =
            counts.clients.iter().filter(|it| it.0 > 0).map(|it| it.1 as f64 / it.0 as f64).collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |it, share| (it.0 + share, it.1 + share * share));
        MannerReport {
            manner,
            calls,
            answered,
            attempts: service.attempts,
            refused: service.refused,
            refused_share: service.refused as f64 / service.attempts.max(1) as f64,
            goodput: answered as f64 / possible.min(calls as f64).max(1.0),
            fairness: if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 },
            p50_s,
            p99_s,
        }
    }
}
