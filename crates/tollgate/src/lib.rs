#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`Gate`] is a single limit without a policy, [`Admission`], [`Refusal`] and [`GatePermit`] are its
//!   answers.
//! - [`Limiter`] checks requests against every limit that applies, and charges all of them or none.
//! - [`Decision`] is its answer, with the outcome of every limit; [`Permit`] is an admitted request that
//!   releases its slots on drop.
//! - [`Observer`] is notified of every decision.
//! - [`throttle`] serves callers that pass the numbers of the limit with each call.
//! - [`outage`] defines the behavior while a store gives no answer.
//!
//! The tower layer and the HTTP headers are in `tollgate-http`; wire protocols are in the crates of
//! the servers.

#![warn(missing_debug_implementations)]

mod decision;
mod gate;
mod id;
mod limiter;
mod observer;
pub mod outage;
mod permit;
mod receipt;
pub mod throttle;
mod timer;

pub use decision::{Decision, Fate, LimitOutcome, advised_wait};
pub use gate::{Admission, Gate, GatePermit, Refusal, Snapshot};
pub use id::{DecisionId, ParseDecisionIdError};
pub use limiter::Limiter;
pub use observer::{Event, Observer, Settlement, Watch};
pub use outage::{BreakerState, DegradedDecisions, Health, OutageSettings};
pub use permit::Permit;
pub use receipt::Receipt;
pub use timer::{SleepFuture, Sleeper};
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
