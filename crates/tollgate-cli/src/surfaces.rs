//! Everything that listens, and the threads that serve it.
//!
//! Each worker is a thread with a runtime of its own, and serves the gateway and
//! the API on listeners of its own: no two threads meet over a connection. The
//! main thread stays free for signals and reloads.
//!
//! Not here: what a request means (`tollgate_gateway`, `tollgate_server`).

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Version};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate_gateway::{Demo, Gateway, Target};
use tollgate_http::{SharedLimiter, Tarpit};
use tollgate_net::{BindError, Connection, Drain, Drainer, HttpServer, Sockets, Tls};
use tollgate_server::{Api, Caller};

use crate::configuration::{Configuration, Listen, Tokens};
use crate::failure::Failure;
use crate::ready::Addresses;
use crate::store::{AnyStore, in_full};

/// How long connections between two requests may bring one more, at the end.
const ONE_MORE: Duration = Duration::from_secs(1);

/// How long the body of a question to the API may take to arrive: as long as its head.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// How much is read of a body that nobody wanted.
const UNREAD: usize = 64 * 1024;

/// Everything that listens.
pub(crate) struct Surfaces {
    addresses: Addresses,
    drainer: Drainer,
    /// The demo outlives the gateway that forwards to it: nobody tells it to stop.
    _demo: Drainer,
    /// Closed when the last worker has ended.
    workers: mpsc::Receiver<Infallible>,
    /// How long running requests may take to end.
    patience: Duration,
    tarpit: Tarpit,
}

impl Surfaces {
    /// Listens, and begins to serve.
    pub(crate) fn open(
        configuration: &Configuration,
        limiter: &SharedLimiter<AnyStore>,
        api: &Api<AnyStore>,
        tokens: &Tokens,
    ) -> Result<Self, Failure> {
        let settings = &configuration.settings;
        // Whoever has a token needs no certificate.
        let tls = settings.admin.tls.as_ref().map(|it| it.load(tokens.admin.is_some())).transpose()?;
        let (cores, wanted) = (thread::available_parallelism(), settings.forwarding.workers);
        let workers = wanted.unwrap_or_else(|| cores.map_or(1, usize::from));
        let gateway_sockets = bind(&settings.gateway, "listen.gateway", workers)?;
        let api_sockets = bind(&settings.api, "listen.api", workers)?;
        let address = |sockets: &Option<Sockets>| sockets.as_ref().map(Sockets::address);
        let addresses = Addresses {
            gateway: address(&gateway_sockets),
            api: address(&api_sockets),
            gateway_tls: settings.forwarding.tls.is_some(),
            api_tls: settings.admin.tls.is_some(),
        };

        let ((drainer, drain), (demo_drainer, demo_drain)) = (Drain::new(), Drain::new());
        let demo = match (&settings.forwarding.target, addresses.gateway) {
            (Target::Demo, Some(_)) => Some(start_demo(demo_drain)?),
            _ => None,
        };
        let gateway = Gateway::new(settings.forwarding.clone(), limiter.clone(), demo);
        let gateway = Arc::new(gateway.map_err(|error| Failure::new(in_full(&error)))?);
        let (running, ended) = mpsc::channel(1);
        let (gateway_sockets, api_sockets) = (each(gateway_sockets, workers), each(api_sockets, workers));
        for (number, listeners) in gateway_sockets.into_iter().zip(api_sockets).enumerate() {
            let (gateway, api, drain, running) =
                (Arc::clone(&gateway), api.clone(), drain.clone(), running.clone());
            let tls = tls.clone();
            start_thread(&format!("worker-{number}"), async move {
                let (for_gateway, for_api) = listeners;
                let forwarding = async {
                    match for_gateway {
                        Some(listener) => gateway.serve(listener, drain.clone()).await,
                        None => Ok(()),
                    }
                };
                let answering = async {
                    match for_api {
                        Some(listener) => serve_api(api, listener, tls, drain.clone()).await,
                        None => Ok(()),
                    }
                };
                let (forwarded, answered) = tokio::join!(forwarding, answering);
                for error in [forwarded.err(), answered.err()].into_iter().flatten() {
                    tracing::error!(%error, "a worker has stopped");
                }
                drop(running);
            })?;
        }
        let (patience, tarpit) = (settings.forwarding.drain, gateway.tarpit().clone());
        Ok(Self { addresses, drainer, _demo: demo_drainer, workers: ended, patience, tarpit })
    }

    /// Where they listen.
    pub(crate) const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Where requests are held back.
    pub(crate) fn tarpit(&self) -> Tarpit {
        self.tarpit.clone()
    }

    /// How long running requests may take to end.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Waits until the last worker has ended, of itself or drained.
    pub(crate) async fn ended(&mut self) {
        // Nobody sends: it is the end of the channel that counts.
        let _ = self.workers.recv().await;
    }

    /// Accepts nothing more and waits for what runs, up to a deadline. Whether all came to its end.
    pub(crate) async fn drain(mut self) -> bool {
        self.drainer.begin();
        let patience = self.patience;
        let ended = async {
            if timeout(ONE_MORE.min(patience / 2), self.ended()).await.is_err() {
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

async fn serve_api(
    api: Api<AnyStore>,
    listener: TcpListener,
    tls: Option<Tls>,
    drain: Drain,
) -> io::Result<()> {
    let make = move |connection: &Connection| {
        let (certified, certificate) = (connection.certified, connection.certificate.clone());
        let caller = Caller { peer: connection.peer.ip(), certified, certificate };
        let api = api.clone();
        service_fn(move |request: Request<Incoming>| {
            let (api, caller) = (api.clone(), caller.clone());
            async move {
                let is_http2 = request.version() == Version::HTTP_2;
                let (parts, mut body) = request.into_parts();
                // The timer is set only if the answer is not there at once.
                let request = Request::from_parts(parts, &mut body);
                let answer = timeout(ASKED_WITHIN, api.answer(request, caller)).await;
                if is_http2 && !body.is_end_stream() {
                    let _late = timeout(ONE_MORE, leave_unread(body)).await;
                }
                Ok::<_, Infallible>(answer.unwrap_or_else(|_late| Api::<AnyStore>::too_slow()))
            }
        })
    };
    HttpServer { tls, ..HttpServer::default() }.serve(listener, make, drain).await
}

/// Takes a body that nobody wanted out of the way. An HTTP/2 stream that is answered before
/// its request has ended is reset, and some clients then lose the answer that says why.
async fn leave_unread(mut body: Incoming) {
    let mut left = UNREAD;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
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

/// Runs this on a thread of its own, which ends with it or with the process.
fn start_thread(name: &str, work: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format_args!("cannot start a thread: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(work));
    thread.map(drop).map_err(failed)
}

fn bind(listen: &Listen, setting: &str, workers: usize) -> Result<Option<Sockets>, Failure> {
    let Some(address) = listen.address() else { return Ok(None) };
    let another = format!("choose another with --set {setting}=HOST:PORT; port 0 is any free one");
    Sockets::bind(address, workers).map(Some).map_err(|error| {
        let help = match &error {
            BindError::Taken(_) => format!("stop that program, or {another}"),
            BindError::Forbidden(_) => format!("ports below 1024 are for root: {another}"),
            _ => format!("is it an address of this machine? {another}"),
        };
        Failure::with_help(in_full(&error), help)
    })
}

/// A listener for each worker, or none for any.
fn each(sockets: Option<Sockets>, workers: usize) -> Vec<Option<TcpListener>> {
    match sockets {
        Some(sockets) => sockets.into_listeners().into_iter().map(Some).collect(),
        None => (0..workers).map(|_| None).collect(),
    }
}
