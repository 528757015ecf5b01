//! Envoy's rate limit quota service (RLQS): one limit, divided over any number of proxies.
//!
//! A proxy opens a stream and reports, for each bucket of requests, how many it admitted and denied.
//! The service answers with an assignment for each bucket: a token bucket that the proxy applies by
//! itself until the assignment expires. No request waits for a call.
//!
//! - [`wire`]: the messages.
//! - [`division`]: a budget divided by demand. Arithmetic only.
//! - `bucket`: the assignments of one bucket: lowered before others are raised.
//! - `registry`: streams and buckets, and their bounds.
//! - `shares`: the share of this node in a bucket that several nodes serve, held in the store.
//! - `stream`: one call of a proxy. `service`: all of them ([`Quotas`]).
//! - `metrics`, `view`: metrics and JSON for operators.
//!
//! Not here: sockets and timers. A caller runs [`Quotas::tend`] a few times a second. Time comes from
//! a [`Clock`](tollgate::store::Clock).
//!
//! Invariant: the assignments of a bucket that proxies may be using at any instant add up to at most
//! the budget of this node, and the budgets of all nodes add up to at most the limit. Tested by
//! `tests/bound.rs`. The exceptions are listed in `docs/quota.md`.

mod bucket;
pub mod division;
mod explain;
mod metrics;
mod registry;
mod service;
mod shares;
mod stream;
mod terms;
mod view;
pub mod wire;

pub use service::Quotas;
pub use stream::QuotaStream;

use tollgate::Span;

/// The time to live of an assignment: two report ticks of Envoy and a second. A proxy that is killed
/// frees its share within this time, and a proxy that misses one tick keeps its assignment.
pub const ASSIGNMENT_TTL: Span = Span::from_secs(ASSIGNMENT_TTL_SECONDS);
/// The same in seconds: Envoy reads only whole seconds.
pub(crate) const ASSIGNMENT_TTL_SECONDS: u64 = 11;
