//! The settings of a client.

use std::time::Duration;

use crate::retry::{Backoff, BreakerSettings, RetryBudgetSettings};

/// The settings of a client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The time for a call with all its waits and attempts.
    pub timeout: Duration,
    /// The most attempts of a call.
    pub tries: u32,
    /// Whether the client paces calls by the headers of responses. Refusals are obeyed in any case.
    pub learn: bool,
    /// The waits between attempts.
    pub backoff: Backoff,
    /// The share of calls that may be retried after failures.
    pub retry_budget: RetryBudgetSettings,
    /// The breaker of each server.
    pub breaker: BreakerSettings,
    /// The most calls that wait at a time.
    pub max_waiting: usize,
    /// The most routes and buckets that are remembered, each.
    pub max_buckets: usize,
}

impl Default for Settings {
    /// A minute and 20 tries for each call, 10,000 waiting calls and 4,096 buckets.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            tries: 20,
            learn: true,
            backoff: Backoff::default(),
            retry_budget: RetryBudgetSettings::default(),
            breaker: BreakerSettings::default(),
            max_waiting: 10_000,
            max_buckets: 4_096,
        }
    }
}
