//! Sockets for Tollgate's surfaces: listeners, TLS, PROXY protocol, HTTP
//! connections with their caps and timeouts, and draining.
//!
//! A surface brings a service; what it gets here is the life of a connection:
//!
//! ```text
//! Sockets::bind ─► accept ─► PROXY header ─► TLS ─► HTTP/1.1 or HTTP/2 ─► the surface's service
//!                    │          (if required)  (if configured)   │ slow, oversized, malformed: closed here
//!                    └ Drain: stop accepting, finish what runs, close ┘
//! ```
//!
//! What is not HTTP brings a function instead, and gets streams of bytes ([`StreamServer`]).
//!
//! Not here: what a request means, and files: certificates come as bytes.

mod accept;
mod caps;
mod conn_timer;
mod drain;
mod http;
mod keep_alive;
mod proxy_protocol;
mod sockets;
mod stream;
mod subject;
mod tls;
mod wire;

pub use caps::Caps;
pub use drain::{Drain, Drainer};
pub use http::{Connection, HttpServer, Trusts};
pub use keep_alive::keep_alive;
pub use sockets::{BindError, Sockets};
pub use stream::{Stream, StreamServer};
pub use tls::{ClientCertificates, Tls, TlsError, client_tls};
