#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! - [`LimitLayer`] and [`Limit`]: the tower layer and its service.
//! - [`SharedLimiter`]: a limiter whose policy can be replaced while it serves.
//! - [`HttpRequest`], [`Identity`], [`Peer`]: a request as a policy sees it.
//! - [`client_address()`]: which of all the addresses is the client's.
//! - [`write_headers`], [`RetryAfter`]: what every limited answer says.
//! - [`Rejection`]: what a refused caller gets.
//! - [`Outliving`]: work that goes on after its answer, and its slots with it.
//!
//! Not here: sockets. Nothing in this crate opens, reads or waits for one.

mod body;
mod client_address;
mod future;
mod headers;
mod identity;
mod layer;
mod peer;
mod rejection;
mod service;
mod shared;
mod slots;
mod view;

pub use body::LimitBody;
pub use client_address::{client_address, client_address_behind};
pub use future::LimitFuture;
pub use headers::{RetryAfter, decider, write_headers};
pub use identity::Identity;
pub use layer::LimitLayer;
pub use peer::Peer;
pub use rejection::{Rejection, promise};
pub use service::Limit;
pub use shared::SharedLimiter;
pub use slots::Outliving;
pub use view::HttpRequest;
