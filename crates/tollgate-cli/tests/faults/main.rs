//! Limits during failures of Redis, on real servers under load.
//!
//! Each test causes one fault and checks the guarantees of the outage rules: no more is admitted than
//! limit and rule allow, no caller gets a 5xx, and the store decides again soon after it is back. Each
//! test writes a row for `docs/faults.md`, which `make faults` generates.
//!
//! The speed of the machine does not affect the result: the limit for recovery is two seconds in the
//! table and far more here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, and measure them")]

#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../service/client.rs"]
mod client;
mod harness;
#[path = "../service/region.rs"]
mod region;

mod access;
mod cascade;
mod clock;
mod cluster;
mod commands;
mod data;
mod death;
mod leased;
mod memory;
mod network;
mod peers;
mod regions;
mod scripts;
