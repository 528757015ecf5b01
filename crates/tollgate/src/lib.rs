#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`Gate`] is a single limit without a policy, [`Admission`], [`Refusal`] and [`GatePermit`] are its
//!   answers.
//! - [`Limiter`] checks requests against every limit that applies, and charges all of them or none.
//! - [`SharedLimiter`] is a limiter whose policy can be replaced at runtime.
//! - [`Decision`] is its answer, with the outcome of every limit; [`Permit`] is an admitted request that
//!   releases its slots on drop; [`QueuePlace`] is an admitted request that waits in a queue.
//! - [`Observer`] is notified of every decision.
//! - [`throttle`] serves callers that pass the numbers of the limit with each call.
//! - [`NodeShedder`] refuses the least important requests while this node is overloaded.
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
#![warn(missing_debug_implementations)]

#[cfg(feature = "policy")]
mod adaptive;
#[cfg(feature = "policy")]
mod decision;
mod gate;
#[cfg(feature = "policy")]
mod id;
#[cfg(feature = "policy")]
mod limiter;
#[cfg(feature = "policy")]
mod line;
#[cfg(feature = "policy")]
mod node_shedder;
#[cfg(feature = "policy")]
mod observer;
#[cfg(feature = "policy")]
pub mod outage;
mod owners;
#[cfg(feature = "policy")]
mod permit;
#[cfg(feature = "policy")]
mod queue;
mod randomness;
#[cfg(feature = "policy")]
mod receipt;
#[cfg(feature = "policy")]
mod renewals;
#[cfg(feature = "policy")]
mod shared;
#[cfg(feature = "policy")]
mod shed;
#[cfg(feature = "policy")]
mod spawner;
#[cfg(feature = "policy")]
pub mod throttle;
mod timer;

#[cfg(feature = "policy")]
pub use adaptive::{AdaptiveSummary, AdaptiveView, Exceeded, InFlight, RequestOutcome};
#[cfg(feature = "policy")]
pub use decision::{Decision, Fate, HeldDecision, LimitOutcome, advised_wait, expected_wait};
pub use gate::{Admission, Gate, GatePermit, Refusal, Snapshot};
#[cfg(feature = "policy")]
pub use id::{DecisionId, ParseDecisionIdError};
#[cfg(feature = "policy")]
pub use limiter::{DetachedPending, HoldEnd, Limiter, Pending, PendingBatch, SlotWait};
#[cfg(feature = "policy")]
pub use node_shedder::{InFlightGuard, Measurement, NodeShedder, SignalReading, Signals};
#[cfg(feature = "policy")]
pub use observer::{Event, NotHeld, Observer, Settlement, Watch};
#[cfg(feature = "policy")]
pub use outage::{BreakerState, DegradedDecisions, Health, OutageSettings};
#[cfg(feature = "policy")]
pub use permit::Permit;
#[cfg(feature = "policy")]
pub use queue::QueuePlace;
#[cfg(feature = "policy")]
pub use receipt::{PackedReceipt, Receipt};
#[cfg(feature = "policy")]
pub use renewals::SlotRenewal;
#[cfg(feature = "policy")]
pub use shared::SharedLimiter;
#[cfg(feature = "policy")]
pub use shed::{AdaptiveShed, NodeShed, Shed, ShedCause, ThrottleShed};
#[cfg(feature = "policy")]
pub use spawner::Spawner;
pub use timer::{SleepFuture, Sleeper};
pub use tollgate_core::{
    Adjustment, AdvertisedRate, Algorithm, Amount, Bucket, Calendar, CalendarUnit, ChargeTimes, Concurrency,
    FixedWindow, MAX_UNITS, Outcome, Overdraft, Owner, Queue, Quota, QuotaError, Rate, Rule, RuleId,
    SlidingLog, SlidingParts, SlidingWindow, Span, State, Timestamp, Verdict, Window,
};
#[cfg(feature = "policy")]
pub use tollgate_overload::shedder::Level;
#[cfg(feature = "policy")]
pub use tollgate_policy::{
    BuildError, Call, Descriptor, Diagnostics as PolicyError, Input, KeySource, Limit, LimitBuilder,
    ListEntry, Missing, Mode, NodeShedSettings, Policy, PriorityClass, Request, Subject,
};
pub use tollgate_store::{Clock, ClockId, ManualClock, MemoryStore, Store, StoreError, SystemClock};

/// The policy: limits, keys, matching, the policy file with its diagnostics, settings for surfaces.
#[cfg(feature = "policy")]
pub use tollgate_policy as policy;
/// State in Redis: standalone, Sentinel and Cluster.
#[cfg(feature = "redis")]
pub use tollgate_redis as redis;
/// The store contract and the conformance suite that every store passes.
pub use tollgate_store as store;
