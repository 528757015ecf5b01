//! Real programs for tests: started on free ports, stopped at the end.
//!
//! A program that is missing or does not come up fails the test; nothing is
//! skipped. Waiting has a deadline far above what any machine needs, and only
//! ever ends a test that has gone wrong.

#![allow(clippy::disallowed_methods, reason = "tests wait for other processes")]

mod finished;
mod program;
mod scratch;
mod tollgate;

pub use finished::Finished;
pub use program::{Program, free_port, wait_for_port};
pub use scratch::Scratch;
pub use tollgate::Tollgate;
