//! HTTP on a listener: from an accepted socket to a surface's service.
//!
//! Not here: accepting (`accept`), the waiting of one connection (`conn_timer`), its bytes (`wire`).

mod answer;
mod connection;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};

use crate::accept::accept_all;
use crate::caps::Caps;
use crate::drain::Drain;
use crate::tls::Tls;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Who connected, or whom a trusted balancer connected for.
    pub peer: SocketAddr,
    /// Whether it came over TLS.
    pub secure: bool,
    /// Whether it has shown a certificate that is believed.
    pub certified: bool,
    /// Whom that certificate names, for people to read: its common name, or else its first
    /// alternative name. Printable, and at most 100 characters.
    pub certificate: Option<Arc<str>>,
}

/// Whether a peer may say whom it speaks for. Asked for every connection: it may change.
pub type Trusts = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// How connections are served.
#[derive(Clone, Default)]
pub struct HttpServer {
    /// What one of them may take.
    pub caps: Caps,
    /// Serves TLS if set.
    pub tls: Option<Tls>,
    /// Requires a PROXY header, and believes it from these peers.
    pub proxy_protocol: Option<Trusts>,
    /// Answers are small: copying a body behind its head is cheaper than telling the kernel
    /// of both.
    pub small_answers: bool,
}

/// What is the same for every connection.
struct Shared<Make> {
    server: HttpServer,
    make: Make,
    drain: Drain,
}

impl HttpServer {
    /// Serves every connection that arrives, each with a service made for it,
    /// until draining has ended: that is when the last connection has.
    ///
    /// The service is called without being asked whether it is ready.
    pub async fn serve<Make, S, B>(self, listener: StdListener, make: Make, drain: Drain) -> io::Result<()>
    where
        Make: Fn(&Connection) -> S + Send + Sync + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (connections, begun) = (self.caps.connections, drain.clone());
        let shared = Arc::new(Shared { server: self, make, drain });
        accept_all(listener, connections, begun, |stream, peer, slot| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { connection::serve(stream, peer, slot, &shared).await });
        })
        .await
    }
}
