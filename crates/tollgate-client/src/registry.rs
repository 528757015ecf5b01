//! The scopes, routes and buckets that a client knows, in bounded tables.
//!
//! A full table forgets entries that nothing is lost with: first idle ones, then any without calls. A server that
//! invents a new bucket for each response therefore costs a bounded amount of memory, and loses its own pace.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::Timestamp;

use crate::bucket::Bucket;
use crate::clock_offset::ClockOffset;
use crate::headers::{BucketKind, BucketName, Shape};
use crate::queue::Queue;
use crate::retry::{Breaker, RetryBudget, RetryBudgetSettings};

/// The entries that are examined to find one that can be forgotten.
const MAX_EXAMINED: usize = 32;
/// The longest name that is kept for messages.
const MAX_NAME_CHARS: usize = 64;

/// A server and a credential.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) host: String,
    pub(crate) offset: Option<ClockOffset>,
    pub(crate) breaker: Breaker,
    pub(crate) budget: RetryBudget,
    /// Whether a refusal has concerned every route; then all of them also need the bucket of the scope.
    pub(crate) is_global: bool,
    /// The shared buckets that responses report, as long as all routes report the same.
    pub(crate) common: Common,
}

/// The shared buckets of a scope.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Common {
    Unknown,
    One(RouteBuckets),
    Several,
}

/// The buckets of a route.
pub(crate) type RouteBuckets = SmallVec<[BucketRef; 2]>;

/// A bucket of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketRef {
    Fixed(u64),
    /// One bucket for each resource.
    PerResource(u64),
}

/// A method and a path.
#[derive(Debug, Default)]
pub(crate) struct Route {
    /// Empty until a response has reported buckets.
    pub(crate) buckets: RouteBuckets,
    /// Refusals in sequence that named no wait.
    pub(crate) refusals: u32,
    pub(crate) calls: u32,
}

/// A bucket with the calls that wait for it.
#[derive(Debug)]
pub(crate) struct BucketEntry {
    pub(crate) bucket: Bucket,
    pub(crate) name: String,
    pub(crate) queue: Queue,
    /// The waiting call that has the timer of the queue, and the time it is set to.
    pub(crate) leader: Option<u64>,
    pub(crate) wake_at: Timestamp,
}

/// The view of a client on one bucket of a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BucketView {
    /// The name that the server gave the bucket; empty if it gave none.
    pub name: String,
    /// The units of a full bucket, or of a window.
    pub limit: Option<f64>,
    /// The predicted units that are left.
    pub level: Option<f64>,
    /// The units that the bucket gets per second.
    pub rate_per_second: Option<f64>,
    /// The shape, as far as it is known.
    pub shape: Option<Shape>,
    /// The time for which a refusal stops the bucket.
    pub blocked_for: Duration,
    /// The calls that are under way.
    pub in_flight: u32,
    /// The calls that wait.
    pub waiting: usize,
}

#[derive(Debug)]
pub(crate) struct Registry {
    hashes: RandomState,
    max: usize,
    budget: RetryBudgetSettings,
    scopes: HashMap<u64, Scope>,
    routes: HashMap<u64, Route>,
    buckets: HashMap<u64, BucketEntry>,
}

impl Registry {
    pub(crate) fn new(hashes: RandomState, max: usize, budget: RetryBudgetSettings) -> Self {
        let max = max.max(1);
        let (scopes, routes, buckets) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { hashes, max, budget, scopes, routes, buckets }
    }

    pub(crate) fn scope(&mut self, key: u64, host: impl FnOnce() -> String) -> &mut Scope {
        if !self.scopes.contains_key(&key) {
            make_room(&mut self.scopes, self.max, |_| true, |_| true);
            let host = host().chars().take(255).collect();
            let scope = Scope {
                host,
                offset: None,
                breaker: Breaker::default(),
                budget: RetryBudget::new(self.budget),
                is_global: false,
                common: Common::Unknown,
            };
            self.scopes.insert(key, scope);
        }
        self.scopes.get_mut(&key).expect("the scope was inserted above")
    }

    pub(crate) fn known_scope(&mut self, key: u64) -> Option<&mut Scope> {
        self.scopes.get_mut(&key)
    }

    pub(crate) fn route(&mut self, key: u64) -> &mut Route {
        if !self.routes.contains_key(&key) {
            make_room(&mut self.routes, self.max, |route| route.calls == 0, |route| route.calls == 0);
        }
        self.routes.entry(key).or_default()
    }

    pub(crate) fn known_route(&mut self, key: u64) -> Option<&mut Route> {
        self.routes.get_mut(&key)
    }

    pub(crate) fn bucket(&mut self, key: u64, now: Timestamp) -> &mut BucketEntry {
        self.named_bucket(key, BucketKind::Requests, now, || "")
    }

    pub(crate) fn named_bucket<'n>(
        &mut self,
        key: u64,
        kind: BucketKind,
        now: Timestamp,
        name: impl FnOnce() -> &'n str,
    ) -> &mut BucketEntry {
        if !self.buckets.contains_key(&key) {
            let is_unused = |it: &BucketEntry| it.queue.is_empty() && it.bucket.in_flight() == 0;
            make_room(&mut self.buckets, self.max, |it| is_unused(it) && it.bucket.is_idle(now), is_unused);
            let name = name().chars().filter(|it| !it.is_control()).take(MAX_NAME_CHARS).collect();
            let bucket = Bucket::new(kind, now);
            let (queue, wake_at) = (Queue::default(), Timestamp::from_micros(u64::MAX));
            self.buckets.insert(key, BucketEntry { bucket, name, queue, leader: None, wake_at });
        }
        self.buckets.get_mut(&key).expect("the bucket was inserted above")
    }

    pub(crate) fn known_bucket(&mut self, key: u64) -> Option<&mut BucketEntry> {
        self.buckets.get_mut(&key)
    }

    /// Returns the bucket that a response reports for a route.
    pub(crate) fn bucket_ref(&self, scope: u64, route: u64, name: &BucketName<'_>) -> BucketRef {
        match name {
            BucketName::Shared(name) => BucketRef::Fixed(self.hashes.hash_one((scope, 1_u8, &**name))),
            BucketName::PerResource(name) => {
                BucketRef::PerResource(self.hashes.hash_one((scope, 2_u8, name)))
            }
            BucketName::Route("") => BucketRef::Fixed(route),
            BucketName::Route(name) => BucketRef::Fixed(self.hashes.hash_one((route, name))),
        }
    }

    /// Returns the key of a bucket for a call about a resource.
    pub(crate) fn resolve(&self, bucket: BucketRef, resource: u64) -> u64 {
        match bucket {
            BucketRef::Fixed(key) => key,
            BucketRef::PerResource(key) => self.hashes.hash_one((key, resource)),
        }
    }

    pub(crate) fn views(&mut self, now: Timestamp) -> Vec<BucketView> {
        let view = |it: &mut BucketEntry| {
            let _advanced = it.bucket.ready(now, None);
            BucketView {
                name: it.name.clone(),
                limit: it.bucket.limit(),
                level: it.bucket.level(),
                rate_per_second: it.bucket.rate_per_second(),
                shape: it.bucket.shape(),
                blocked_for: it.bucket.blocked_until().since(now).into(),
                in_flight: it.bucket.in_flight(),
                waiting: it.queue.len(),
            }
        };
        self.buckets.values_mut().map(view).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }
}

/// Removes an entry from a full table: one that `is_idle`, or else one that `is_unused`, among the first that are
/// found. If every one of them is in use, the table grows by one: their number is that of the calls under way.
fn make_room<T>(
    table: &mut HashMap<u64, T>,
    max: usize,
    is_idle: impl Fn(&T) -> bool,
    is_unused: impl Fn(&T) -> bool,
) {
    if table.len() < max {
        return;
    }
    let examined = || table.iter().take(MAX_EXAMINED);
    let found = examined().find(|(_, it)| is_idle(it)).or_else(|| examined().find(|(_, it)| is_unused(it)));
    if let Some(key) = found.map(|(key, _)| *key) {
        table.remove(&key);
    }
}
