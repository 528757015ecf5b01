#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`LimitLayer`] and [`Limit`]: the tower layer and its service.
//! - [`HttpRequest`], [`Identity`], [`Peer`]: an HTTP request as the policy reads it.
//! - [`client_address()`]: the client address behind proxies.
//! - [`RawRequest`], [`RawLimit`]: the same for a server that keeps heads in buffers, without a header map.
//! - [`write_headers`], [`RetryAfter`]: the rate-limit headers of a response.
//! - [`Rejection`]: the response to a refused request.
//! - [`SoftNotice`], [`soft_value`]: tell the inner service about soft thresholds.
//! - [`Tarpit`]: delays requests over a soft threshold.
//! - [`WaitingRoom`]: holds requests that a limit with a queue admits with a wait.
//! - [`Detached`]: holds slots for work that continues after the response.
//! - [`SlotGuard`]: holds slots for work that continues after the caller disconnects.
//! - [`NotForwarded`], [`OwnResponse`], [`Unmeasured`]: mark a response that the upstream did not make.
//!
//! Not here: sockets. This crate does no I/O.

#![warn(missing_debug_implementations)]

mod body;
mod client_address;
mod conclusion;
mod deferred;
mod future;
mod header_lines;
mod headers;
mod identity;
mod json_string;
mod layer;
mod meter;
mod peer;
mod places;
mod priority;
mod raw_answer;
mod raw_request;
mod rejection;
mod room_places;
mod service;
mod service_timer;
mod slot_guard;
mod soft;
mod tarpit;
mod throttled;
mod view;
mod waiting_room;

pub use body::LimitBody;
pub use client_address::{client_address, client_address_behind};
pub use deferred::{Detached, NotForwarded, OwnResponse, Unmeasured};
pub use future::LimitFuture;
pub use header_lines::HeaderLines;
pub use headers::{RetryAfter, write_headers};
pub use identity::Identity;
pub use json_string::{write_json_string, write_plain_json_string};
pub use layer::LimitLayer;
pub use meter::{MeteredParts, ResponsePart};
pub use peer::Peer;
pub use priority::{RequestPriority, TOLLGATE_PRIORITY, priority_value};
pub use raw_answer::{
    DelayedRequest, RawAdmission, RawConclusion, RawExchange, RawLimit, write_body, write_body_with,
    write_status,
};
pub use raw_request::RawRequest;
pub use rejection::{Rejection, promise};
pub use service::Limit;
pub use service_timer::ServiceTimer;
pub use slot_guard::SlotGuard;
pub use soft::{SoftNotice, TOLLGATE_SOFT, soft_limits, soft_value};
pub use tarpit::Tarpit;
pub use throttled::{AdmittedRequest, throttled_response};
pub use view::HttpRequest;
pub use waiting_room::{HeldRequest, HoldTime, ShuttingDown, WaitingRoom};
