//! The store against real servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "Redis keeps its own time, and is waited for")]

mod conformance;
