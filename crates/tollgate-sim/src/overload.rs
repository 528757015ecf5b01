//! Compares protections of one service against overload, in virtual time.
//!
//! ```text
//! Callers ──attempt──► Admission: the limiter decides ──► Service: a queue, workers ──► answered
//!    ▲                      │ refused, or waits in line           │ queue full              │
//!    └──── retry, if the shape has retries ◄── failed ◄───────────┴── later than the timeout ┘
//! ```
//!
//! A [`Scenario`] says how the service is overloaded ([`Shape`]) and which [`Protection`]s are compared. Each protection
//! is a policy, decided by the same limiter that serves requests: learned limits, slots with a queue and rate limits
//! are the real ones, on a virtual clock. The service and its callers are a model. All protections meet the same calls.
//!
//! The model: workers that take calls from a first-in, first-out queue; a service time that varies; a queue for four
//! seconds of work, beyond which connections are refused; callers that give up after one second. The service does not
//! notice that a caller has left, and works on its call nevertheless.
//!
//! [`OverloadRun`] works in steps, so that a caller can do other work in between.
//!
//! Not here: drawing (`plot`), arguments (`tollgate-cli`), the Lab (`tollgate-server`).

mod admission;
mod callers;
mod event;
mod picture;
mod protection;
mod recovery;
mod report;
mod run;
mod scenario;
mod service;
mod shape;
mod tally;
#[cfg(test)]
mod tests;
mod words;

pub use picture::{critical, goodput, latency};
pub use protection::Protection;
pub use report::{GroupReport, OverloadReport, OverloadSeries, ProtectionReport, RetryReport, ShareReport};
pub use run::OverloadRun;
pub use scenario::{MAX_DURATION, MAX_LOAD, MAX_SERVICE_TIME, MAX_WORKERS, Scenario, ScenarioError};
pub use shape::Shape;

/// The time after which a caller gives up.
pub const TIMEOUT: tollgate::Span = tollgate::Span::from_secs(1);
