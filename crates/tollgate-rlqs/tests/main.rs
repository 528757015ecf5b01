//! Tests of the quota service: arithmetic, simulations in virtual time, and the wire.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod bound;
mod calls;
mod division;
mod fleet;
mod nodes;
