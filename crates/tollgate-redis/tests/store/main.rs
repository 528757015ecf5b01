//! The store against real servers: a single server, Sentinel, and a cluster of six nodes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "Redis keeps its own time, and is waited for")]

mod conformance;
mod deny_cache;
mod differential;
mod examples;
mod late_replies;
mod leasing;
mod lines;
mod model;
mod node_board;
mod once;
mod outage_charges;
mod questions;
mod servers;
mod sharing;
mod shedding;
mod support;
mod versions;
