//! An xDS client for limits in the format of envoyproxy/ratelimit.
#![doc = include_str!("../README.md")]

mod backoff;
mod client;
mod connection;
mod counters;
mod discovery;
mod metadata;
mod resource;
mod session;
mod settings;
mod snapshot;

pub use client::{Proposal, XdsClient};
pub use counters::{XdsCounters, XdsStatus};
pub use discovery::RESOURCE_TYPE_URL;
pub use settings::{DEFAULT_MAX_MESSAGE_BYTES, TlsSource, XdsServer, XdsSettings};
