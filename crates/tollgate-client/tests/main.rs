//! Tests of the client in virtual time: simulated servers, seeded latencies, no real waits.

mod hostile;
mod pacing;
mod retries;
mod servers;
#[cfg(feature = "shared")]
mod shared;
