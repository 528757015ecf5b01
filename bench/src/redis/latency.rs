//! Measures the latency of sequential decisions, and their number of calls to Redis.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::bare::Bare;
use super::caller::{Caller, one_by_one};
use super::case::MANY;
use super::instance::Instance;
use super::keys::Keys;
use super::ours::{self, OneLimit, ThreeLimits};
use crate::stopwatch;

/// Sequential requests before the next caller's turn, so that all see the same machine load.
const CHUNK: u64 = 100;

/// Requests that are used to count calls.
const PROOF: u64 = 1_000;

/// One round: each caller in turns, a chunk at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// The client without a store, as in the baseline.
    pub bare: Latency,
    /// The store, one limit.
    pub one_limit: Latency,
    /// The store, three limits.
    pub three_limits: Latency,
}

/// Latency of answers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Number of answers.
    #[serde(rename = "asked")]
    pub answers: usize,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
}

impl Latency {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at =
            |of_100: usize| took.get(took.len() * of_100 / 100).map_or(f64::NAN, |it| it.as_secs_f64() * 1e6);
        Self { answers: took.len(), p50_us: at(50), p99_us: at(99) }
    }
}

/// Measures a round, with this much time for each caller.
pub async fn measure(redis: &Instance, time: Duration) -> io::Result<Round> {
    redis.forget().await?;
    let keys = Keys::new(MANY);
    let bare = Bare::minimal(redis, keys.clone()).await?;
    let one = OneLimit::admitting(redis, ours::everyday()?, keys.clone()).await?;
    let three = ThreeLimits::admitting(redis, keys).await?;
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    let (start, mut turn) = (stopwatch::mark(), 0);
    while start.elapsed() < 3 * time {
        // The first chunk loads scripts and warms caches, so it does not count.
        if turn == CHUNK {
            took.iter_mut().for_each(Vec::clear);
        }
        let turns = turn..turn + CHUNK;
        one_by_one(&bare, turns.clone(), &mut took[0]).await?;
        one_by_one(&one, turns.clone(), &mut took[1]).await?;
        one_by_one(&three, turns, &mut took[2]).await?;
        turn += CHUNK;
    }
    let [bare, one_limit, three_limits] = took.map(Latency::of);
    Ok(Round { bare, one_limit, three_limits })
}

/// Calls of sequential decisions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoundTrips {
    /// Number of decisions.
    pub decisions: u64,
    /// Calls, as the store counts them.
    pub calls: u64,
    /// Script calls, as Redis counts them.
    pub scripts: u64,
    /// Failed calls.
    pub failures: u64,
}

/// Counts the calls of sequential decisions.
pub async fn round_trips(redis: &Instance) -> io::Result<RoundTrips> {
    redis.forget().await?;
    let caller = OneLimit::admitting(redis, ours::everyday()?, Keys::new(MANY)).await?;
    // The first request may have to load the script.
    caller.ask(0, 0).await?;
    let (before, counted) = (redis.account().await?, caller.store.counters());
    for turn in 0..PROOF {
        caller.ask(0, turn).await?;
    }
    let (after, now) = (redis.account().await?.since(&before), caller.store.counters());
    Ok(RoundTrips {
        decisions: PROOF,
        calls: now.calls - counted.calls,
        scripts: after.scripts,
        failures: now.failures - counted.failures,
    })
}
