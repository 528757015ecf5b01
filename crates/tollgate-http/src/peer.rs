//! The remote end of the connection.
//!
//! This crate opens no sockets. The server that accepts the connection provides the address as a
//! [`Peer`] in the request's extensions, or [`LimitLayer::with_peer`](crate::LimitLayer::with_peer)
//! reads it from the extensions of that server.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

/// The remote address of the connection, put into the request's extensions by the server.
///
/// ```
/// # use tollgate_http::Peer;
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Peer("203.0.113.9:4711".parse().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// Returns the address in a request's extensions, if the server put one there.
    pub(crate) fn of(parts: &Parts) -> Option<IpAddr> {
        parts.extensions.get::<Self>().map(|peer| peer.0.ip())
    }
}
