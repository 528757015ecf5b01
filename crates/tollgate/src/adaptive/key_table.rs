//! The keys of one limit, bounded in number.
//!
//! A key without requests in flight that was not used for ten minutes is dropped when room is needed. If
//! all keys are in use, new ones share one limit, so that a caller that invents keys gains nothing.
//!
//! A key of common length uses about 500 bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use tollgate_core::{Span, Timestamp};
use tollgate_overload::adaptive::AdaptiveSettings;
use tollgate_policy::{AdaptiveCheck, Key, Limit, Mode};

use super::in_flight::Entry;
use super::key_limit::{Excess, KeyLimit, Learned};
use crate::shed::AdaptiveShed;

/// The maximum number of keys of a limit.
pub(super) const MAX_KEYS: usize = 10_000;

/// The time without requests after which a key may be dropped.
const IDLE_TIME: Span = Span::from_secs(600);

/// The minimum time between two searches for idle keys in a full table.
const SWEEP_INTERVAL: Span = Span::from_secs(1);

pub(super) struct KeyTable {
    settings: AdaptiveSettings,
    keys: Arc<Keys>,
    /// The requests beyond the limit by the rank of their class; the last number is of requests without
    /// a class.
    exceeded: Arc<[AtomicU64]>,
}

/// The keys, which a reload passes on.
struct Keys {
    map: RwLock<HashMap<Key, Arc<KeyLimit>>>,
    /// The limit of keys that find no room.
    shared: Arc<KeyLimit>,
    swept_at: Mutex<Timestamp>,
    /// Whether the keys keep what they have learned.
    is_frozen: AtomicBool,
}

impl KeyTable {
    /// Creates a table with the keys of another one, if there is one.
    pub(super) fn new(
        settings: AdaptiveSettings,
        is_frozen: bool,
        classes: usize,
        before: Option<&Arc<Self>>,
    ) -> Self {
        let keys = before.map_or_else(
            || {
                Arc::new(Keys {
                    map: RwLock::default(),
                    shared: Arc::new(KeyLimit::new(settings)),
                    swept_at: Mutex::new(Timestamp::EPOCH),
                    is_frozen: AtomicBool::new(false),
                })
            },
            |it| Arc::clone(&it.keys),
        );
        if before.is_some_and(|it| it.settings != settings) {
            keys.read().values().chain([&keys.shared]).for_each(|it| it.set_settings(settings));
        }
        keys.freeze(is_frozen);
        let exceeded = match before.filter(|it| it.exceeded.len() == classes + 1) {
            Some(before) => Arc::clone(&before.exceeded),
            None => (0..=classes).map(|_| AtomicU64::new(0)).collect(),
        };
        Self { settings, keys, exceeded }
    }

    /// Counts a request in flight, if there is room for one of its class.
    pub(super) fn enter<'l>(
        &self,
        check: &AdaptiveCheck<'l>,
        (rank, classes): (u8, usize),
        now: Timestamp,
    ) -> Result<Entry, AdaptiveShed<'l>> {
        let is_enforced = check.limit.mode() == Mode::Enforce;
        let enter = |state: &Arc<KeyLimit>| match state.enter((rank, classes), is_enforced, now) {
            Ok((admission, exceeded)) => {
                if exceeded.is_some() {
                    self.count_exceeded(rank);
                }
                Ok(Entry::new(state, admission))
            }
            Err(excess) => {
                self.count_exceeded(rank);
                Err(refusal(check.limit, state.learned(), excess))
            }
        };
        // Enters under the lock: a key with a request in flight is not dropped.
        if let Some(state) = self.keys.read().get(&check.key) {
            return enter(state);
        }
        let state = self.keys.insert(&check.key, self.settings, now);
        enter(&state)
    }

    fn count_exceeded(&self, rank: u8) {
        let last = self.exceeded.len() - 1;
        if let Some(count) = self.exceeded.get(usize::from(rank).min(last)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the requests beyond the limit by the rank of their class; the last number is of requests
    /// without a class.
    pub(super) fn exceeded(&self) -> impl ExactSizeIterator<Item = u64> {
        self.exceeded.iter().map(|it| it.load(Ordering::Relaxed))
    }

    /// Returns the keys with their limits, and `None` for the limit of keys that found no room, if it was
    /// needed.
    pub(super) fn all(&self) -> Vec<(Option<Key>, Arc<KeyLimit>)> {
        let keys = self.keys.read();
        let of_keys = keys.iter().map(|(key, limit)| (Some(key.clone()), Arc::clone(limit)));
        let shared = &self.keys.shared;
        let is_used = !shared.is_idle_since(Timestamp::from_micros(1));
        of_keys.chain(is_used.then(|| (None, Arc::clone(shared)))).collect()
    }
}

fn refusal(limit: &Limit, learned: Learned, excess: Excess) -> AdaptiveShed<'_> {
    AdaptiveShed {
        limit,
        in_flight: excess.in_flight,
        slots: learned.slots,
        class_slots: excess.class_slots,
        latency: micros(learned.latency),
        baseline: micros(learned.baseline),
    }
}

fn micros(time: Option<Duration>) -> u32 {
    time.map_or(0, |it| u32::try_from(it.as_micros()).unwrap_or(u32::MAX))
}

impl Keys {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<Key, Arc<KeyLimit>>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all keys keep what they have learned, or go on learning.
    fn freeze(&self, is_frozen: bool) {
        // Under the lock, so that a key that is added meanwhile sees the new value.
        let map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_frozen.swap(is_frozen, Ordering::Relaxed) != is_frozen {
            map.values().chain([&self.shared]).for_each(|it| it.freeze(is_frozen));
        }
    }

    /// Returns the limit of a key, which is added if there is room.
    #[cold]
    fn insert(&self, key: &Key, settings: AdaptiveSettings, now: Timestamp) -> Arc<KeyLimit> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= MAX_KEYS && !map.contains_key(key) {
            let mut swept_at = self.swept_at.lock().unwrap_or_else(PoisonError::into_inner);
            if now.since(*swept_at) >= SWEEP_INTERVAL {
                *swept_at = now;
                let idle = Timestamp::from_micros(now.as_micros().saturating_sub(IDLE_TIME.as_micros()));
                map.retain(|_, limit| !limit.is_idle_since(idle));
            }
            if map.len() >= MAX_KEYS {
                return Arc::clone(&self.shared);
            }
        }
        let limit = map.entry(key.clone()).or_insert_with(|| {
            let limit = KeyLimit::new(settings);
            limit.freeze(self.is_frozen.load(Ordering::Relaxed));
            Arc::new(limit)
        });
        // A sweep between this call and the count of the request must not drop the key.
        limit.touch(now);
        Arc::clone(limit)
    }
}
