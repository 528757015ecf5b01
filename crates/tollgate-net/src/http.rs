//! HTTP on a listener: from an accepted socket to a surface's service.
//!
//! Not here: the waiting of one connection (`pulse`), its bytes (`wire`).

mod answer;
mod connection;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caps::Caps;
use crate::drain::Drain;
use crate::tls::Tls;

/// How long accepting pauses when the process is out of file descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

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
        let listener = TcpListener::from_std(listener)?;
        let mut most = u32::try_from(self.caps.connections).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(most as usize));
        let mut begun = drain.clone();
        let shared = Arc::new(Shared { server: self, make, drain });
        let start = |(stream, peer): (TcpStream, SocketAddr), slot: Option<OwnedSemaphorePermit>| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { connection::serve(stream, peer, slot, &shared).await });
        };
        loop {
            tokio::select! {
                biased;
                () = begun.begun() => break,
                (accepted, slot) = accept(&listener, &room) => start(accepted, slot),
            }
        }
        // Whom the kernel has let in before we stopped, we have let in.
        let listener = listener.into_std()?;
        while let Some(accepted) = accept_waiting(&listener) {
            if room.available_permits() == 0 {
                room.add_permits(1);
                most = most.saturating_add(1);
            }
            start(accepted, Arc::clone(&room).try_acquire_owned().ok());
        }
        drop(listener);
        // All of the room is free again when the last connection has ended.
        drop(room.acquire_many(most).await);
        Ok(())
    }
}

/// The next connection, when there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> ((TcpStream, SocketAddr), Option<OwnedSemaphorePermit>) {
    // It is never closed, so there always is a permit in the end.
    let slot = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok(accepted) => return (accepted, slot),
            // Gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
            }
        }
    }
}

/// A connection that waits to be accepted, if any does. The kernel is asked: the
/// runtime may not have heard of it yet.
fn accept_waiting(listener: &StdListener) -> Option<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                return ready.ok().map(|stream| (stream, peer));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_none) => return None,
        }
    }
}
