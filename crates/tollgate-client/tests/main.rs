//! Tests of the client in virtual time: simulated servers, seeded latencies, no real waits.

#![allow(clippy::unwrap_used, clippy::panic, clippy::items_after_statements)]

mod hostile;
mod pacing;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retries;
mod servers;
#[cfg(feature = "shared")]
mod shared;
mod spans;
