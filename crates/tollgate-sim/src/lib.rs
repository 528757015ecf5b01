//! Runs rate limit policies in virtual time: against access logs (replay) and against generated traffic (simulation).
//!
//! - [`log`] reads access logs and yields an [`Entry`] per request, in the order of their times.
//! - [`replay`] runs a log against one or several policies and reports the refused keys, the times of refusals, and
//!   the effect of other numbers.
//! - [`traffic`] generates requests of a given shape; [`simulate`] runs generated traffic, or a log, against several
//!   algorithms.
//! - [`fleet`] compares the ways in which nodes can share a limit; [`faults`] tries to break a fleet.
//! - [`callers`] compares the manners of clients that share a limit of a service.
//! - [`overload`] compares protections of a service against overload.
//! - [`distance`] measures how far a limit is from an exact sliding log with the same numbers.
//! - [`plot`] draws charts as SVG and for terminals. [`page`] renders the report of a replay as one HTML file.
//!
//! All decisions are made by the same limiter that serves requests, on the in-memory store, with a clock that follows
//! the log.
//!
//! Not here: files, sockets, clocks and arguments (`tollgate-cli`). This crate takes readers and returns reports.

pub mod callers;
pub mod distance;
mod entry;
mod epoch;
mod executor;
pub mod faults;
pub mod fleet;
pub mod log;
pub mod overload;
pub mod page;
pub mod plot;
pub mod replay;
mod sample;
mod sanitize;
pub mod simulate;
pub mod traffic;
mod waits;

pub use entry::Entry;
pub use waits::Waits;
