//! Reads configuration files of envoyproxy/ratelimit, and applies them as limits of a policy.
#![doc = include_str!("../README.md")]

mod apply;
mod combine;
mod compile;
mod config;
mod domains;
mod file_format;
mod leaf;
mod metadata;
mod name;
mod section;
mod tree;
mod unit;

pub use apply::DomainCache;
pub use combine::CombineError;
pub use compile::ApplyError;
pub use config::{Domain, EnvoyConfig, EnvoyFile};
pub use domains::{DescriptorMatch, Domains, PlacedLeaf};
pub use file_format::{Allowance, Descriptor, RESERVED_DOMAIN, RateLimit};
pub use leaf::Leaf;
pub use metadata::Metadata;
pub use unit::Unit;
