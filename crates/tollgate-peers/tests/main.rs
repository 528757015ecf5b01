//! Several nodes in one process, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod calls;
mod conformance;
mod faults;
mod moving;
mod support;
