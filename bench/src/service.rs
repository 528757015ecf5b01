//! Benchmarks Tollgate as a service, against throttlecrab-server and Redis.
//!
//! - [`contestant`]: the servers and how they are started.
//! - [`question`]: single requests and load generators, one file per protocol.
//! - [`trial`]: one verified measurement.
//! - [`idle`]: memory of connections.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Invariant: a number is reported only if the server limits, and has charged every request that the load counted.
//! [`trial`] fails the run otherwise.

pub mod contestant;
pub mod idle;
pub mod question;
pub mod report;
pub mod trial;

pub use self::contestant::{Contestant, Programs};
pub use self::question::{Limit, Question};
pub use self::report::ServiceReport;
