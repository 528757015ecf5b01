//! The arithmetic of Tollgate, and nothing else.
//!
//! A [`Quota`] is one limit's promise. Its [`step`](Quota::step) takes the state
//! of one key, what is asked, and the time, and returns what to answer and what
//! to remember. No I/O, no clock, no randomness, no floating point: the same
//! arguments give the same answer in memory, in Redis and in a replay of
//! yesterday's log.
//!
//! - [`algorithm`]: one file per algorithm, and the rules they all keep.
//! - [`Outcome`]: what one limit answers about one key.
//! - `vectors/*.json` beside the source: what every store and script is judged by.
//!
//! Not here: keys and policies (`tollgate_policy`), atomicity (`tollgate_store`),
//! several limits as one decision (`tollgate`).
#![deny(clippy::float_arithmetic)]

mod advertised;
pub mod algorithm;
mod amount;
mod carry;
mod encoding;
mod outcome;
mod quota;
mod rate;
mod rule;
mod time;
#[cfg(feature = "vectors")]
pub mod vectors;

pub use advertised::{AdvertisedRate, MAX_UNITS};
pub use algorithm::{
    Algorithm, Bucket, BucketState, Calendar, CalendarUnit, Concurrency, FixedWindow, FixedWindowState,
    Lease, Leases, Overdraft, Owner, SlidingLog, SlidingLogState, SlidingParts, SlidingPartsState,
    SlidingWindow, SlidingWindowState, TickBucket, Window,
};
pub use amount::{Adjustment, Amount};
pub use encoding::DecodeError;
pub use outcome::{Outcome, Verdict};
pub use quota::{Quota, State};
pub use rate::{QuotaError, Rate};
pub use rule::{Predecessor, Rule, RuleId};
pub use time::{HumanSpan, Span, Timestamp};
