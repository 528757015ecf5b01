//! gRPC over HTTP/2 on real sockets: against a general client, against the standard, and against frames that no
//! client should send.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod clients;
mod conformance;
mod frames;
mod hostile;
mod surface;
mod times;
