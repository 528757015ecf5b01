#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! - [`Resp`]: the server. [`RespSettings`] and [`Password`]: its settings.
//! - `frame`, `inline`, `reply`: parse commands and write replies.
//! - `session`: the state of one connection, and the execution of a command.
//! - `throttle`, `limit_commands`, `peer_call`, `handshake`, `info`: the commands. `transaction`:
//!   `MULTI` and `EXEC`.
//! - `pending`: pipelined commands that wait for a store together. `repeat`: pipelined commands that differ in their key.
//! - `connection`, `input`: reads and writes.
//!
//! Not here: arithmetic (`tollgate_core`), sockets and draining (`tollgate_net`).

mod command;
mod connection;
mod exchange;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod info;
mod inline;
mod input;
mod limit_commands;
mod metrics;
mod peer_call;
mod pending;
mod repeat;
mod reply;
mod server;
mod session;
mod settings;
mod throttle;
mod transaction;

pub use peer_call::{PeerCalls, PeerReply, PeerSettings};
pub use server::Resp;
pub use settings::{Password, RespSettings};
