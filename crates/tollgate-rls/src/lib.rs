//! Envoy's rate limit service (RLS v3) over gRPC, on Tollgate's engine.
//!
//! - [`Rls`] serves `ShouldRateLimit`, Kuadrant's `CheckRateLimit`, `Report`, `Reserve` and `Commit`,
//!   throttlecrab's `Throttle`, Envoy's external authorization, health and reflection, and the `/json` endpoint
//!   of envoyproxy/ratelimit.
//! - Domains of envoyproxy/ratelimit configuration files ([`tollgate_envoy`]) are decided with its
//!   semantics. Other domains are decided by the policy's limits on descriptors; all descriptors of
//!   a request are charged or none.
//!
//! The messages are in `proto/`, with Envoy's names and numbers, reduced to the fields that are
//! used. They are parsed and written by hand (`tollgate_grpc::wire`), so that a call costs little more than a
//! decision. `proto/descriptors.bin` is generated from them for reflection, and the tests encode
//! and decode with it.
//!
//! Not here: sockets. The crate maps requests to responses.

mod counters;
mod decide;
mod ext_authz;
#[doc(hidden)]
pub mod fuzz;
mod health;
mod held;
mod json;
mod kuadrant;
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

pub use response_headers::Headers;
pub use service::{Rls, RlsSettings, UnaryMethod};
pub use tollgate_grpc::GrpcBody;
