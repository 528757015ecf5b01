#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`algorithm`]: one module per algorithm, and the rules that all of them keep.
//! - [`Outcome`]: the answer of one limit about one key.
//! - [`varint`]: the LEB128 numbers of states and quotas as bytes.
//! - `vectors/*.json` in the source: the test vectors that every store and script must pass.
//!
//! The crate is `no_std` and needs `alloc`. Features:
//!
//! - `std` (default): the standard library. Only dependencies use it.
//! - `calendar`: windows of a calendar ([`Calendar::new`](Calendar)), with a time zone database.
//! - `vectors`: the test vectors as types.
//!
//! Keys and policies are in `tollgate_policy`, atomicity in `tollgate_store`, and decisions over
//! several limits in `tollgate`.
#![deny(clippy::float_arithmetic)]
#![warn(missing_debug_implementations)]
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;

mod advertised;
pub mod algorithm;
mod amount;
mod carry;
mod encoding;
mod moved;
mod outcome;
mod quota;
mod rate;
mod rule;
mod share;
mod time;
pub mod varint;
#[cfg(feature = "vectors")]
pub mod vectors;

pub use advertised::{AdvertisedRate, MAX_UNITS};
pub use algorithm::{
    Algorithm, Bucket, BucketState, Calendar, CalendarUnit, Concurrency, FixedWindow, FixedWindowState,
    Lease, Leases, Overdraft, Owner, Queue, SlidingLog, SlidingLogState, SlidingParts, SlidingPartsState,
    SlidingWindow, SlidingWindowState, TickBucket, Window,
};
pub use amount::{Adjustment, Amount, ChargeTimes, LeaseRequest};
pub use encoding::DecodeError;
pub use outcome::{Outcome, Verdict};
pub use quota::{Quota, State};
pub use rate::{QuotaError, Rate};
pub use rule::{FarRule, Predecessor, Rule, RuleId};
pub use time::{HumanExactSpan, HumanSpan, Span, Timestamp};
