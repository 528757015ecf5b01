#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! - [`Resp`]: the server. [`RespSettings`] and [`Password`]: what it is told at the start.
//! - `frame`, `inline`, `reply`: bytes to commands, replies to bytes.
//! - `session`: what one connection knows, and the walk of a command.
//! - `throttling`, `named`, `connecting`, `telling`: the commands. `transaction`: several as one.
//! - `waiting`: commands of one pipeline that wait for a store, together.
//!
//! Not here: arithmetic (`tollgate_core`), sockets and draining (`tollgate_net`).

mod command;
mod connecting;
mod connection;
mod frame;
mod inline;
mod metrics;
mod named;
mod reply;
mod server;
mod session;
mod settings;
mod telling;
mod throttling;
mod transaction;
mod waiting;

pub use server::Resp;
pub use settings::{Password, RespSettings};
