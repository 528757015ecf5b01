//! Rate limiting with exact counts, bounded memory and explained decisions.
//!
//! One limit, and keys that you choose:
//!
//! ```
//! use tollgate::{Bucket, Gate, Rate};
//!
//! let gate = Gate::new("exports", Bucket::new(Rate::per_hour(5))?);
//! assert!(gate.take("alice", 4).is_admitted());
//! assert!(!gate.take("alice", 2).is_admitted());      // one is left, and the refusal took nothing
//! assert_eq!(gate.peek("alice").remaining, 1);
//! # Ok::<(), tollgate::QuotaError>(())
//! ```
//!
//! Several limits over one request, from a policy in YAML (feature `yaml`):
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Call, Limiter};
//!
//! let limiter = Limiter::from_policy("
//! limits:
//!   - endpoint: /api/v1/login
//!     by: ip
//!     bucket: 2/minute
//! ")?;
//!
//! let login = Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]);
//! assert!(limiter.check(&login).is_allowed());
//! assert!(limiter.check(&login).is_allowed());
//! let refused = limiter.check(&login);
//! assert!(!refused.is_allowed());
//! assert_eq!(refused.limiting().map(|limit| limit.name()), Some("api-v1-login-by-ip"));
//! assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(30)));
//! # Ok::<(), tollgate::PolicyError>(())
//! ```
//!
//! - [`Limiter`] checks requests against every limit that applies, and charges all of them or none.
//! - [`SharedLimiter`] is a limiter whose policy can be replaced at runtime.
//! - [`Decision`] is its answer, with the outcome of every limit.
//! - [`Gate`] is a single limit without a policy.
//! - [`Observer`] is notified of every decision.
//! - [`throttle`] serves callers that pass the numbers of the limit with each call.
//! - [`outage`] defines the behavior while a store gives no answer.
//!
//! | feature | adds |
//! |---|---|
//! | none | [`Gate`], algorithms, the in-memory store |
//! | `policy` | [`Limiter`]: several limits over one request, all charged or none; [`LimitBuilder`] |
//! | `yaml` | the policy file: [`Limiter::from_policy`], [`Policy::parse`]; implies `policy` |
//! | `schema` | the JSON Schema of the policy file: `policy::schema`; implies `yaml` |
//! | `calendar` | windows of a calendar, with a time zone database |
//! | `redis` | `tollgate::redis`: state in Redis; implies `policy` |
//!
//! No feature is on by default, so a [`Gate`] needs no YAML parser, no JSON and no time zones.
//!
//! The tower layer and the HTTP headers are in `tollgate-http`; wire protocols are in the crates of
//! the servers.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "policy")]
mod decision;
mod gate;
#[cfg(feature = "policy")]
mod id;
#[cfg(feature = "policy")]
mod limiter;
#[cfg(feature = "policy")]
mod observer;
#[cfg(feature = "policy")]
pub mod outage;
#[cfg(feature = "policy")]
mod receipt;
#[cfg(feature = "policy")]
mod shared;
#[cfg(feature = "policy")]
pub mod throttle;

#[cfg(feature = "policy")]
pub use decision::{Decision, Fate, LimitOutcome, advised_wait};
pub use gate::Gate;
#[cfg(feature = "policy")]
pub use id::{DecisionId, ParseDecisionIdError};
#[cfg(feature = "policy")]
pub use limiter::Limiter;
#[cfg(feature = "policy")]
pub use observer::{Event, Observer, Settlement, Watch};
#[cfg(feature = "policy")]
pub use outage::{BreakerState, DegradedDecisions, Health, OutageSettings};
#[cfg(feature = "policy")]
pub use receipt::Receipt;
#[cfg(feature = "policy")]
pub use shared::SharedLimiter;
pub use tollgate_core::{
    Adjustment, AdvertisedRate, Algorithm, Amount, Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow,
    MAX_UNITS, Outcome, Overdraft, Owner, Quota, QuotaError, Rate, Rule, RuleId, SlidingLog, SlidingParts,
    SlidingWindow, Span, State, Timestamp, Verdict, Window,
};
#[cfg(feature = "policy")]
pub use tollgate_policy::{
    BuildError, Call, Diagnostics as PolicyError, KeySource, Limit, LimitBuilder, ListEntry, Missing, Mode,
    Policy, Request,
};
pub use tollgate_store::{Clock, ManualClock, MemoryStore, Store, StoreError, SystemClock};

/// The policy: limits, keys, matching, the policy file with its diagnostics, settings for surfaces.
#[cfg(feature = "policy")]
pub use tollgate_policy as policy;
/// State in Redis: standalone, Sentinel and Cluster.
#[cfg(feature = "redis")]
pub use tollgate_redis as redis;
/// The store contract and the conformance suite that every store passes.
pub use tollgate_store as store;
