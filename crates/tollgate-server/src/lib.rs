#![doc = include_str!("../API.md")]
//!
//! # Rooms
//!
//! - [`Api`]: takes a request, gives an answer, never fails.
//! - [`Access`]: who may ask. [`Status`]: what `/readyz` tells.
//! - [`openapi()`]: the API, described for machines.
//!
//! Not here: sockets. It is handed requests and hands back answers.

mod access;
mod api;
mod auth;
mod body;
mod check;
mod json;
mod limits;
mod metrics;
mod named;
mod openapi;
mod problem;
mod receipts;
mod reply;
mod route;
mod settle;
mod status;
mod told;

pub use access::Access;
pub use api::Api;
pub use openapi::openapi;
pub use receipts::KEPT_DECISIONS;
pub use status::Status;
