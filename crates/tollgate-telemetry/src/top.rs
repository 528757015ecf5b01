//! The keys refused most and the routes requested most in the last five minutes.
//!
//! Every refusal by a limit counts for its key. Routes count refusals and a sample of admitted
//! requests, each weighted by the sampling interval: every request at low rates, one in 2^n at high
//! rates, so that the cost of counting routes is nearly independent of the rate.
//!
//! The sketch and its error bound are in `sketch` and `windowed_topk`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate::{Span, Timestamp};

use crate::describe::fit;
use crate::key_cache::ShownKey;
use crate::key_hash::HashKey;
use crate::text::Text;
use crate::window::{WINDOW, window_start};
use crate::windowed_topk::{By, WindowedTopK};

/// The number of keys and of routes that are counted in each pane. A key with more than one in
/// `MAX_KEYS` of the refusals is always found.
const MAX_KEYS: usize = 512;
const MAX_ROUTES: usize = 256;
/// The bytes that are kept of a path and of a method.
const MAX_PATH_BYTES: usize = 96;
const MAX_METHOD_BYTES: usize = 16;
/// The approximate number of admitted requests that are sampled in a second.
const SAMPLES_PER_SECOND: u32 = 1_024;
/// The lowest sampling rate is one in 2^`MAX_SAMPLE_SHIFT`.
const MAX_SAMPLE_SHIFT: u32 = 20;

/// A key that was refused often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Identifies the hidden part of the key. It is the same under every limit.
    pub tag: u64,
    /// The upper bound of the number of refusals.
    pub refused: u64,
    /// The lower bound of the number of refusals.
    pub refused_at_least: u64,
}

/// A route that was requested often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRoute {
    /// The method, such as `GET`.
    pub method: Box<str>,
    /// The path, truncated. The text comes from the caller: escape it for display.
    pub path: Box<str>,
    /// The upper bound of the number of requests, scaled up from the sample.
    pub requests: u64,
    /// The lower bound of the number of requests, apart from the sampling error.
    pub requests_at_least: u64,
    /// The lower bound of the number of refused requests.
    pub refused: u64,
}

/// The keys refused most and the routes requested most in the last five minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopList {
    /// The maximum length of the window.
    pub window: Span,
    /// The first second of the window, since 1970.
    pub from: u64,
    /// The number of requests that limits refused in the window.
    pub refused: u64,
    /// The keys that were refused most, the most frequent first.
    pub keys: Vec<TopKey>,
    /// The most by which the count of a key may be too high. A key that is missing from a list of all
    /// entries was refused at most this often.
    pub error_at_most: u64,
    /// The number of requests in the window, scaled up from the sample.
    pub requests: u64,
    /// The routes that were requested most, sorted by their lower bound, the most frequent first.
    pub routes: Vec<HotRoute>,
    /// The most by which the count of a route may be too high, apart from the sampling error.
    pub routes_error_at_most: u64,
}

/// The name of a key.
#[derive(Clone)]
pub(crate) struct KeyName {
    pub(crate) limit: Arc<str>,
    pub(crate) key: ShownKey,
}

/// The name of a route.
#[derive(Clone)]
struct RouteName {
    method: Text<MAX_METHOD_BYTES>,
    path: Text<MAX_PATH_BYTES>,
}

/// Counts refused keys and requested routes.
pub(crate) struct Top {
    keys: WindowedTopK<KeyName>,
    routes: WindowedTopK<RouteName>,
    hash_key: HashKey,
    /// One in 2^`rarity` of the admitted requests is counted.
    rarity: AtomicU32,
    /// The number of requests sampled in the current second.
    sampled: AtomicU32,
    /// The current second, since 1970.
    second: AtomicU64,
}

impl Top {
    pub(crate) fn new() -> Self {
        Self {
            keys: WindowedTopK::new(MAX_KEYS),
            routes: WindowedTopK::new(MAX_ROUTES),
            hash_key: HashKey::random(),
            rarity: AtomicU32::new(0),
            sampled: AtomicU32::new(0),
            second: AtomicU64::new(0),
        }
    }

    /// Counts a refusal of a key by a limit. `key_hash` identifies both; `name` is called only for a
    /// key that gets an entry.
    pub(crate) fn refused(&self, key_hash: u64, at: Timestamp, name: impl FnOnce() -> KeyName) {
        self.keys.add(key_hash, 1, true, at, name);
    }

    /// Returns the weight of an admitted request with this random number; `None` if it is not sampled.
    #[inline]
    pub(crate) fn stands_for(&self, random: u64) -> Option<u64> {
        let weight = 1_u64 << self.rarity.load(Ordering::Relaxed).min(MAX_SAMPLE_SHIFT);
        (random & (weight - 1) == 0).then_some(weight)
    }

    /// Counts a request of a route: a refusal, or a sampled request with its weight. The path is
    /// redacted already.
    pub(crate) fn routed(&self, method: &str, path: &str, refused: bool, weight: u64, at: Timestamp) {
        self.tick(at);
        if !refused && self.sampled.fetch_add(1, Ordering::Relaxed) >= SAMPLES_PER_SECOND {
            self.sampled.store(0, Ordering::Relaxed);
            let rarer = self.rarity.load(Ordering::Relaxed) + 1;
            self.rarity.store(rarer.min(MAX_SAMPLE_SHIFT), Ordering::Relaxed);
        }
        let key_hash = self.route_hash(method, path);
        self.routes.add(key_hash, weight, refused, at, || RouteName {
            method: Text::new(method),
            path: Text::new(path),
        });
    }

    /// Returns the hash of a route. A text that is cut differs from one that ends there.
    fn route_hash(&self, method: &str, path: &str) -> u64 {
        let ((method, is_method_cut), (path, is_path_cut)) =
            (fit(method, MAX_METHOD_BYTES), fit(path, MAX_PATH_BYTES));
        let number = u128::from(is_method_cut) << 1 | u128::from(is_path_cut);
        self.hash_key.hash(number, [method.as_bytes(), path.as_bytes()])
    }

    /// Advances to `at`. After a second with few samples, the sampling rate increases.
    pub(crate) fn tick(&self, at: Timestamp) {
        // Relaxed, because these numbers only control the sampling rate.
        let second = at.as_micros() / 1_000_000;
        let is_new = self.second.load(Ordering::Relaxed) != second
            && self.second.swap(second, Ordering::Relaxed) != second;
        if is_new && self.sampled.swap(0, Ordering::Relaxed) < SAMPLES_PER_SECOND / 4 {
            let more = self.rarity.load(Ordering::Relaxed).saturating_sub(1);
            self.rarity.store(more, Ordering::Relaxed);
        }
    }

    /// Removes all names.
    pub(crate) fn clear(&self) {
        self.keys.clear();
        self.routes.clear();
    }

    /// Returns the most frequent keys and routes in the window that ends now.
    pub(crate) fn list(&self, now: Timestamp, most: usize) -> TopList {
        let (keys, routes) =
            (self.keys.heaviest(now, most, By::Most), self.routes.heaviest(now, most, By::Least));
        TopList {
            window: WINDOW,
            from: window_start(now.as_micros() / 1_000_000),
            refused: keys.total,
            error_at_most: keys.error,
            keys: keys
                .entries
                .into_iter()
                .map(|it| TopKey {
                    limit: it.payload.limit,
                    key: (&it.payload.key.text).into(),
                    tag: it.payload.key.tag,
                    refused: it.count,
                    refused_at_least: it.count - it.error,
                })
                .collect(),
            requests: routes.total,
            routes_error_at_most: routes.error,
            routes: routes
                .entries
                .into_iter()
                .map(|it| HotRoute {
                    method: (&it.payload.method).into(),
                    path: (&it.payload.path).into(),
                    requests: it.count,
                    requests_at_least: it.count - it.error,
                    refused: it.marked,
                })
                .collect(),
        }
    }
}
