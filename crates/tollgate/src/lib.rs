//! Rate limiting with exact counts, bounded memory and explained decisions.
//!
//! A policy in YAML defines the limits:
//!
//! ```
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
//! assert!(refused.retry_after().is_some_and(|wait| wait.as_secs_ceil() <= 30));
//! # Ok::<(), tollgate::PolicyError>(())
//! ```
//!
//! A single limit needs no policy:
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
//! - [`Limiter`] checks requests against every limit that applies, and charges all of them or none.
//! - [`Decision`] is its answer, with the outcome of every limit.
//! - [`Gate`] is a single limit without a policy.
//! - [`Observer`] is notified of every decision.
//! - [`throttle`] serves callers that pass the numbers of the limit with each call.
//! - [`outage`] defines the behavior while a store gives no answer.
//!
//! The tower layer and the HTTP headers are in `tollgate-http`; wire protocols are in the crates of
//! the servers.

mod decision;
mod gate;
mod id;
mod limiter;
mod observer;
pub mod outage;
mod receipt;
pub mod throttle;

pub use decision::{Decision, Fate, LimitOutcome, advised_wait};
pub use gate::Gate;
pub use id::{DecisionId, ParseDecisionIdError};
pub use limiter::{DetachedPending, Limiter, Pending};
pub use observer::{Event, Observer, Settlement, Watch};
pub use outage::{BreakerState, DegradedDecisions, Health, OutageSettings};
pub use receipt::Receipt;
pub use tollgate_core::{
    Adjustment, AdvertisedRate, Algorithm, Amount, Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow,
    MAX_UNITS, Outcome, Overdraft, Owner, Quota, QuotaError, Rate, Rule, RuleId, SlidingLog, SlidingParts,
    SlidingWindow, Span, State, Timestamp, Verdict, Window,
};
pub use tollgate_policy::{
    BuildError, Call, Diagnostics as PolicyError, KeySource, Limit, LimitBuilder, ListEntry, Missing, Mode,
    Policy, Request,
};
pub use tollgate_store::{Clock, ManualClock, MemoryStore, Store, StoreError, SystemClock};

/// The policy file: parsing, diagnostics, schema, settings for surfaces.
pub use tollgate_policy as policy;
/// The store contract and the conformance suite that every store passes.
pub use tollgate_store as store;
