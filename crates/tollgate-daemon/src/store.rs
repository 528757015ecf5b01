//! The store of this process: in memory, or in another process such as Redis.
//!
//! The start tries a remote store for a second, so that a wrong password is reported immediately, but does not
//! depend on it: without the store the server runs degraded, by the outage rules. Periodic work (announcing
//! this node, probing the store, renewing leases, charging requests that were admitted without it) runs on the main
//! thread, and once more at the end.
//!
//! - `far`: the stores of other regions.
//! - `remote`: the kinds of remote stores. `peers`: Tollgate nodes as their own store.
//!
//! The client of Redis is in `tollgate_redis`, the outage rules in `tollgate::outage`.

mod counters;
mod delegate;
mod far;
mod peers;
mod remote;

use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tollgate::store::{Check, VersionRegistry};
use tollgate::{
    Adjustment, Bucket, Limiter, MemoryStore, OutageSettings, Policy, Rate, Rule, SharedLimiter, Spawner,
    Store, StoreError,
};
use tollgate_lease::Leased;
use tollgate_telemetry::Watcher;

pub(crate) use counters::counters;
pub(crate) use peers::{PeerRemote, Peers, changed_list, complete};
pub(crate) use remote::{RemoteSettings, RemoteStore};

use delegate::delegate_store;

use crate::io_error::without_numbers;

/// The time that the start waits for Redis.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of keys that the start peeks.
const WARM_UP_KEYS: u8 = 64;
/// The delay before the first retry, which doubles each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(25);
/// The interval between two probes of the store. Requests notice an outage themselves; a node without
/// requests would not.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);
/// The time that the end waits to charge outstanding amounts.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval between two checks for outstanding charges.
const RECONCILE_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum random delay before a node charges outstanding amounts after an outage, because all
/// nodes recover at the same time.
const MAX_RECONCILE_DELAY: Duration = Duration::from_millis(500);

/// The store, in memory or in another process.
#[allow(clippy::large_enum_variant, reason = "there is one, and a box would be on the way of every request")]
pub(crate) enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// In another process. Hot keys of limits with a `lease` are decided by this node.
    Remote(Arc<Leased<RemoteStore>>),
}

delegate_store!(AnyStore: Memory, Remote);

impl AnyStore {
    /// Creates a memory store for a policy.
    pub(crate) fn memory(policy: &Policy) -> Self {
        Self::Memory(MemoryStore::new(usize::try_from(policy.max_keys()).unwrap_or(usize::MAX)))
    }

    /// Returns the registry of rules, if the store has one.
    pub(crate) fn versions(&self) -> Option<&dyn VersionRegistry> {
        self.remote().and_then(RemoteStore::versions)
    }

    /// Returns the remote store, if there is one.
    pub(crate) fn remote(&self) -> Option<&RemoteStore> {
        self.leased().map(Leased::inner)
    }

    /// Returns the leases on the remote store, if there is one.
    pub(crate) fn leased(&self) -> Option<&Leased<RemoteStore>> {
        match self {
            Self::Memory(_) => None,
            Self::Remote(store) => Some(store),
        }
    }

    /// Returns the kind of the store, as the overview names it.
    pub(crate) fn kind(&self) -> &'static str {
        self.remote().map_or("memory", RemoteStore::kind)
    }
}

/// Opens the configured store (`None`: in memory), and the stores of other regions.
pub(crate) fn open(
    policy: &Policy,
    remote: Option<RemoteSettings>,
    far: Vec<(String, RemoteSettings)>,
) -> Arc<AnyStore> {
    Arc::new(match remote {
        None => AnyStore::memory(policy),
        Some(settings) => {
            let leased = Leased::new(RemoteStore::new(settings));
            AnyStore::Remote(Arc::new(leased.with_far_stores(far::open(far))))
        }
    })
}

/// Creates a limiter on a store, observed by this watcher.
pub(crate) fn limiter(
    policy: Policy,
    store: &Arc<AnyStore>,
    outage: &OutageSettings,
    watcher: Option<&Watcher>,
) -> SharedLimiter<AnyStore> {
    // During an outage this node counts alone, and records outstanding charges for at most as many
    // keys as the policy allows.
    let most = usize::try_from(policy.max_keys()).unwrap_or(usize::MAX);
    let keys = most.min(outage.keys);
    let outage = OutageSettings { keys, ..outage.clone() };
    let limiter = Limiter::with_shared_store(policy, Arc::clone(store))
        .with_outage(&outage)
        .with_spawner(Spawner::new(spawn));
    match watcher {
        Some(watcher) => limiter.with_observer(watcher.clone()).into(),
        None => limiter.into(),
    }
}

/// Runs work on the runtime of this thread. Without one, the limiter defers the work.
fn spawn(work: Pin<Box<dyn Future<Output = ()> + Send>>) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(work);
    }
}

/// Connects, or returns a warning. Afterwards the limiter knows the state of the store.
pub(crate) async fn connect(limiter: &Limiter<AnyStore>, store: &AnyStore) -> Result<(), String> {
    let Some(remote) = store.remote() else { return Ok(()) };
    let mut why = format!("no answer within {START_TIMEOUT:?}");
    let connected = timeout(START_TIMEOUT, try_until_it_works(remote, &mut why)).await.is_ok();
    // A slower probe is left to `maintain`.
    let _late = timeout(START_TIMEOUT, limiter.probe()).await;
    if connected {
        return Ok(());
    }
    if remote.peers().is_some() {
        return Err(format!(
            "warning: cannot reach all peers of {remote}: {why}\n  \
             = help: until it answers, the keys of that node are decided as the `on_outage` of each limit says. \
             It is tried again all the time\n"
        ));
    }
    Err(format!(
        "warning: cannot use the store {remote}: {why}\n  \
         = help: serving without it until it answers: each limit does as its `on_outage` says. \
         It is tried again all the time; a changed `store` takes a restart\n"
    ))
}

/// Retries, because a cluster must first discover the owners of its slots.
async fn try_until_it_works(store: &RemoteStore, why: &mut String) {
    let mut pause = FIRST_RETRY_DELAY;
    loop {
        let tried = async {
            store.connect().await?;
            warm_up(store).await
        };
        let Err(error) = tried.await else { return };
        // No request was sent yet, so the cause is the message.
        let error = if let StoreError::Part(error) = &error { error } else { &error };
        *why = error.source().map_or_else(|| error.to_string(), in_full);
        sleep(pause).await;
        pause *= 2;
    }
}

/// Sends the commands that requests will send, without charging: a server may accept connections and
/// reject commands, be a replica, or miss a part of its cluster.
async fn warm_up(store: &RemoteStore) -> Result<(), StoreError> {
    let Ok(quota) = Bucket::new(Rate::per_minute(1)) else { return Ok(()) };
    let rule = Rule::new("tollgate-rehearsal", quota);
    // Enough keys to reach every part of a cluster with high probability.
    let keys: Vec<_> = (0..WARM_UP_KEYS).map(u8::to_le_bytes).collect();
    let checks: Vec<_> = keys.iter().map(|key| Check::new(&rule, key, 0)).collect();
    store.decide(&checks).await?;
    store.adjust(&rule, &keys[0], Adjustment::Reset).await.map(drop)
}

/// Runs the periodic work until dropped.
pub(crate) async fn maintain(limiter: SharedLimiter<AnyStore>, store: Arc<AnyStore>) {
    let Some(leased) = store.leased() else { return };
    tokio::join!(
        leased.inner().announce(),
        look(limiter.clone()),
        reconcile(limiter),
        tend(leased),
        far::borrow(leased),
    );
}

/// Renews and returns leases.
async fn tend(leased: &Leased<RemoteStore>) {
    loop {
        match leased.tend().await {
            Some(span) => _ = timeout(span.into(), leased.due()).await,
            None => leased.due().await,
        }
    }
}

/// Returns all leased units to the store.
pub(crate) async fn return_leases(store: &AnyStore) {
    let Some(leased) = store.leased() else { return };
    if timeout(SHUTDOWN_TIMEOUT, leased.drain()).await.is_err() {
        let held = leased.counters().held;
        tracing::warn!(units = held, "the store did not take leased units back: they end by themselves");
    }
}

/// Removes this node from the registries of the store, so that no other node waits for it.
pub(crate) async fn leave(store: &AnyStore) {
    if let Some(remote) = store.remote() {
        // Without an answer, the entry expires.
        let _late = timeout(SHUTDOWN_TIMEOUT, remote.leave()).await;
    }
}

/// Probes the store.
async fn look(limiter: SharedLimiter<AnyStore>) {
    let rng = RandomState::new();
    for round in 0_u64.. {
        sleep(jittered(PROBE_INTERVAL, &rng, round)).await;
        limiter.load().probe().await;
    }
}

/// Charges the store for requests that were admitted without it, and renews the slots of requests.
async fn reconcile(limiter: SharedLimiter<AnyStore>) {
    let rng = RandomState::new();
    let mut was_degraded = false;
    for round in 0_u64.. {
        sleep(jittered(RECONCILE_INTERVAL, &rng, round)).await;
        let health = limiter.load().health();
        let is_back = was_degraded && !health.is_degraded();
        was_degraded = health.is_degraded();
        if is_back && health.ledger_keys > 0 {
            sleep(part(MAX_RECONCILE_DELAY, &rng, !round)).await;
        }
        // Also without outstanding charges: it renews the slots that requests hold.
        let charged = limiter.load().reconcile().await;
        if charged > 0 {
            tracing::info!(keys = charged, "charged the store with what was admitted without it");
        }
    }
}

/// Charges the outstanding amounts within the remaining time, and logs the result, including losses.
pub(crate) async fn settle_up(limiter: &Limiter<AnyStore>, left: Duration) {
    let before = limiter.health();
    if before.ledger_keys == 0 {
        return;
    }
    let charge = async {
        while limiter.health().ledger_keys > 0 {
            limiter.reconcile().await;
            // The breaker is open, or a failed charge is due again soon.
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

/// Returns a random duration from three quarters to five quarters.
fn jittered(span: Duration, rng: &RandomState, throw: u64) -> Duration {
    span * 3 / 4 + part(span / 2, rng, throw)
}

/// Returns a random fraction of a duration.
fn part(span: Duration, rng: &RandomState, throw: u64) -> Duration {
    let mut thrown = rng.build_hasher();
    thrown.write_u64(throw);
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(thrown.finish() % micros.max(1))
}

/// Formats an error and its causes on one line.
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
