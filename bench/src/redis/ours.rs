//! The store: one limit, three limits, or slots that are acquired and released.

use std::io;

use tollgate_core::{
    Adjustment, Amount, Bucket, Concurrency, FixedWindow, Owner, Quota, QuotaError, Rate, Rule, SlidingLog,
    SlidingWindow, Span,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{Answer, Check, Store as _};

use super::caller::Caller;
use super::instance::{CALL_TIMEOUT, Instance};
use super::io_error;
use super::keys::Keys;

/// The limit of each key in most cases: more than any case consumes.
pub const EVERYDAY: Rate = Rate::per_minute(1_000);

/// A shared limit that is never reached.
const AMPLE: (Rate, u64) = (Rate::per_second(1_000_000), 1_000_000_000);

/// A limit that is reached quickly and does not refill during a run.
pub const TIGHT: Rate = Rate::per_hour(10);

/// Creates a connected store, as in a program that has just started.
pub async fn store(redis: &Instance) -> io::Result<RedisStore> {
    connected(&redis.url()).await
}

/// Creates a connected store from a URL.
pub async fn connected(url: &str) -> io::Result<RedisStore> {
    let mut settings = RedisSettings::parse(&[url]).map_err(|error| io_error(&error))?;
    // A busy machine makes a number worse, but must not make it an error.
    settings.deadline = CALL_TIMEOUT;
    let store = RedisStore::new(settings);
    store.connect().await.map_err(|error| io_error(&error))?;
    Ok(store)
}

/// Returns [`EVERYDAY`] as a token bucket.
pub fn everyday() -> io::Result<Rule> {
    rule("everyday", Bucket::new(EVERYDAY))
}

/// Returns a global limit that is never reached.
pub fn ample() -> io::Result<Rule> {
    let (rate, burst) = AMPLE;
    rule("ample", Bucket::new(rate).and_then(|bucket| bucket.with_burst(burst)))
}

/// Returns [`TIGHT`] as a token bucket.
pub fn tight() -> io::Result<Rule> {
    rule("tight", Bucket::new(TIGHT))
}

/// Returns a second limit per key.
pub fn hourly() -> io::Result<Rule> {
    rule("hourly", Bucket::new(Rate::per_hour(60_000)))
}

/// Returns [`EVERYDAY`] as a fixed window.
pub fn fixed_window() -> io::Result<Rule> {
    rule("fixed window", FixedWindow::epoch(EVERYDAY))
}

/// Returns [`EVERYDAY`] as a sliding window.
pub fn sliding_window() -> io::Result<Rule> {
    rule("sliding window", SlidingWindow::new(EVERYDAY))
}

/// Returns [`EVERYDAY`] as a sliding log.
pub fn sliding_log() -> io::Result<Rule> {
    rule("sliding log", SlidingLog::new(EVERYDAY))
}

/// Returns a limit with more slots per key than there are concurrent requests.
pub fn slots() -> io::Result<Rule> {
    rule("slots", Concurrency::new(1_000, Span::from_secs(60)))
}

fn rule(name: &str, quota: Result<impl Into<Quota>, QuotaError>) -> io::Result<Rule> {
    quota.map(|quota| Rule::new(name, quota)).map_err(|error| io_error(&error))
}

async fn decide(store: &RedisStore, checks: &[Check<'_>], admitted: bool) -> io::Result<Answer> {
    let answer = store.decide(checks).await.map_err(|error| io_error(&error))?;
    if answer.admitted == admitted {
        return Ok(answer);
    }
    Err(io::Error::other(format!("{} should have answered otherwise: {answer:?}", checks[0].rule.name)))
}

/// Requests with one limit.
pub struct OneLimit {
    /// The store.
    pub store: RedisStore,
    /// The rule.
    pub rule: Rule,
    /// The keys.
    pub keys: Keys,
    /// The expected verdict.
    pub admitted: bool,
}

impl OneLimit {
    /// Creates a caller whose requests are all admitted.
    pub async fn admitting(redis: &Instance, rule: Rule, keys: Keys) -> io::Result<Self> {
        Ok(Self { store: store(redis).await?, rule, keys, admitted: true })
    }

    /// Creates a caller whose keys are exhausted.
    pub async fn refusing(redis: &Instance, keys: Keys) -> io::Result<Self> {
        let it = Self { store: store(redis).await?, rule: tight()?, keys, admitted: false };
        for key in it.keys.all() {
            decide(&it.store, &[Check::new(&it.rule, key.as_bytes(), TIGHT.count)], true).await?;
        }
        Ok(it)
    }
}

impl Caller for OneLimit {
    async fn ask(&self, task: usize, turn: u64) -> io::Result<()> {
        let key = self.keys.pick(task, turn).as_bytes();
        decide(&self.store, &[Check::new(&self.rule, key, 1)], self.admitted).await.map(drop)
    }

    fn calls(&self) -> Option<u64> {
        Some(self.store.counters().calls)
    }
}

/// Requests with two limits per key and a global one.
pub struct ThreeLimits {
    store: RedisStore,
    each: [Rule; 2],
    all: Rule,
    keys: Keys,
}

impl ThreeLimits {
    /// Creates a caller whose requests are all admitted.
    pub async fn admitting(redis: &Instance, keys: Keys) -> io::Result<Self> {
        Ok(Self { store: store(redis).await?, each: [everyday()?, hourly()?], all: ample()?, keys })
    }
}

impl Caller for ThreeLimits {
    async fn ask(&self, task: usize, turn: u64) -> io::Result<()> {
        let (key, [first, second]) = (self.keys.pick(task, turn).as_bytes(), &self.each);
        let checks =
            [Check::new(first, key, 1), Check::new(second, key, 1), Check::new(&self.all, b"everybody", 1)];
        decide(&self.store, &checks, true).await.map(drop)
    }

    fn calls(&self) -> Option<u64> {
        Some(self.store.counters().calls)
    }
}

/// Requests that acquire and release a slot: two calls, counted as one.
pub struct Slots {
    store: RedisStore,
    rule: Rule,
    keys: Keys,
}

impl Slots {
    /// Creates a caller whose requests are all admitted.
    pub async fn admitting(redis: &Instance, keys: Keys) -> io::Result<Self> {
        Ok(Self { store: store(redis).await?, rule: slots()?, keys })
    }
}

impl Caller for Slots {
    async fn ask(&self, task: usize, turn: u64) -> io::Result<()> {
        let key = self.keys.pick(task, turn).as_bytes();
        let owner = Owner(u128::from(turn) << 64 | task as u128);
        let check = Check { amount: Amount::Slot(owner), ..Check::new(&self.rule, key, 1) };
        decide(&self.store, &[check], true).await?;
        let released = self.store.adjust(&self.rule, key, Adjustment::Release { owner }).await;
        released.map(drop).map_err(|error| io_error(&error))
    }

    fn calls(&self) -> Option<u64> {
        Some(self.store.counters().calls)
    }
}
