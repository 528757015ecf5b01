//! Tests of the leased store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]

mod bound;
mod conformance;
mod contract;
mod regions;
mod remote;
mod wire;
