#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! - [`Resp`]: the server. [`RespSettings`] and [`Password`]: what it is told at the start.
//! - `frame`, `inline`, `reply`: bytes to commands, replies to bytes.
//! - `session`: what one connection knows, and the walk of a command.
//! - `throttle`, `limit_commands`, `handshake`, `info`: the commands. `transaction`: several as one.
//! - `pending`: commands of one pipeline that wait for a store, together.
//!
//! Not here: arithmetic (`tollgate_core`), sockets and draining (`tollgate_net`).

mod command;
mod connection;
mod frame;
mod handshake;
mod info;
mod inline;
mod limit_commands;
mod metrics;
mod pending;
mod reply;
mod server;
mod session;
mod settings;
mod throttle;
mod transaction;

pub use server::Resp;
pub use settings::{Password, RespSettings};
