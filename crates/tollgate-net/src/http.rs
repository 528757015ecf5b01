//! An HTTP server on a listener: from an accepted socket to the service of a surface.
//!
//! Not here: accepting (`accept`), the timeouts of a connection (`conn_timer`), its bytes (`wire`).

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
use crate::http1::{Http1Surface, NoHttp1Surface};
use crate::http2::{GrpcSurface, NoGrpcSurface};
use crate::tls::Tls;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The remote end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The peer address, or the client address that a trusted balancer sent.
    pub peer: SocketAddr,
    /// Whether the connection uses TLS.
    pub secure: bool,
    /// Whether the client presented a trusted certificate.
    pub certified: bool,
    /// The name in that certificate for humans: its common name, or else its first alternative
    /// name. It is printable and has at most 100 characters.
    pub certificate: Option<Arc<str>>,
}

/// Whether a peer is trusted to name the client it forwards for. Called for every connection,
/// because the answer may change.
pub type Trusts = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// A service that answers every request of a connection, from any task.
///
/// Every such service of hyper is one.
pub trait HttpService:
    Service<Request<Incoming>, Response = Response<Self::Body>, Error = Infallible, Future: Send + 'static>
    + Send
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send + 'static>
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
}

/// The configuration of an HTTP server.
#[derive(Clone, Default)]
pub struct HttpServer {
    /// The caps and timeouts of each connection.
    pub caps: Caps,
    /// Serves TLS if set.
    pub tls: Option<Tls>,
    /// Requires a PROXY header from peers that this function trusts.
    pub proxy_protocol: Option<Trusts>,
    /// Whether responses are small: copying the body after its head is then cheaper than a vectored
    /// write.
    pub small_answers: bool,
}

/// The state that all connections share.
struct Shared<Make, MakeHttp1, G> {
    server: HttpServer,
    make: Make,
    /// Creates the surface that serves plain HTTP/1.1 requests without hyper.
    make_http1: MakeHttp1,
    /// The surface that serves HTTP/2 without hyper.
    grpc: Option<Arc<G>>,
    drain: Drain,
}

impl HttpServer {
    /// Serves all connections of a listener, each with a service that `make` creates, until
    /// draining has ended and the last connection has closed.
    ///
    /// The service is called without polling its readiness.
    pub async fn serve<Make, S>(self, listener: StdListener, make: Make, drain: Drain) -> io::Result<()>
    where
        Make: Fn(&Connection) -> S + Send + Sync + 'static,
        S: HttpService,
    {
        self.serve_http1(listener, (make, |_: &Connection| None::<NoHttp1Surface>), drain).await
    }

    /// Serves as [`serve`](Self::serve) does. Plain HTTP/1.1 requests are served by the surface that the second function
    /// creates for a connection, all others by the service. Without a surface, hyper serves every request.
    pub async fn serve_http1<Make, MakeHttp1, S, F>(
        self,
        listener: StdListener,
        (make, make_http1): (Make, MakeHttp1),
        drain: Drain,
    ) -> io::Result<()>
    where
        Make: Fn(&Connection) -> S + Send + Sync + 'static,
        MakeHttp1: Fn(&Connection) -> Option<F> + Send + Sync + 'static,
        S: HttpService,
        F: Http1Surface,
    {
        self.serve_all(listener, (make, make_http1), None::<Arc<NoGrpcSurface>>, drain).await
    }

    /// Serves as [`serve`](Self::serve) does. HTTP/2 is served by the gRPC surface, without hyper.
    pub async fn serve_grpc<Make, S, G>(
        self,
        listener: StdListener,
        make: Make,
        surface: Arc<G>,
        drain: Drain,
    ) -> io::Result<()>
    where
        Make: Fn(&Connection) -> S + Send + Sync + 'static,
        S: HttpService,
        G: GrpcSurface,
    {
        let make = (make, |_: &Connection| None::<NoHttp1Surface>);
        self.serve_all(listener, make, Some(surface), drain).await
    }

    async fn serve_all<Make, MakeHttp1, S, F, G>(
        self,
        listener: StdListener,
        (make, make_http1): (Make, MakeHttp1),
        grpc: Option<Arc<G>>,
        drain: Drain,
    ) -> io::Result<()>
    where
        Make: Fn(&Connection) -> S + Send + Sync + 'static,
        MakeHttp1: Fn(&Connection) -> Option<F> + Send + Sync + 'static,
        S: HttpService,
        F: Http1Surface,
        G: GrpcSurface,
    {
        let (connections, accepting) = (self.caps.connections, drain.clone());
        let shared = Arc::new(Shared { server: self, make, make_http1, grpc, drain });
        accept_all(listener, connections, accepting, |stream, peer, slot| {
            tokio::spawn(connection::serve(stream, peer, slot, Arc::clone(&shared)));
        })
        .await
    }
}
