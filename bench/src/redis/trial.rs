//! One measurement of a concurrent load: its decisions, and the CPU time of both sides.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::caller::{Caller, crowd};
use super::instance::{Account, Instance};
use crate::process::{are_disturbing, others};
use crate::stopwatch;

/// The warm-up is the time of the measurement divided by this.
const WARM_UP: u32 = 8;

/// The result of one measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Number of decisions.
    pub decisions: u64,
    /// Decisions per second.
    pub per_second: f64,
    /// CPU time of Redis per decision, in microseconds.
    pub redis_cpu_us: f64,
    /// CPU time of the client per decision, in microseconds.
    pub client_cpu_us: f64,
    /// Decisions per call to Redis; `None` if there was no call.
    pub per_call: Option<f64>,
    /// Redis commands per decision, including those of scripts.
    pub commands: f64,
    /// Share of the time that Redis used its core.
    pub redis_busy: f64,
    /// Share of the time that Redis or the client was runnable without a core, because of other programs.
    pub waited: f64,
    /// Cores that other programs used meanwhile.
    pub others: f64,
}

impl Sample {
    /// Whether other programs took time from Redis or from the client.
    pub fn is_disturbed(&self) -> bool {
        are_disturbing(self.waited, self.others)
    }
}

/// Counters, read before and after a load.
struct Reading {
    redis: Account,
    redis_waited: Duration,
    calls: Option<u64>,
    on_core: Duration,
    waited: Duration,
    others: Duration,
}

impl Reading {
    async fn take(redis: &Instance, caller: &impl Caller) -> io::Result<Self> {
        Ok(Self {
            redis_waited: redis.family()?.time()?.waited,
            others: others()?,
            redis: redis.account().await?,
            calls: caller.calls(),
            on_core: stopwatch::on_a_core(),
            waited: stopwatch::waited_for_a_core(),
        })
    }
}

/// Runs a concurrent load for this long, and reads the counters before and after.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub async fn measure(redis: &Instance, caller: Arc<impl Caller>, time: Duration) -> io::Result<Sample> {
    crowd(&caller, time / WARM_UP).await?;
    let before = Reading::take(redis, &*caller).await?;
    let done = crowd(&caller, time).await?;
    let after = Reading::take(redis, &*caller).await?;

    let (decisions, seconds) = (done.answers as f64, done.time.as_secs_f64());
    let spent = after.redis.since(&before.redis);
    let calls = after.calls.zip(before.calls).map_or(done.answers, |(after, before)| after - before);
    let since = |of: fn(&Reading) -> Duration| of(&after).saturating_sub(of(&before)).as_secs_f64();
    Ok(Sample {
        decisions: done.answers,
        per_second: decisions / seconds,
        redis_cpu_us: spent.cpu.as_secs_f64() * 1e6 / decisions,
        client_cpu_us: since(|it| it.on_core) * 1e6 / decisions,
        per_call: (calls > 0).then(|| decisions / calls as f64),
        commands: spent.commands as f64 / decisions,
        redis_busy: spent.cpu.as_secs_f64() / seconds,
        waited: since(|it| it.waited).max(since(|it| it.redis_waited)) / seconds,
        others: since(|it| it.others) / seconds,
    })
}
