//! The server on real sockets: commands, protocol errors, misbehaving connections, a store in
//! Redis.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "sockets are waited for, and not for ever")]

mod bounds;
mod dialects;
mod handshake;
mod limit_commands;
mod over_redis;
mod queues;
mod support;
mod transactions;
