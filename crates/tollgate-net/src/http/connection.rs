//! Serves one connection from its start to its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::either::Either;

use super::answer::ConnectionService;
use super::{Connection, HttpServer, HttpService, Shared};
use crate::caps::Caps;
use crate::conn_timer::{ClientTimeout, ConnTimer, REST_AFTER, shortest};
use crate::drain::{Drain, Phase};
use crate::http1::{self, Http1End, Http1Surface};
use crate::http2::{self, GrpcSurface, Http2End};
use crate::keep_alive::keep_alive;
use crate::proxy_protocol;
use crate::subject::subject;
use crate::tls::Tls;
use crate::wire::{Transport, Wire};

/// The client preface of HTTP/2, to detect it without TLS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The interval of pings on a quiet HTTP/2 connection with requests in progress.
const PING_INTERVAL: std::time::Duration = std::time::Duration::from_secs(20);

/// The maximum number of bytes that are buffered for a slow HTTP/2 client.
const MAX_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// The minimum read buffer of hyper.
const MIN_READ_BUFFER_BYTES: usize = 8 * 1024;

/// A connection that is ready for HTTP.
struct OpenConnection {
    transport: Transport,
    ahead: Bytes,
    connection: Connection,
    http2: bool,
}

/// Serves a connection.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` keeps every argument twice, in each idle connection"
)]
pub(super) fn serve<Make, MakeHttp1, S, F, G>(
    stream: TcpStream,
    peer: SocketAddr,
    slot: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared<Make, MakeHttp1, G>>,
) -> impl Future<Output = ()> + Send
where
    Make: Fn(&Connection) -> S + Send + Sync + 'static,
    MakeHttp1: Fn(&Connection) -> Option<F> + Send + Sync + 'static,
    S: HttpService,
    F: Http1Surface,
    G: GrpcSurface,
{
    async move {
        let caps = &shared.server.caps;
        let mut drain = shared.drain.clone();
        let (mut wire, connection, conn_timer, http2) = {
            // Boxed, as the other stages of a connection: an idle connection stays small.
            let opening = Box::pin(timeout(caps.head, open(stream, peer, &shared.server)));
            let opened = tokio::select! {
                opened = opening => opened,
                () = drain.reached(Phase::Closing) => return,
            };
            let OpenConnection { transport, ahead, connection, http2 } = match opened {
                Ok(Ok(Some(opened))) => opened,
                Ok(Ok(None)) => return,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "connection refused"),
                Err(_late) => return tracing::debug!(%peer, "the handshake timed out"),
            };
            let conn_timer =
                if http2 { ConnTimer::of_frames() } else { ConnTimer::of_heads(shared.drain.ending()) };
            (Wire::new(transport, ahead, Arc::clone(&conn_timer), slot), connection, conn_timer, http2)
        };
        let service = |connection: &Connection| ConnectionService {
            service: (shared.make)(connection),
            conn_timer: Arc::clone(&conn_timer),
        };
        if http2 && let Some(surface) = &shared.grpc {
            let served = http2::serve(wire, Arc::clone(surface), &conn_timer, caps, &mut drain);
            return match Box::pin(served).await {
                Http2End::Closed => {}
                Http2End::Failed(error) => tracing::debug!(%peer, %error, "connection ended"),
                Http2End::Late(late) => log_end(peer, End::Late(late)),
            };
        }
        if http2 {
            let service = service(&connection);
            let mut connection = Box::pin(http2_builder(caps).serve_connection(TokioIo::new(wire), service));
            let close = hyper::server::conn::http2::Connection::graceful_shutdown;
            let ending = drain.reached(Phase::Draining);
            let end = Box::pin(drive(connection.as_mut(), close, &conn_timer, caps, false, ending)).await;
            return log_end(peer, end);
        }
        let surface = (shared.make_http1)(&connection);
        loop {
            if let Some(surface) = &surface {
                match http1::serve(&mut wire, surface, &conn_timer, caps, &mut drain).await {
                    Http1End::HandOver => {}
                    Http1End::Closed => return,
                    Http1End::Failed(error) => return tracing::debug!(%peer, %error, "connection ended"),
                    Http1End::Late(late) => return log_end(peer, End::Late(late)),
                }
            }
            let service = service(&connection);
            let served =
                serve_hyper(wire, service, &conn_timer, &shared.server, &mut drain, surface.is_some());
            wire = match Box::pin(served).await {
                Ok(resting) => resting,
                Err(end) => return log_end(peer, end),
            };
        }
    }
}

/// Serves HTTP/1.1 with hyper. hyper keeps two or more buffers for each connection, even if it is idle. A
/// resting connection drops hyper's state and only waits for the next byte, which starts a new one.
///
/// Returns a resting connection if it `may_return`, else how the connection ended.
async fn serve_hyper<S>(
    mut wire: Wire,
    mut service: ConnectionService<S>,
    conn_timer: &ConnTimer,
    server: &HttpServer,
    drain: &mut Drain,
    may_return: bool,
) -> Result<Wire, End>
where
    S: HttpService,
{
    let (mut may_rest, caps) = (true, &server.caps);
    wire.start_guard();
    loop {
        let connection = http1_builder(server).serve_connection(TokioIo::new(wire), service);
        let mut connection = Box::new(connection.with_upgrades());
        let close = hyper::server::conn::http1::UpgradeableConnection::graceful_shutdown;
        let ending = drain.reached(Phase::Closing);
        let end = drive(Pin::new(&mut *connection), close, conn_timer, caps, may_rest, ending).await;
        if !matches!(end, End::Rests | End::Late(ClientTimeout::Head)) {
            return Err(end);
        }
        // The parts are missing only after an upgrade, and then this is not reached.
        let Some(parts) = connection.into_parts() else { return Err(end) };
        (wire, service) = (parts.io.into_inner(), parts.service);
        if let End::Late(_) = end {
            let _ = timeout(caps.head, http1::send_request_timeout(&mut wire, http1::HEAD)).await;
            return Err(end);
        }
        may_rest = parts.read_buf.is_empty();
        if !may_rest {
            wire.put_back(parts.read_buf);
            continue;
        }
        if may_return {
            wire.stop_guard();
            return Ok(wire);
        }
        let woken = tokio::select! {
            woken = timeout(conn_timer.rest_left(caps), wire.more()) => woken.is_ok_and(|it| it.is_ok()),
            () = drain.reached(Phase::Closing) => false,
        };
        if !woken {
            let _ = wire.shutdown().await;
            return Err(End::Closed(Ok(())));
        }
    }
}

/// Reads the PROXY header and does the TLS handshake. `None`: the client closed the connection.
async fn open(
    mut stream: TcpStream,
    peer: SocketAddr,
    server: &HttpServer,
) -> io::Result<Option<OpenConnection>> {
    stream.set_nodelay(true)?;
    keep_alive(&stream)?;
    let mut connection =
        Connection { peer, secure: server.tls.is_some(), certified: false, certificate: None };
    if let Some(trusted) = &server.proxy_protocol {
        if !trusted(peer.ip()) {
            return Err(io::Error::other("this peer is not a trusted proxy (client.trusted_proxies)"));
        }
        connection.peer = Box::pin(proxy_protocol::read(&mut stream)).await?.unwrap_or(peer);
    }
    if let Some(tls) = &server.tls {
        // Boxed, as reading a PROXY header: a connection without TLS that has sent nothing stays small.
        return Box::pin(open_tls(stream, tls, connection)).await.map(Some);
    }
    // A connection that has sent nothing owns no buffer.
    stream.readable().await?;
    let mut ahead = BytesMut::with_capacity(1024);
    while ahead.len() < PREFACE.len() && PREFACE.starts_with(&ahead) {
        if stream.read_buf(&mut ahead).await? == 0 {
            return Ok(None);
        }
    }
    let http2 = ahead.starts_with(PREFACE);
    Ok(Some(OpenConnection { transport: Either::Left(stream), ahead: ahead.freeze(), connection, http2 }))
}

/// Does the TLS handshake.
async fn open_tls(stream: TcpStream, tls: &Tls, mut connection: Connection) -> io::Result<OpenConnection> {
    let stream = tls.acceptor().accept(stream).await?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    // rustls keeps certificates only after it has verified them.
    let shown = stream.get_ref().1.peer_certificates();
    connection.certified = shown.is_some();
    connection.certificate = shown.and_then(<[_]>::first).and_then(|it| subject(it)).map(Into::into);
    let transport = Either::Right(Box::new(stream));
    Ok(OpenConnection { transport, ahead: Bytes::new(), connection, http2 })
}

fn http1_builder(server: &HttpServer) -> hyper::server::conn::http1::Builder {
    let (caps, mut builder) = (&server.caps, hyper::server::conn::http1::Builder::new());
    if server.small_answers {
        builder.writev(false);
    }
    builder.max_header_size(caps.header_bytes).max_buf_size(caps.header_bytes.max(MIN_READ_BUFFER_BYTES));
    if caps.headers != Caps::default().headers {
        // Hyper's default has the same value and a faster path.
        builder.max_headers(caps.headers);
    }
    builder
}

fn http2_builder(caps: &Caps) -> hyper::server::conn::http2::Builder<TokioExecutor> {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(caps.streams)
        .max_header_list_size(u32::try_from(caps.header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// How a connection ended.
enum End {
    Closed(hyper::Result<()>),
    Late(ClientTimeout),
    /// The connection is idle, and its buffers can be released.
    Rests,
}

/// Runs a connection and watches its timeouts and the drain.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    close: fn(Pin<&mut C>),
    conn_timer: &ConnTimer,
    caps: &Caps,
    may_rest: bool,
    ending: impl Future<Output = ()>,
) -> End
where
    C: Future<Output = hyper::Result<()>>,
{
    let tick = if may_rest { shortest(caps).min(REST_AFTER) } else { shortest(caps) };
    let mut timer = pin!(sleep(tick));
    let mut ending = pin!(ending);
    let mut closing = false;
    std::future::poll_fn(|cx: &mut Context<'_>| {
        loop {
            if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                // A response body failed, so the bytes sent so far are incomplete.
                if end.as_ref().is_err_and(hyper::Error::is_user) {
                    conn_timer.cut();
                }
                return Poll::Ready(End::Closed(end));
            }
            if !closing && ending.as_mut().poll(cx).is_ready() {
                closing = true;
                close(connection.as_mut());
                continue;
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let wait = match conn_timer.late(caps) {
                Ok(_) if may_rest && !closing && conn_timer.is_resting() => return Poll::Ready(End::Rests),
                Ok(wait) => wait.min(tick),
                Err(ClientTimeout::Idle) if !closing => {
                    closing = true;
                    close(connection.as_mut());
                    shortest(caps)
                }
                Err(late) => return Poll::Ready(End::Late(late)),
            };
            timer.as_mut().reset(Instant::now() + wait);
        }
    })
    .await
}

fn log_end(peer: SocketAddr, end: End) {
    match end {
        End::Closed(Ok(())) | End::Rests => {}
        End::Closed(Err(error)) => tracing::debug!(%peer, %error, "connection ended"),
        End::Late(late) => tracing::debug!(%peer, ?late, "connection closed"),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http_body_util::Empty;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use tokio::net::TcpListener;

    use super::*;
    use crate::http1::{ExchangeEnd, Http1Client, RequestHead, Verdict};
    use crate::http2::NoGrpcSurface;

    /// A surface like that of the gateway: an address and references.
    struct Surface(#[expect(dead_code, reason = "its size counts")] [u64; 8]);

    impl Http1Surface for Surface {
        type Admitted = [u64; 2];

        fn decide(&self, _: &mut RequestHead<'_, '_>, _: &mut Vec<u8>) -> Verdict<Self::Admitted> {
            Verdict::HandOver
        }

        async fn forward(&self, _: Self::Admitted, _: &mut Http1Client<'_>) -> ExchangeEnd {
            ExchangeEnd::Close
        }
    }

    #[tokio::test]
    async fn an_idle_connection_is_small() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let answer =
            |_: Request<Incoming>| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) };
        let shared = Arc::new(Shared {
            server: HttpServer::default(),
            make: move |_: &Connection| service_fn(answer),
            make_http1: |_: &Connection| Some(Surface([0; 8])),
            grpc: None::<Arc<NoGrpcSurface>>,
            drain: Drain::new().1,
        });
        let opening = size_of_val(&timeout(Duration::ZERO, open(stream, peer, &shared.server)));
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let serving = size_of_val(&serve(stream, peer, None, Arc::clone(&shared)));
        // Features that other crates of a build enable in dependencies add some bytes.
        assert!(opening <= 512 && serving <= 1_120, "opening takes {opening} bytes, serving {serving}");
    }
}
