//! Compares algorithms on generated traffic or on a log.
//!
//! ```text
//! Flow (or log) ──arrival──► Contest: nodes decide ──answer──► Flow, which may send a retry
//!                               └─► counts, busiest window, series, distance from the exact log
//! ```
//!
//! Each algorithm is a policy with one limit, decided by the same limiter that serves requests, in virtual time. With
//! generated traffic, each algorithm has its own flow, because clients react to responses. A log is read once, and
//! all algorithms decide each line.
//!
//! [`Simulation`] works in steps, so that a caller can do other work in between.
//!
//! Not here: drawing (`plot`), arguments (`tollgate-cli`), the Lab (`tollgate-server`).

mod busiest;
mod contest;
mod contestant;
mod nodes;
mod on_log;
mod picture;
mod report;
mod run;
mod series;
mod size;
#[cfg(test)]
mod tests;
mod words;

pub use contestant::{About, Choice, Contestant, ContestantError, NotALength, SUB_WINDOWS, length};
pub use nodes::{MAX_NODES, Network, Routing, Stores};
pub use on_log::OnLog;
pub use picture::{arrivals, window};
pub use report::{AlgorithmReport, Round, SeriesReport, TrafficReport};
pub use run::{Question, QuestionError, Simulation};
