//! Control loops against overload: how many concurrent requests a service can take, which share of
//! requests is worth an attempt, and how much of the least important traffic a node refuses.
//!
//! - [`adaptive`] learns a concurrency limit from latency.
//! - [`throttle`] refuses a share of requests to a service that rejects most of them.
//! - [`shedder`] sheds priority classes, the least important first.
//!
//! Everything here is arithmetic. Time, random numbers and measurements are arguments; there are no
//! clocks, locks, threads or I/O. `tollgate` counts requests in flight and calls these loops, and
//! `tollgate-gateway` throttles its upstreams.
#![warn(missing_debug_implementations)]

pub mod adaptive;
pub mod shedder;
pub mod throttle;
