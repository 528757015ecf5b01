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
//! - [`SoftNotice`], [`soft_value`]: what the service behind is told of soft thresholds.
//! - [`Tarpit`]: requests over a soft threshold are held back for a while.
//! - [`Detached`]: work that goes on after its answer, and its slots with it.
//! - [`SlotGuard`]: work that goes on although its caller has hung up, and its slots with it.
//! - [`NotForwarded`]: an answer to a request that the service behind never saw.
//!
//! Not here: sockets. Nothing in this crate opens, reads or waits for one.

mod body;
mod client_address;
mod deferred;
mod future;
mod headers;
mod identity;
mod layer;
mod meter;
mod peer;
mod rejection;
mod service;
mod shared;
mod slot_guard;
mod soft;
mod tarpit;
mod view;

pub use body::LimitBody;
pub use client_address::{client_address, client_address_behind};
pub use deferred::{Detached, NotForwarded};
pub use future::LimitFuture;
pub use headers::{RetryAfter, limiting, write_headers};
pub use identity::Identity;
pub use layer::LimitLayer;
pub use peer::Peer;
pub use rejection::{Rejection, promise};
pub use service::Limit;
pub use shared::SharedLimiter;
pub use slot_guard::SlotGuard;
pub use soft::{SoftNotice, TOLLGATE_SOFT, soft_limits, soft_value};
pub use tarpit::Tarpit;
pub use view::HttpRequest;
