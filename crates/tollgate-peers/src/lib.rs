#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! - [`PeerStore`]: the store. [`PeerSettings`]: the list of members.
//! - `table`: the owner of each partition. `membership`: the address of this node, and members behind
//!   a name.
//! - `node`: the keys that this node owns, and the calls of other nodes for them.
//! - `peer`, `link`, `resp`: another node, the connections to it, and the protocol on them.
//! - `wire`: calls and replies as bytes. `clock_offset`: the times in them.
//! - `reserve`: requests whose keys have several owners.
//!
//! Not here: the server side of the Redis protocol (`tollgate_resp`), arithmetic (`tollgate_core`).

#![warn(missing_debug_implementations)]

mod applied;
mod clock_offset;
mod failure;
mod link;
mod membership;
mod node;
mod peer;
mod reserve;
mod resp;
mod settings;
mod store;
mod table;
mod threads;
mod wire;

pub use membership::HereError;
pub use settings::{Address, DEFAULT_PORT, MAX_MEMBERS, PEER_USER, PeerSettings, SettingsError};
pub use store::{PeerCounters, PeerStore};
pub use wire::VERSION;
