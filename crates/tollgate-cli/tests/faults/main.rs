//! What happens to limits while Redis is broken, on real servers and under load.
//!
//! Each test breaks one thing, once, and holds what the outage rules promise: no more
//! is admitted than limit and rule allow, no caller gets a 5xx, and decisions are the
//! store's again soon after it is back. Each leaves a row for `docs/faults.md`, which
//! `make faults` writes.
//!
//! How fast the machine is decides nothing: the bar for recovery is two seconds in
//! the table and far more here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, and measure them")]

#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../service/client.rs"]
mod client;
mod harness;

mod access;
mod cascade;
mod clock;
mod cluster;
mod commands;
mod data;
mod death;
mod memory;
mod network;
mod scripts;
