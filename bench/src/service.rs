//! Tollgate as a service that others ask, against throttlecrab-server and Redis.
//!
//! - [`contestant`]: who is asked what, and how each is started.
//! - [`question`]: how to ask, once by hand and very often by a load generator. One file for a protocol.
//! - [`trial`]: one measurement, with its proof.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Invariant: a number is reported only if the server behind it limits at all, and has
//! charged every request that the load counted. Held by [`trial`], which fails the run otherwise.

pub mod contestant;
pub mod question;
pub mod report;
pub mod trial;

pub use self::contestant::{Contestant, Programs};
pub use self::question::{Limit, Question};
pub use self::report::ServiceReport;
