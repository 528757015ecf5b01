//! The store against real servers: one, three with sentinels, a cluster of six.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "Redis keeps its own time, and is waited for")]

mod conformance;
mod deny_cache;
mod differential;
mod doubt;
mod model;
mod owed;
mod questions;
mod servers;
mod sharing;
mod support;
