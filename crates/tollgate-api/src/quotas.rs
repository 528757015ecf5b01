//! The response of `GET /v1/quotas`: limits that are divided over proxies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::MODES;

/// The maximum number of buckets in a response, and of proxies of each.
pub const MAX_QUOTA_BUCKETS: usize = 100;

/// The quota service of a node. Rates are requests per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quotas {
    /// The number of open streams: one for each proxy and domain.
    pub streams: u64,
    /// The number of buckets that proxies report.
    pub buckets: u64,
    /// The place of this node among those that share the store; null if it has none.
    pub place: Option<u64>,
    /// Whether the shared store gave no answer about the share of this node.
    pub degraded: bool,
    /// The limits with buckets.
    pub quotas: Vec<Quota>,
    /// The buckets with the most demand.
    #[schemars(extend("maxItems" = MAX_QUOTA_BUCKETS))]
    pub top: Vec<QuotaBucket>,
}

/// A limit with all its buckets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// The name of the limit.
    pub limit: String,
    /// The mode of the limit.
    #[schemars(extend("enum" = MODES))]
    pub mode: String,
    /// The number of buckets.
    pub buckets: u64,
    /// The number of proxies in them.
    pub streams: u64,
    /// The limit of each bucket.
    pub rate: f64,
    /// The rates that are assigned to proxies.
    pub assigned: f64,
    /// The rates that proxies demand.
    pub demanded: f64,
    /// The requests that proxies reported as admitted.
    pub allowed: u64,
    /// The requests that proxies reported as denied.
    pub denied: u64,
    /// The requests above the limit, as reported.
    pub overshoot: u64,
    /// The same in a sentence.
    pub summary: String,
}

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaBucket {
    /// The limit; null if no limit covers the bucket.
    pub limit: Option<String>,
    /// The domain.
    pub domain: String,
    /// The entries: `name=search, tenant=acme`.
    pub bucket: String,
    /// The rate that this node may assign.
    pub budget: f64,
    /// The rates that are assigned to proxies.
    pub assigned: f64,
    /// The rates that proxies demand.
    pub demanded: f64,
    /// The same in a sentence.
    pub summary: String,
    /// The proxies.
    #[schemars(extend("maxItems" = MAX_QUOTA_BUCKETS))]
    pub streams: Vec<QuotaStream>,
}

/// The response of `GET /v1/quotas/bucket`: a bucket, and why each proxy has its part of the limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedBucket {
    /// The assignments in a sentence.
    pub summary: String,
    /// The bucket.
    pub bucket: QuotaBucket,
    /// The mode of the limit; null if no limit covers the bucket.
    pub mode: Option<String>,
    /// The limit of the bucket.
    pub rate: f64,
    /// The requests that the proxies of the bucket reported as admitted.
    pub allowed: u64,
    /// The requests that the proxies of the bucket reported as denied.
    pub denied: u64,
    /// The requests above the limit, as reported.
    pub overshoot: u64,
    /// How the limit is divided, step by step.
    pub arithmetic: Vec<String>,
}

/// A proxy in a bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaStream {
    /// The number of the stream since the start.
    pub stream: u64,
    /// The time since the stream was opened, in seconds.
    pub age_seconds: u64,
    /// The assigned rate.
    pub assigned: f64,
    /// The demanded rate; null until it is known.
    pub demanded: Option<f64>,
    /// The requests that the proxy reported as admitted.
    pub allowed: u64,
    /// The requests that the proxy reported as denied.
    pub denied: u64,
}
