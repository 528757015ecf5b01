//! The tower layer over a real socket, with a manual clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod layer;
mod outage;
mod support;
