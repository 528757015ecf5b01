#![doc = include_str!("../README.md")]

mod body;
mod outbound;
mod problem;
mod settings;

pub use outbound::{Outbound, StartError};
pub use settings::{Authorities, Credential, OutboundSettings};
pub use tollgate_client::Counts as OutboundCounts;
