//! Tests of the client against a scripted server, over real connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod protocol;
mod server;
