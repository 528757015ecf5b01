//! How long one decision takes when nobody else asks, and how often Redis is asked for it.

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

/// Questions before it is somebody else's turn: they see the same machine.
const CHUNK: u64 = 100;

/// Questions that prove what one costs.
const PROOF: u64 = 1_000;

/// One round: each of them asked in turn, a chunk at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// The client without a store, as in the baseline.
    pub bare: Latency,
    /// The store, one limit.
    pub one_limit: Latency,
    /// The store, three limits.
    pub three_limits: Latency,
}

/// How long an answer took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// How many there were.
    pub asked: usize,
    /// Half of them took at most so long, in microseconds.
    pub p50_us: f64,
    /// And 99 of 100.
    pub p99_us: f64,
}

impl Latency {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at =
            |of_100: usize| took.get(took.len() * of_100 / 100).map_or(f64::NAN, |it| it.as_secs_f64() * 1e6);
        Self { asked: took.len(), p50_us: at(50), p99_us: at(99) }
    }
}

/// Measures a round, so long for each of them.
pub async fn measure(redis: &Instance, time: Duration) -> io::Result<Round> {
    redis.forget().await?;
    let keys = Keys::new(MANY);
    let bare = Bare::minimal(redis, keys.clone()).await?;
    let one = OneLimit::admitting(redis, ours::everyday()?, keys.clone()).await?;
    let three = ThreeLimits::admitting(redis, keys).await?;
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    let (start, mut turn) = (stopwatch::mark(), 0);
    while start.elapsed() < 3 * time {
        // Whoever comes first brings its script and opens its caches: the first chunk does not count.
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

/// What decisions cost in calls when they come one at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoundTrips {
    /// Decisions that were made.
    pub decisions: u64,
    /// Calls, as the store counts them.
    pub calls: u64,
    /// Scripts called, as Redis counts them.
    pub scripts: u64,
    /// Calls that brought no answer.
    pub failures: u64,
}

/// Counts what decisions cost that come one at a time.
pub async fn round_trips(redis: &Instance) -> io::Result<RoundTrips> {
    redis.forget().await?;
    let caller = OneLimit::admitting(redis, ours::everyday()?, Keys::new(MANY)).await?;
    // The first one may have to bring the script.
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
