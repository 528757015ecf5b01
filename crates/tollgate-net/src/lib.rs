//! Sockets for Tollgate's surfaces: listeners, TLS, PROXY protocol, HTTP connections with their
//! caps and timeouts, and draining.
//!
//! A surface provides a service; this crate manages the connections:
//!
//! ```text
//! Sockets::bind ─► accept ─► PROXY header ─► TLS ─► HTTP/1.1 or HTTP/2 ─► the surface's service
//!                    │          (if required)  (if configured)   │ slow, oversized, malformed: closed here
//!                    └ Drain: stop accepting, finish running requests, close ┘
//! ```
//!
//! A surface with another protocol provides a function instead, which gets byte streams
//! ([`StreamServer`]). [`HttpClient`] sends JSON to one other service; [`Connector`] opens the connections of a pool.
//!
//! Not here: the meaning of requests, and files: certificates are passed as bytes.

mod accept;
mod caps;
mod conn_timer;
mod connector;
mod drain;
mod http;
pub mod http1;
pub mod http2;
mod http_client;
mod http_url;
mod keep_alive;
mod proxy_protocol;
mod sockets;
mod stream;
mod subject;
mod tls;
mod wire;

pub use caps::Caps;
pub use connector::{Connector, UpstreamStream};
pub use drain::{Drain, Drainer};
pub use http::{Connection, HttpServer, HttpService, Trusts};
pub use http_client::{ClientRequest, ClientResponse, HttpClient, HttpClientError};
pub use http_url::{HttpUrl, HttpUrlError};
pub use keep_alive::keep_alive;
pub use sockets::{BindError, Sockets, is_tcp_listener};
pub use stream::{Stream, StreamServer};
pub use tls::{ClientCertificates, Tls, TlsError, client_tls, mutual_tls, system_tls};
