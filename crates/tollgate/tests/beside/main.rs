//! What stands beside decisions and changes none: candidates, questions that charge
//! nothing, observers, soft thresholds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod candidates;
mod considering;
mod observing;
mod soft;
mod support;
