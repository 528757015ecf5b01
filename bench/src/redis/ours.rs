//! The store: one limit, three limits, or slots that are taken and given back.

use std::io;

use tollgate_core::{
    Adjustment, Amount, Bucket, Concurrency, FixedWindow, Owner, Quota, QuotaError, Rate, Rule, SlidingLog,
    SlidingWindow, Span,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{Answer, Check, Store as _};

use super::caller::Caller;
use super::instance::{CALL_TIMEOUT, Instance};
use super::keys::Keys;
use super::told;

/// What most cases limit each key to: more than any of them gets to spend.
pub const EVERYDAY: Rate = Rate::per_minute(1_000);

/// A limit that nobody reaches, though all spend from it at once.
const AMPLE: (Rate, u64) = (Rate::per_second(1_000_000), 1_000_000_000);

/// A limit that is soon reached, and gives nothing back meanwhile.
pub const TIGHT: Rate = Rate::per_hour(10);

/// A store of a program that has just been started, connected.
pub async fn store(redis: &Instance) -> io::Result<RedisStore> {
    connected(&redis.url()).await
}

/// The same, by the address alone.
pub async fn connected(url: &str) -> io::Result<RedisStore> {
    let mut settings = RedisSettings::parse(&[url]).map_err(|error| told(&error))?;
    // A busy machine makes a number worse; it does not make it wrong.
    settings.deadline = CALL_TIMEOUT;
    let store = RedisStore::new(settings);
    store.connect().await.map_err(|error| told(&error))?;
    Ok(store)
}

/// [`EVERYDAY`] as a token bucket.
pub fn everyday() -> io::Result<Rule> {
    rule("everyday", Bucket::new(EVERYDAY))
}

/// A limit for all together, which nobody reaches.
pub fn ample() -> io::Result<Rule> {
    let (rate, burst) = AMPLE;
    rule("ample", Bucket::new(rate).and_then(|bucket| bucket.with_burst(burst)))
}

/// [`TIGHT`] as a token bucket.
pub fn tight() -> io::Result<Rule> {
    rule("tight", Bucket::new(TIGHT))
}

/// A second limit for each key.
pub fn hourly() -> io::Result<Rule> {
    rule("hourly", Bucket::new(Rate::per_hour(60_000)))
}

/// [`EVERYDAY`] in windows.
pub fn fixed_window() -> io::Result<Rule> {
    rule("fixed window", FixedWindow::epoch(EVERYDAY))
}

/// [`EVERYDAY`] in a window that moves.
pub fn sliding_window() -> io::Result<Rule> {
    rule("sliding window", SlidingWindow::new(EVERYDAY))
}

/// [`EVERYDAY`] with every request remembered.
pub fn sliding_log() -> io::Result<Rule> {
    rule("sliding log", SlidingLog::new(EVERYDAY))
}

/// More slots for each key than there are requests at a time.
pub fn slots() -> io::Result<Rule> {
    rule("slots", Concurrency::new(1_000, Span::from_secs(60)))
}

fn rule(name: &str, quota: Result<impl Into<Quota>, QuotaError>) -> io::Result<Rule> {
    quota.map(|quota| Rule::new(name, quota)).map_err(|error| told(&error))
}

async fn decide(store: &RedisStore, checks: &[Check<'_>], admitted: bool) -> io::Result<Answer> {
    let answer = store.decide(checks).await.map_err(|error| told(&error))?;
    if answer.admitted == admitted {
        return Ok(answer);
    }
    Err(io::Error::other(format!("{} should have answered otherwise: {answer:?}", checks[0].rule.name)))
}

/// One limit.
pub struct OneLimit {
    /// Who decides.
    pub store: RedisStore,
    /// By what.
    pub rule: Rule,
    /// On whom.
    pub keys: Keys,
    /// And always so.
    pub admitted: bool,
}

impl OneLimit {
    /// A limit with room for all.
    pub async fn admitting(redis: &Instance, rule: Rule, keys: Keys) -> io::Result<Self> {
        Ok(Self { store: store(redis).await?, rule, keys, admitted: true })
    }

    /// A limit whose keys have nothing left.
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

/// Two limits for each key and one for all together, in one request.
pub struct ThreeLimits {
    store: RedisStore,
    each: [Rule; 2],
    all: Rule,
    keys: Keys,
}

impl ThreeLimits {
    /// With room for all.
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

/// A slot that is taken and given back: two questions, counted as one.
pub struct Slots {
    store: RedisStore,
    rule: Rule,
    keys: Keys,
}

impl Slots {
    /// With slots for all.
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
        released.map(drop).map_err(|error| told(&error))
    }

    fn calls(&self) -> Option<u64> {
        Some(self.store.counters().calls)
    }
}
