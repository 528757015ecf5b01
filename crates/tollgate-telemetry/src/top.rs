//! Who is refused most and what is asked for most, lately.
//!
//! Every refusal by a limit counts for its key. Routes count by refusals and by a sample
//! of what passes, in which each request stands for as many as were let go by: all of
//! them while there are few, one in 2^n while there are many, so that counting routes
//! costs about the same at any rate.
//!
//! Not here: the sketch and its bound (`sketch`, `windowed_topk`).

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate::{Span, Timestamp};

use crate::describe::{fit, shortened};
use crate::window::{WINDOW, window_start};
use crate::windowed_topk::{By, WindowedTopK};

/// How many keys and routes are counted in each minute. A key that has more than one in
/// so many of the refusals is always found.
const MAX_KEYS: usize = 512;
const MAX_ROUTES: usize = 256;
/// How much of a path and of a method is kept, in bytes.
const MAX_PATH_BYTES: usize = 96;
const MAX_METHOD_BYTES: usize = 16;
/// How many requests that pass are counted in a second: about so many.
const SAMPLES_PER_SECOND: u32 = 1_024;
/// Never fewer than one in 2^this.
const MAX_SAMPLE_SHIFT: u32 = 20;

/// A key that is refused often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key, as `privacy` shows it.
    pub key: Box<str>,
    /// Stands for what is not shown of the key: the same under every limit.
    pub tag: u64,
    /// How many refusals at most.
    pub refused: u64,
    /// How many at least.
    pub refused_at_least: u64,
}

/// A route that is asked for often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRoute {
    /// `GET` and so on.
    pub method: Box<str>,
    /// The path, cut where it is long. As it came: escape it where you show it.
    pub path: Box<str>,
    /// How many requests at most, scaled up from the sample.
    pub requests: u64,
    /// How many at least, besides what the sample adds.
    pub requests_at_least: u64,
    /// Of these, refused: at least.
    pub refused: u64,
}

/// Who is refused most and what is asked for most, in the last minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopList {
    /// How far back was looked, at most.
    pub window: Span,
    /// The second that the window begins with, since 1970.
    pub from: u64,
    /// How many requests a limit refused meanwhile: what a key's share is of.
    pub refused: u64,
    /// The keys that were refused most, the most first.
    pub keys: Vec<TopKey>,
    /// By how much a key's number may be too high; a key that is not told of was refused
    /// no more often than this, unless fewer were asked for than there are.
    pub error_at_most: u64,
    /// How many requests came meanwhile, scaled up from the sample.
    pub requests: u64,
    /// The routes that were asked for most, by what they were asked for at least, the most
    /// first.
    pub routes: Vec<HotRoute>,
    /// By how much a route's number may be too high, besides what the sample adds.
    pub routes_error_at_most: u64,
}

/// A key's name: its limit, itself and its tag.
pub(crate) type KeyName = (Arc<str>, Box<str>, u64);
/// A route's name: its method and its path.
type RouteName = Arc<(Box<str>, Box<str>)>;

/// Counts who is refused and what is asked for.
pub(crate) struct Top {
    keys: WindowedTopK<Arc<KeyName>>,
    routes: WindowedTopK<RouteName>,
    hasher: foldhash::quality::RandomState,
    /// One in 2^this of the requests that pass is counted.
    rarity: AtomicU32,
    /// How many were, in this second.
    sampled: AtomicU32,
    /// Which that is, counted from 1970.
    second: AtomicU64,
}

impl Top {
    pub(crate) fn new() -> Self {
        Self {
            keys: WindowedTopK::new(MAX_KEYS),
            routes: WindowedTopK::new(MAX_ROUTES),
            hasher: foldhash::quality::RandomState::default(),
            rarity: AtomicU32::new(0),
            sampled: AtomicU32::new(0),
            second: AtomicU64::new(0),
        }
    }

    /// A key was refused by a limit. `spot` stands for both; `name` is asked only for those that
    /// are new here.
    pub(crate) fn refused(&self, key_hash: u64, at: Timestamp, name: impl FnOnce() -> KeyName) {
        self.keys.add(key_hash, 1, true, at, || Arc::new(name()));
    }

    /// A request of this random number passed: what it stands for, if it is in the sample.
    #[inline]
    pub(crate) fn stands_for(&self, random: u64) -> Option<u64> {
        let weight = 1_u64 << self.rarity.load(Ordering::Relaxed).min(MAX_SAMPLE_SHIFT);
        (random & (weight - 1) == 0).then_some(weight)
    }

    /// A route was asked for: a refusal, or one of a sample that stands for `weight`. The
    /// path is one that may be seen.
    pub(crate) fn routed(&self, method: &str, path: &str, refused: bool, weight: u64, at: Timestamp) {
        self.tick(at);
        if !refused && self.sampled.fetch_add(1, Ordering::Relaxed) >= SAMPLES_PER_SECOND {
            self.sampled.store(0, Ordering::Relaxed);
            let rarer = self.rarity.load(Ordering::Relaxed) + 1;
            self.rarity.store(rarer.min(MAX_SAMPLE_SHIFT), Ordering::Relaxed);
        }
        let key_hash = self.hasher.hash_one((fit(method, MAX_METHOD_BYTES), fit(path, MAX_PATH_BYTES)));
        self.routes.add(key_hash, weight, refused, at, || {
            Arc::new((shortened(method, MAX_METHOD_BYTES), shortened(path, MAX_PATH_BYTES)))
        });
    }

    /// It is this late. In each second with few in the sample, it takes in more.
    pub(crate) fn tick(&self, at: Timestamp) {
        // These numbers steer a sample: nothing else hangs on their order.
        let second = at.as_micros() / 1_000_000;
        let is_new = self.second.load(Ordering::Relaxed) != second
            && self.second.swap(second, Ordering::Relaxed) != second;
        if is_new && self.sampled.swap(0, Ordering::Relaxed) < SAMPLES_PER_SECOND / 4 {
            let more = self.rarity.load(Ordering::Relaxed).saturating_sub(1);
            self.rarity.store(more, Ordering::Relaxed);
        }
    }

    /// Forgets all names.
    pub(crate) fn clear(&self) {
        self.keys.clear();
        self.routes.clear();
    }

    /// Who and what was most, in the window that ends now.
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
                    limit: Arc::clone(&it.payload.0),
                    key: it.payload.1.clone(),
                    tag: it.payload.2,
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
                    method: it.payload.0.clone(),
                    path: it.payload.1.clone(),
                    requests: it.count,
                    requests_at_least: it.count - it.error,
                    refused: it.marked,
                })
                .collect(),
        }
    }
}
