//! The workloads: the baseline, and the cases that are compared with it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::bare::Bare;
use super::instance::Instance;
use super::keys::Keys;
use super::ours::{self, OneLimit, Slots, ThreeLimits};
use super::trial::{Sample, measure};

/// Number of keys in most cases.
pub const MANY: usize = 10_000;

/// Number of exhausted keys.
pub const DRAINED: usize = 100;

/// A workload with [`IN_FLIGHT`](super::IN_FLIGHT) concurrent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// One call per decision, with the shortest script that limits.
    Baseline,
    /// One call per decision, with Tollgate's script.
    OwnScript,
    /// Ten thousand keys.
    ManyKeys,
    /// One key.
    HotKey,
    /// Exhausted keys.
    Refused,
    /// Three limits per request.
    ThreeLimits,
    /// Fixed window.
    FixedWindow,
    /// Sliding window.
    SlidingWindow,
    /// Sliding log.
    SlidingLog,
    /// A slot is acquired and released.
    Slots,
}

impl Case {
    /// All cases that are compared with the baseline, in the order of the table.
    pub const COMPARED: [Self; 9] = [
        Self::OwnScript,
        Self::ManyKeys,
        Self::HotKey,
        Self::Refused,
        Self::ThreeLimits,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
        Self::Slots,
    ];

    /// Returns the name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::OwnScript => "own_script",
            Self::ManyKeys => "many_keys",
            Self::HotKey => "hot_key",
            Self::Refused => "refused",
            Self::ThreeLimits => "three_limits",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::Slots => "concurrency",
        }
    }

    /// Returns a description.
    pub const fn remark(self) -> &'static str {
        match self {
            Self::Baseline => "one EVALSHA for each decision, TIME + GET + SET: what ratios are against",
            Self::OwnScript => "one EVALSHA for each decision, of Tollgate's script for one decision",
            Self::ManyKeys => "the store: 10,000 keys, token bucket of 1,000 a minute, all admitted",
            Self::HotKey => "the store: one key, token bucket, all admitted",
            Self::Refused => "the store: 100 keys that have nothing left, all refused",
            Self::ThreeLimits => {
                "the store: two limits for each of 10,000 keys and one for all, all admitted"
            }
            Self::FixedWindow => "as many_keys, fixed window",
            Self::SlidingWindow => "as many_keys, sliding window",
            Self::SlidingLog => "as many_keys, sliding log",
            Self::Slots => "as many_keys, a slot taken and given back: two questions counted as one",
        }
    }

    /// Measures the case on a Redis without keys.
    pub async fn measure(self, redis: &Instance, time: Duration) -> io::Result<Sample> {
        redis.forget().await?;
        let keys = Keys::new(match self {
            Self::HotKey => 1,
            Self::Refused => DRAINED,
            _ => MANY,
        });
        let one_limit = async |rule| {
            measure(redis, Arc::new(OneLimit::admitting(redis, rule?, keys.clone()).await?), time).await
        };
        let sample = match self {
            Self::Baseline => measure(redis, Arc::new(Bare::minimal(redis, keys).await?), time).await,
            Self::OwnScript => measure(redis, Arc::new(Bare::own_script(redis, keys).await?), time).await,
            Self::ManyKeys => one_limit(ours::everyday()).await,
            Self::HotKey => one_limit(ours::ample()).await,
            Self::Refused => measure(redis, Arc::new(OneLimit::refusing(redis, keys).await?), time).await,
            Self::ThreeLimits => {
                measure(redis, Arc::new(ThreeLimits::admitting(redis, keys).await?), time).await
            }
            Self::FixedWindow => one_limit(ours::fixed_window()).await,
            Self::SlidingWindow => one_limit(ours::sliding_window()).await,
            Self::SlidingLog => one_limit(ours::sliding_log()).await,
            Self::Slots => measure(redis, Arc::new(Slots::admitting(redis, keys).await?), time).await,
        };
        sample.map_err(|error| io::Error::other(format!("{}: {error}", self.name())))
    }
}
