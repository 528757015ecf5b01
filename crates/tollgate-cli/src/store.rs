//! The store of this process: in memory, or in Redis.
//!
//! Redis is tried for a second at the start, so that a wrong password is told where
//! somebody looks, but nobody waits for it: without it the server serves, degraded, as
//! the outage rules have it. What has to be done now and then (telling the other nodes
//! that this one is there, asking whether Redis is, charging what was admitted without
//! it) is done on the main thread, beside the signals, and once more at the end.
//!
//! Not here: how Redis is asked (`tollgate_redis`), what to do while it gives no
//! answer (`tollgate::outage`).

mod counters;

use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::store::{Answer, Check, Outcomes};
use tollgate::{
    Adjustment, Bucket, Limiter, MemoryStore, OutageSettings, Outcome, Policy, Rate, Rule, Store, StoreError,
    Timestamp,
};
use tollgate_http::SharedLimiter;
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_telemetry::Watcher;

pub(crate) use counters::counters;

use crate::io_error::without_numbers;

/// How long the start waits for Redis.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// How many keys are asked about then.
const WARM_UP_KEYS: u8 = 64;
/// Between two attempts then, at first: each time it is twice as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(25);
/// Between two questions whether the store is there. Requests notice by themselves that
/// it is not; a node that has none would never know.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);
/// How long the end waits for what is owed to the store.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks at what is owed to the store.
const RECONCILE_INTERVAL: Duration = Duration::from_millis(200);
/// How long a node waits at most, once the store is back, before it charges what it
/// owes: all nodes have lost it together.
const MAX_RECONCILE_DELAY: Duration = Duration::from_millis(500);

/// In memory, or in Redis.
#[allow(clippy::large_enum_variant, reason = "there is one, and a box would be on the way of every request")]
pub(crate) enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis.
    Redis(Arc<RedisStore>),
}

impl Store for AnyStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        match self {
            Self::Memory(store) => store.decide(checks).await,
            Self::Redis(store) => store.decide(checks).await,
        }
    }

    #[inline]
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        match self {
            Self::Memory(store) => store.try_decide(checks, outcomes),
            Self::Redis(store) => store.try_decide(checks, outcomes),
        }
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(store) => store.adjust(rule, key, adjustment).await,
            Self::Redis(store) => store.adjust(rule, key, adjustment).await,
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.probe().await,
            Self::Redis(store) => store.probe().await,
        }
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Memory(store) => store.nodes(),
            Self::Redis(store) => store.nodes(),
        }
    }
}

impl AnyStore {
    /// In this process.
    pub(crate) fn memory(policy: &Policy) -> Self {
        Self::Memory(MemoryStore::new(usize::try_from(policy.max_keys()).unwrap_or(usize::MAX)))
    }

    /// Redis, if that is where it is.
    pub(crate) fn redis(&self) -> Option<&Arc<RedisStore>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store),
        }
    }
}

/// A limiter on the store that the settings name (`None`: in memory), which tells this
/// watcher of what it decides.
pub(crate) fn limiter(
    policy: Policy,
    redis: Option<RedisSettings>,
    outage: &OutageSettings,
    watcher: Option<&Watcher>,
) -> SharedLimiter<AnyStore> {
    let store = match redis {
        None => AnyStore::memory(&policy),
        Some(settings) => AnyStore::Redis(Arc::new(RedisStore::new(settings))),
    };
    // In an outage this node counts by itself, and remembers what it owes: as many keys as
    // the policy has, and no more than is needed to get through it.
    let most = usize::try_from(policy.max_keys()).unwrap_or(usize::MAX);
    let keys = most.min(outage.keys);
    let outage = OutageSettings { keys, ..outage.clone() };
    let limiter = Limiter::with_store(policy, store).with_outage(&outage);
    match watcher {
        Some(watcher) => limiter.with_observer(watcher.clone()).into(),
        None => limiter.into(),
    }
}

/// Connects, or says why not, ready to print. Then the limiter knows it too.
pub(crate) async fn connect(limiter: &Limiter<AnyStore>) -> Result<(), String> {
    let Some(redis) = limiter.store().redis() else { return Ok(()) };
    let mut why = format!("no answer within {START_TIMEOUT:?}");
    let connected = timeout(START_TIMEOUT, try_until_it_works(redis, &mut why)).await.is_ok();
    // One that takes longer is left to `maintain`.
    let _late = timeout(START_TIMEOUT, limiter.probe()).await;
    if connected {
        return Ok(());
    }
    Err(format!(
        "warning: cannot use the store {}: {why}\n  \
         = help: serving without it until it answers: each limit does as its `on_outage` says. \
         It is tried again all the time; a changed `store` takes a restart\n",
        redis.settings()
    ))
}

/// What fails at first may work a moment later: a cluster has to be asked who has what.
async fn try_until_it_works(redis: &RedisStore, why: &mut String) {
    let mut pause = FIRST_RETRY_DELAY;
    loop {
        let tried = async {
            redis.connect().await?;
            warm_up(redis).await
        };
        let Err(error) = tried.await else { return };
        // Nobody has asked anything yet: what counts is the cause.
        *why = error.source().map_or_else(|| error.to_string(), in_full);
        sleep(pause).await;
        pause *= 2;
    }
}

/// Asks what requests will ask, and charges nothing: a server may let somebody connect
/// and do no more, be a replica, or lack a part of its cluster.
async fn warm_up(store: &RedisStore) -> Result<(), StoreError> {
    let Ok(quota) = Bucket::new(Rate::per_minute(1)) else { return Ok(()) };
    let rule = Rule::new("tollgate-rehearsal", quota);
    // As many keys as reach every part of a cluster, most probably.
    let keys: Vec<_> = (0..WARM_UP_KEYS).map(u8::to_le_bytes).collect();
    let checks: Vec<_> = keys.iter().map(|key| Check::new(&rule, key, 0)).collect();
    store.decide(&checks).await?;
    store.adjust(&rule, &keys[0], Adjustment::Reset).await.map(drop)
}

/// Does what has to be done now and then, for as long as it is polled.
pub(crate) async fn maintain(limiter: SharedLimiter<AnyStore>) {
    let Some(redis) = limiter.load().store().redis().cloned() else { return };
    tokio::join!(redis.announce(), look(limiter.clone()), reconcile(limiter));
}

/// Asks whether the store is there.
async fn look(limiter: SharedLimiter<AnyStore>) {
    let rng = RandomState::new();
    for round in 0_u64.. {
        sleep(jittered(PROBE_INTERVAL, &rng, round)).await;
        limiter.load().probe().await;
    }
}

/// Charges the store with what was admitted without it.
async fn reconcile(limiter: SharedLimiter<AnyStore>) {
    let rng = RandomState::new();
    let mut was_degraded = false;
    for round in 0_u64.. {
        sleep(jittered(RECONCILE_INTERVAL, &rng, round)).await;
        let health = limiter.load().health();
        let is_back = was_degraded && !health.is_degraded();
        was_degraded = health.is_degraded();
        if health.ledger_keys == 0 {
            continue;
        }
        if is_back {
            sleep(part(MAX_RECONCILE_DELAY, &rng, !round)).await;
        }
        let charged = limiter.load().reconcile().await;
        if charged > 0 {
            tracing::info!(keys = charged, "charged the store with what was admitted without it");
        }
    }
}

/// Charges the store with what is still owed, for as long as there is time, and says
/// what became of it: nobody else will know.
pub(crate) async fn settle_up(limiter: &Limiter<AnyStore>, left: Duration) {
    let before = limiter.health();
    if before.ledger_keys == 0 {
        return;
    }
    let charge = async {
        while limiter.health().ledger_keys > 0 {
            limiter.reconcile().await;
            // Left alone, or what failed is due again: in a moment.
            sleep(FIRST_RETRY_DELAY).await;
        }
    };
    let _late = timeout(SHUTDOWN_TIMEOUT.min(left), charge).await;
    let after = limiter.health();
    let under_way = after.lost_entries.saturating_sub(before.lost_entries);
    let lost = after.ledger_keys.saturating_add(usize::try_from(under_way).unwrap_or(usize::MAX));
    let charged = before.ledger_keys.saturating_sub(lost);
    if charged > 0 {
        tracing::info!(
            keys = charged,
            "charged the store with what was admitted without it, as far as it still counted"
        );
    }
    if lost > 0 {
        let error = after.error.unwrap_or_default();
        tracing::warn!(
            keys = lost,
            error,
            "the store was never charged with what these keys spent without it: that is lost"
        );
    }
}

/// Three quarters of it to five quarters.
fn jittered(span: Duration, rng: &RandomState, throw: u64) -> Duration {
    span * 3 / 4 + part(span / 2, rng, throw)
}

/// Some part of it.
fn part(span: Duration, rng: &RandomState, throw: u64) -> Duration {
    let mut thrown = rng.build_hasher();
    thrown.write_u64(throw);
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(thrown.finish() % micros.max(1))
}

/// An error and what caused it, on one line.
pub(crate) fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    without_numbers(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_and_stay_within_bounds() {
        let rng = RandomState::new();
        let waits: Vec<_> = (0..1_000).map(|throw| jittered(RECONCILE_INTERVAL, &rng, throw)).collect();
        assert!(
            waits.iter().all(|it| (RECONCILE_INTERVAL * 3 / 4..RECONCILE_INTERVAL * 5 / 4).contains(it)),
            "{waits:?}"
        );
        assert!(
            waits.iter().any(|it| *it < RECONCILE_INTERVAL)
                && waits.iter().any(|it| *it > RECONCILE_INTERVAL)
        );
        assert!((0..1_000).all(|throw| part(MAX_RECONCILE_DELAY, &rng, throw) < MAX_RECONCILE_DELAY));
    }
}
