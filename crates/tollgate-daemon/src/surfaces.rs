//! The listeners, and the threads that serve them.
//!
//! Each worker is a thread with its own runtime and its own listeners for the gateway, the API, Envoy
//! and Redis clients, so threads do not share connections. The main thread handles signals and reloads.
//!
//! Requests are handled by `tollgate_gateway`, `tollgate_server` and `protocols`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::{io, thread};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Version};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate::SharedLimiter;
use tollgate_gateway::{Demo, Gateway, Http1Server, Target};
use tollgate_http::{Tarpit, WaitingRoom};
use tollgate_net::{BindError, Connection, Drain, Drainer, HttpServer, Sockets, Tls};
use tollgate_outbound::Outbound;
use tollgate_server::{Api, Caller};

use crate::addresses::{Addresses, ListenerAddress};
use crate::certificates::{CertificateWatch, Certificates};
use crate::configuration::{Configuration, Listen, Settings, Tokens};
use crate::failure::Failure;
use crate::http1_api::Http1Api;
use crate::io_error::{Attempt, reason};
use crate::load::EventLoops;
use crate::outbound_metrics::OutboundServices;
use crate::overload_metrics::ThrottleSource;
use crate::protocols::Protocols;
use crate::socket_activation::PassedSockets;
use crate::store::{AnyStore, in_full};

/// The time in which an idle connection may send one more request at the end.
const LAST_REQUEST_GRACE: Duration = Duration::from_secs(1);

/// The timeout of the body of an API request, the same as for its head.
pub(crate) const REQUEST_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of bytes that are read of an unused body.
const MAX_DISCARDED_BYTES: usize = 64 * 1024;

/// Returns the number of worker threads.
pub(crate) fn workers(settings: &Settings) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    settings.forwarding.workers.unwrap_or_else(cores)
}

/// The open listeners.
pub(crate) struct Surfaces {
    addresses: Addresses,
    drainer: Drainer,
    /// The demo upstream outlives the gateway, and is never drained.
    _demo: Drainer,
    /// Closed when the last worker has ended.
    workers: mpsc::Receiver<Infallible>,
    /// The time that running requests have to finish.
    patience: Duration,
    tarpit: Tarpit,
    waiting_room: WaitingRoom,
    throttle_counts: ThrottleSource,
    protocols: Protocols,
    event_loops: EventLoops,
    certificates: CertificateWatch,
    /// Warnings about listeners that could not be opened.
    warnings: Vec<String>,
    /// The listeners of the outbound gateway, by name.
    outbound: Vec<(String, SocketAddr)>,
    outbound_services: OutboundServices,
}

impl Surfaces {
    /// Opens the listeners, and starts to serve.
    pub(crate) fn open(
        configuration: &Configuration,
        limiter: &SharedLimiter<AnyStore>,
        api: &Api<AnyStore>,
        protocols: Protocols,
        tokens: &Tokens,
    ) -> Result<Self, Failure> {
        let settings = &configuration.settings;
        let (tls, certificates) = Certificates::load(settings, tokens)?;
        let workers = workers(settings);
        let event_loops = EventLoops::new(workers);
        let mut warnings = Vec::new();
        let mut passed = PassedSockets::take()?;
        let mut listen = |listen: &Listen, setting: &str| match passed.remove(listen, setting, workers)? {
            Some(sockets) => Ok(Some(sockets)),
            None => bind(listen, setting, workers, &mut warnings),
        };
        let gateway_sockets = listen(&settings.gateway, "listen.gateway")?;
        let api_sockets = listen(&settings.api, "listen.api")?;
        let rls_sockets = listen(&settings.rls_listen, "listen.rls")?;
        let resp_sockets = listen(&settings.resp_listen, "listen.resp")?;
        passed.finish()?;
        let outbound = bind_outbound(settings)?;
        let address = |sockets: &Option<Sockets>, tls: bool| {
            sockets.as_ref().map(|sockets| ListenerAddress { socket: sockets.address(), tls })
        };
        let addresses = Addresses {
            gateway: address(&gateway_sockets, settings.forwarding.tls.is_some()),
            api: address(&api_sockets, tls.api.is_some()),
            rls: address(&rls_sockets, tls.rls.is_some()),
            resp: address(&resp_sockets, tls.resp.is_some()),
        };

        let ((drainer, drain), (demo_drainer, demo_drain)) = (Drain::new(), Drain::new());
        let demo = match (&settings.forwarding.target, addresses.gateway) {
            (Target::Demo, Some(_)) => Some(start_demo(demo_drain)?),
            _ => None,
        };
        let gateway = Gateway::new(settings.forwarding.clone(), limiter.clone(), demo);
        let gateway = Arc::new(gateway.map_err(|error| Failure::new(in_full(&error)))?);
        let api = api.clone().with_waiting_room(gateway.waiting_room_until(&drain));
        protocols.hold_in(|room| gateway.until_drained(room, &drain));
        let (running, ended) = mpsc::channel(1);
        let outbound_services = outbound.iter().map(|(it, _)| it.clone()).collect();
        let outbound = start_outbound(outbound, &drain, &running)?;
        let mut sockets = [gateway_sockets, api_sockets, rls_sockets, resp_sockets].map(listeners);
        for number in 0..workers {
            let [for_gateway, for_api, for_rls, for_resp] = sockets.each_mut().map(Iterator::next);
            let (gateway, api, protocols) = (Arc::clone(&gateway), api.clone(), protocols.clone());
            let (tls, drain, running) = (tls.clone(), drain.clone(), running.clone());
            let http1 = settings.forwarding.http1;
            let event_loop = event_loops.clone().measure(number);
            start_thread(&format!("worker-{number}"), async move {
                // Ends with the runtime of this thread.
                tokio::spawn(event_loop);
                let ended = tokio::join!(
                    if_any(for_gateway, |listener| gateway.serve(listener, drain.clone())),
                    if_any(for_api, |listener| serve_api((api, http1), listener, tls.api, drain.clone())),
                    if_any(for_rls, |listener| protocols.serve_rls(listener, tls.rls, drain.clone())),
                    if_any(for_resp, |listener| protocols.serve_resp(listener, tls.resp, drain.clone())),
                );
                for error in [ended.0, ended.1, ended.2, ended.3].into_iter().filter_map(Result::err) {
                    tracing::error!(%error, "a worker has stopped");
                }
                drop(running);
            })?;
        }
        Ok(Self {
            addresses,
            drainer,
            _demo: demo_drainer,
            workers: ended,
            patience: settings.forwarding.drain,
            tarpit: gateway.tarpit().clone(),
            waiting_room: gateway.waiting_room().clone(),
            throttle_counts: Arc::new(move || gateway.throttle_counts()),
            protocols,
            event_loops,
            certificates,
            warnings,
            outbound,
            outbound_services,
        })
    }

    /// Returns warnings about listeners that could not be opened.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Uses certificates whose files have changed.
    pub(crate) fn poll_certificates(&mut self) {
        self.certificates.poll();
    }

    /// Returns the bound addresses.
    pub(crate) const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns the bound addresses of the outbound gateway, by name.
    pub(crate) fn outbound(&self) -> &[(String, SocketAddr)] {
        &self.outbound
    }

    /// Returns the services of the outbound gateway.
    pub(crate) fn outbound_services(&self) -> OutboundServices {
        Arc::clone(&self.outbound_services)
    }

    /// Returns the tarpit of the gateway.
    pub(crate) fn tarpit(&self) -> Tarpit {
        self.tarpit.clone()
    }

    /// Returns the waiting room of the gateway.
    pub(crate) fn waiting_room(&self) -> WaitingRoom {
        self.waiting_room.clone()
    }

    /// Returns the source of the counts of throttled upstreams.
    pub(crate) fn throttle_counts(&self) -> ThrottleSource {
        Arc::clone(&self.throttle_counts)
    }

    /// Returns the event loops of the workers.
    pub(crate) fn event_loops(&self) -> EventLoops {
        self.event_loops.clone()
    }

    /// Returns the time that running requests have to finish.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Waits until the last worker has ended.
    pub(crate) async fn ended(&mut self) {
        // No message is ever sent; only the end of the channel counts.
        let _ = self.workers.recv().await;
    }

    /// Stops accepting, and waits for running requests up to a deadline. Returns whether all finished.
    pub(crate) async fn drain(mut self) -> bool {
        self.protocols.drain();
        self.drainer.begin();
        let patience = self.patience;
        let ended = async {
            if timeout(LAST_REQUEST_GRACE.min(patience / 2), self.ended()).await.is_err() {
                self.drainer.close_idle();
                self.ended().await;
            }
        };
        let all_done = timeout(patience, ended).await.is_ok();
        if !all_done {
            let seconds = patience.as_secs_f32();
            tracing::warn!(
                "requests still ran after {seconds} s and were cut off (`gateway.timeouts.drain`)"
            );
        }
        all_done
    }
}

pub(crate) async fn serve_api(
    (api, http1): (Api<AnyStore>, Http1Server),
    listener: TcpListener,
    tls: Option<Tls>,
    drain: Drain,
) -> io::Result<()> {
    let hot = api.clone();
    let make_http1 = move |connection: &Connection| match http1 {
        Http1Server::Native => Some(Http1Api { api: hot.clone(), caller: caller(connection) }),
        Http1Server::Hyper => None,
    };
    let make = move |connection: &Connection| {
        let (api, caller) = (api.clone(), caller(connection));
        service_fn(move |request: Request<Incoming>| {
            let (api, caller) = (api.clone(), caller.clone());
            async move {
                let is_http2 = request.version() == Version::HTTP_2;
                let (parts, mut body) = request.into_parts();
                let may_hold = Api::<AnyStore>::may_hold(parts.uri.path());
                let request = Request::from_parts(parts, &mut body);
                let answer = if may_hold {
                    Some(api.answer(request, caller).await)
                } else {
                    in_time(pin!(api.answer(request, caller))).await
                };
                if is_http2 && !body.is_end_stream() {
                    let _late = timeout(LAST_REQUEST_GRACE, leave_unread(body)).await;
                }
                Ok::<_, Infallible>(answer.unwrap_or_else(Api::<AnyStore>::too_slow))
            }
        })
    };
    let server = HttpServer { tls, small_answers: true, ..HttpServer::default() };
    server.serve_http1(listener, (make, make_http1), drain).await
}

fn caller(connection: &Connection) -> Caller {
    let (certified, certificate) = (connection.certified, connection.certificate.clone());
    Caller { peer: connection.peer.ip(), certified, certificate }
}

/// Awaits a future for as long as a body may take.
async fn in_time<F: Future>(answering: Pin<&mut F>) -> Option<F::Output> {
    within(REQUEST_BODY_TIMEOUT, answering).await
}

/// Awaits a future with a timeout. It is usually ready at once, and then no clock is read.
pub(crate) async fn within<F: Future>(max_time: Duration, mut answering: Pin<&mut F>) -> Option<F::Output> {
    match poll_fn(|cx| Poll::Ready(answering.as_mut().poll(cx))).await {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => timeout(max_time, answering).await.ok(),
    }
}

/// Discards an unused body. An HTTP/2 stream that is answered before its request has ended is reset,
/// and some clients then lose the response.
async fn leave_unread(mut body: Incoming) {
    let mut left = MAX_DISCARDED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

/// Opens the listeners of the outbound gateway.
fn bind_outbound(settings: &Settings) -> Result<Vec<(Outbound, Sockets)>, Failure> {
    let mut bound = Vec::new();
    for (at, service) in settings.outbound.iter().enumerate() {
        let listen = Listen::On(service.listen.clone());
        let Some(sockets) = bind(&listen, &format!("outbound[{at}].listen"), 1, &mut Vec::new())? else {
            continue;
        };
        let outbound = Outbound::new(service.clone()).map_err(|error| Failure::new(in_full(&error)))?;
        bound.push((outbound, sockets));
    }
    Ok(bound)
}

/// Serves the outbound gateway, on one thread. Returns the bound addresses.
fn start_outbound(
    services: Vec<(Outbound, Sockets)>,
    drain: &Drain,
    running: &mpsc::Sender<Infallible>,
) -> Result<Vec<(String, SocketAddr)>, Failure> {
    let addresses =
        services.iter().map(|(it, sockets)| (it.settings().name.clone(), sockets.address())).collect();
    if services.is_empty() {
        return Ok(addresses);
    }
    let (drain, running) = (drain.clone(), running.clone());
    start_thread("outbound", async move {
        let mut tasks = Vec::new();
        for (outbound, sockets) in services {
            for listener in sockets.into_listeners() {
                let (outbound, drain) = (outbound.clone(), drain.clone());
                tasks.push(tokio::spawn(async move { outbound.serve(listener, drain).await }));
            }
        }
        for task in tasks {
            if let Ok(Err(error)) = task.await {
                tracing::error!(%error, "the outbound gateway has stopped");
            }
        }
        drop(running);
    })?;
    Ok(addresses)
}

fn start_demo(drain: Drain) -> Result<SocketAddr, Failure> {
    let demo = Demo::bind().map_err(|error| Failure::new(in_full(&error)))?;
    let address = demo.address();
    start_thread("demo", async move {
        if let Err(error) = demo.serve(drain).await {
            tracing::error!(%error, "the demo has stopped");
        }
    })?;
    Ok(address)
}

/// Runs a future on a new thread.
pub(crate) fn start_thread(
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(format_args!("cannot start a thread: {}", reason(&error, Attempt::Other)))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(work));
    thread.map(drop).map_err(failed)
}

/// Serves if there is a listener.
async fn if_any<F: Future<Output = io::Result<()>>>(
    listener: Option<TcpListener>,
    serve: impl FnOnce(TcpListener) -> F,
) -> io::Result<()> {
    match listener {
        Some(listener) => serve(listener).await,
        None => Ok(()),
    }
}

/// Opens a listener, or returns an error; a warning if the listener is on by default.
pub(crate) fn bind(
    listen: &Listen,
    setting: &str,
    workers: usize,
    warnings: &mut Vec<String>,
) -> Result<Option<Sockets>, Failure> {
    let Some(address) = listen.address() else { return Ok(None) };
    let error = match Sockets::bind(address, workers) {
        Ok(sockets) => return Ok(Some(sockets)),
        Err(error) => error,
    };
    if let Listen::IfFree(_) = listen {
        warnings.push(format!(
            "warning: {}, so `{setting}` is off\n  \
             = help: choose another with --set {setting}=HOST:PORT, or `off` to hear nothing of it\n",
            in_full(&error)
        ));
        return Ok(None);
    }
    let another = format!("choose another with --set {setting}=HOST:PORT; port 0 is any free one");
    let help = match &error {
        BindError::Taken(_) => format!("stop that program, or {another}"),
        BindError::Forbidden(_) => format!("ports below 1024 are for root: {another}"),
        _ => format!("is it an address of this machine? {another}"),
    };
    Err(Failure::with_help(in_full(&error), help))
}

/// Returns one listener for each worker, or none.
fn listeners(sockets: Option<Sockets>) -> std::vec::IntoIter<TcpListener> {
    sockets.map_or_else(Vec::new, Sockets::into_listeners).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_listener_whose_port_is_in_use_causes_a_warning() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let mut warnings = Vec::new();
        let found = bind(&Listen::IfFree(address.clone()), "listen.rls", 1, &mut warnings).unwrap();
        assert!(found.is_none());
        let said = format!("warning: {address} is in use by another program, so `listen.rls` is off\n");
        assert!(warnings.len() == 1 && warnings[0].starts_with(&said), "{warnings:?}");
        let error = bind(&Listen::On(address), "listen.rls", 1, &mut warnings).unwrap_err().to_string();
        assert!(error.contains("stop that program") && warnings.len() == 1, "{error}");
    }
}
