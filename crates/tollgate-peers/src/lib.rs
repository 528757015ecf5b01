#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! - [`PeerStore`]: the store. [`PeerSettings`]: the list of members.
//! - `table`: the place of each partition. `membership`: the address of this node, and members behind
//!   a name.
//! - `ownership`: the holder of each partition, and the changes of holders. `claims`: how nodes agree on them.
//! - `node`: the keys that this node holds, and the calls of other nodes for them. `carry`: states that
//!   are copied from earlier holders.
//! - `peer`, `link`, `resp`: another node, the connections to it, and the protocol on them. `calls`: calls that are
//!   sent together.
//! - `wire`: calls and replies as bytes. `clock_offset`: the times in them.
//! - `reserve`: requests whose keys have several owners. `forward`: many requests at the same time.
//!
//! Not here: the server side of the Redis protocol (`tollgate_resp`), arithmetic (`tollgate_core`).

#![warn(missing_debug_implementations)]

mod applied;
mod calls;
mod carry;
mod claims;
mod clock_offset;
mod failure;
mod forward;
mod link;
mod membership;
mod node;
mod ownership;
mod peer;
mod reserve;
mod resp;
mod settings;
mod store;
mod table;
mod threads;
mod wire;

pub use membership::HereError;
pub use node::Served;
pub use settings::{
    Address, DEFAULT_PORT, MAX_MEMBERS, PEER_USER, PeerSettings, SettingsError, parse_address,
};
pub use store::{PeerCounters, PeerStore};
pub use wire::VERSION;
