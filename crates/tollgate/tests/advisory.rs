//! Features that do not change decisions: candidates, `consider`, observers, soft thresholds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod candidates;
mod consider;
mod observer;
mod soft;
mod support;
