//! Several nodes in one process, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "nodes over real sockets keep real time")]

mod calls;
mod conformance;
mod faults;
mod moving;
mod support;
