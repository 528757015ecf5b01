//! The gateway between real sockets: requests, forwarded requests and responses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

/// The implementation of HTTP/1.1 that the gateways of these tests use. The target `gateway_hyper` runs the same tests
/// on hyper.
pub(crate) const HTTP1: &str = match env!("CARGO_CRATE_NAME").as_bytes() {
    b"gateway_hyper" => "hyper",
    _ => "native",
};

mod bodies;
mod conformance;
mod connections;
mod credentials;
mod crowds;
mod differential;
mod draining;
mod hangups;
mod heads;
mod hosts;
mod http2;
mod limits;
mod lines;
mod malformed;
mod mutations;
mod nginx;
mod overload;
mod parity;
mod paths;
mod pipelines;
mod priorities;
mod proxy_protocol;
mod recording;
mod remote_store;
mod resets;
mod setting_up;
mod settling;
mod slots;
mod slow_readers;
mod soft;
mod support;
mod timeouts;
mod tunnels;
mod upstreams;
mod waiting;
