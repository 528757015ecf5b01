//! The store against a real server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "PostgreSQL keeps its own time, and is waited for")]

mod conformance;
mod differential;
mod hostile;
mod leasing;
mod nodes;
mod once;
mod outages;
mod servers;
mod sharing;
mod support;
