#![doc = include_str!("../README.md")]

mod body;
mod connect;
mod outbound;
mod problem;
mod settings;

pub use outbound::{Outbound, StartError};
pub use settings::OutboundSettings;
