//! Envoy's rate limit service (RLS v3) over gRPC, on Tollgate's engine.
//!
//! - [`Rls`] answers `ShouldRateLimit`, throttlecrab's `Throttle`, health and reflection; and
//!   envoyproxy/ratelimit's `/json`.
//! - Domains of envoyproxy/ratelimit's files ([`tollgate_envoy`]) are decided as it decides them;
//!   all others by the policy's limits on descriptors, all of a request's descriptors or none.
//!
//! The messages are in `proto/`, with Envoy's names and numbers and only what is used. They are
//! read and written by hand (`wire`): a call costs a decision and little more. What they describe
//! is generated into `proto/descriptors.bin` for reflection, and the tests read and write by that.
//!
//! Not here: sockets. It is handed requests and hands back answers.

mod body;
mod counters;
mod decide;
mod grpc;
mod health;
mod json;
mod lossy_utf8;
mod native;
mod reflection;
mod request;
mod request_descriptor;
mod response;
mod response_headers;
mod service;
mod statistics;
mod throttle;
mod unit;
mod upstream;
mod wire;

pub use body::RlsBody;
pub use response_headers::Headers;
pub use service::{Rls, RlsSettings};
