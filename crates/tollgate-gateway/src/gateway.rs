//! The gateway: the state that all workers share, and serving on one worker.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{MemoryStore, Mode, Policy, PriorityClass, SharedLimiter, Store};
use tollgate_http::{
    HoldTime, Limit, LimitBody, LimitLayer, RawLimit, ShuttingDown, TOLLGATE_PRIORITY, Tarpit, WaitingRoom,
    throttled_response,
};
use tollgate_net::{Connection, Drain, HttpServer, Tls, TlsError, Trusts};
use tower_layer::Layer;

use crate::body::GatewayBody;
use crate::connect::Connector;
use crate::detached::DetachedRequests;
use crate::forward::{Forward, RefuseThrottled, StripHeaders, Worker};
use crate::head::{self, Caller};
use crate::http1::{Http1Gateway, Http1Shared, RawPool};
use crate::override_headers::OverrideHeaders;
use crate::pool::Pool;
use crate::settings::{GatewaySettings, Http1Server, Target};
use crate::throttle::{ThrottleClass, ThrottleCounts};
use crate::upstream::{Origin, Protocol, Upstreams};

/// How long a stopping worker waits for a remote store to release slots.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time before the end of a drain at which requests that still wait for a slot are answered: the answers have to be
/// written before the connections are closed. A tenth of a drain that is shorter than ten seconds.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(1);

/// The reason why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A file that the settings name cannot be read.
    #[error("cannot read {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// The certificate or its key is invalid.
    #[error("cannot serve TLS with {}", .0.display())]
    Tls(PathBuf, #[source] TlsError),
    /// The CA certificates for upstreams are invalid.
    #[error("cannot use {} to check upstreams", .0.display())]
    Authorities(PathBuf, #[source] rustls::Error),
    /// PROXY headers are enabled without trusted proxies: any peer could claim any client address.
    #[error(
        "`gateway.proxy_protocol` needs `client.trusted_proxies`: list the balancers that may say whom they speak for"
    )]
    NobodyTrusted,
}

/// A reverse proxy behind a limiter, shared by all workers.
pub struct Gateway<S = MemoryStore> {
    settings: GatewaySettings,
    limiter: SharedLimiter<S>,
    upstreams: Arc<Upstreams>,
    connector: Connector,
    server: HttpServer,
    tarpit: Tarpit,
    waiting_room: WaitingRoom,
    detached: Arc<DetachedRequests>,
}

impl<S: Store> Gateway<S> {
    /// Creates a gateway behind this limiter. `demo` is the address of the demo service, if the
    /// settings ask for it.
    pub fn new(
        settings: GatewaySettings,
        limiter: SharedLimiter<S>,
        demo: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        let origins = match (&settings.target, demo) {
            (Target::Upstreams(origins), _) => origins.clone(),
            (Target::Demo, Some(demo)) => {
                vec![Origin {
                    host: demo.ip().to_string().into(),
                    port: demo.port(),
                    protocol: Protocol::Plain,
                }]
            }
            (Target::Demo, None) => Vec::new(),
        };
        let upstreams = Upstreams::new(
            origins,
            (settings.eject_after, settings.eject_for),
            settings.throttle.map(|it| it.settings),
        );
        let authorities = settings.upstream_ca.as_deref().map(|path| Ok((path, read(path)?))).transpose()?;
        let connector =
            Connector::new(authorities.as_ref().map(|it| &*it.1), settings.connect).map_err(|error| {
                StartError::Authorities(settings.upstream_ca.clone().unwrap_or_default(), error)
            })?;
        let tls = settings.tls.as_ref().map(|(certificate, key)| {
            let (chain, secret) = (read(certificate)?, read(key)?);
            Tls::from_pem(&chain, &secret).map_err(|error| match error {
                TlsError::Key => StartError::Tls(key.clone(), error),
                _ => StartError::Tls(certificate.clone(), error),
            })
        });
        if settings.proxy_protocol && limiter.load().policy().client().trusted_proxies.is_empty() {
            return Err(StartError::NobodyTrusted);
        }
        let proxy_protocol = settings.proxy_protocol.then(|| trusted_by(&limiter));
        let (caps, tls) = (settings.caps.clone(), tls.transpose()?);
        let server = HttpServer { caps, tls, proxy_protocol, ..HttpServer::default() };
        let tarpit = Tarpit::new(settings.tarpit, sleep);
        let waiting_room = WaitingRoom::new(settings.waiting, sleep);
        let (upstreams, detached) = (Arc::new(upstreams), DetachedRequests::new(settings.detached));
        Ok(Self { settings, limiter, upstreams, connector, server, tarpit, waiting_room, detached })
    }

    /// Returns the URLs of the upstreams.
    pub fn upstreams(&self) -> Vec<String> {
        self.upstreams.origins().map(ToString::to_string).collect()
    }

    /// Returns the throttling of each upstream, if it is on.
    pub fn throttle_counts(&self) -> Vec<ThrottleCounts> {
        self.upstreams.throttle_counts()
    }

    /// Returns the tarpit, which counts delayed requests.
    pub const fn tarpit(&self) -> &Tarpit {
        &self.tarpit
    }

    /// Returns the waiting room, which counts the requests that wait in the queues of their limits.
    pub const fn waiting_room(&self) -> &WaitingRoom {
        &self.waiting_room
    }

    /// Returns the waiting room for surfaces that are drained. A request whose turn in a queue comes within the time
    /// of the drain is served. Any other is answered when draining starts, because it would be aborted. A request that
    /// waits for a slot may get it at any moment, so it waits as long as the drain permits, and is answered then.
    pub fn waiting_room_until(&self, drain: &Drain) -> WaitingRoom {
        self.until_drained(&self.waiting_room, drain)
    }

    /// Returns a waiting room of another surface with the sleep of
    /// [`waiting_room_until`](Self::waiting_room_until).
    pub fn until_drained(&self, room: &WaitingRoom, drain: &Drain) -> WaitingRoom {
        let (drain, patience) = (drain.clone(), self.settings.drain);
        room.sleeping(move |time| {
            let mut drain = drain.clone();
            // The wait starts now, and not when the request is polled.
            let mut sleeping = Box::pin(sleep(time.max()));
            async move {
                tokio::select! {
                    () = &mut sleeping => return Ok(()),
                    () = drain.started() => {}
                }
                let left = sleeping.deadline().saturating_duration_since(Instant::now());
                match time {
                    HoldTime::Exactly(_) if left >= drain.time_left(patience) => return Err(ShuttingDown),
                    HoldTime::AtMost(_) => {
                        let answer_time = MAX_ANSWER_TIME.min(patience / 10);
                        let time_left = drain.time_left(patience).saturating_sub(answer_time);
                        if left >= time_left {
                            sleep(time_left).await;
                            return Err(ShuttingDown);
                        }
                    }
                    HoldTime::Exactly(_) => {}
                }
                sleeping.await;
                Ok(())
            }
        })
    }

    /// Serves on one worker until draining has ended.
    pub async fn serve(&self, listener: TcpListener, drain: Drain) -> io::Result<()> {
        let worker = Arc::new(self.worker());
        // Closed when the last slot has been released.
        let (giving_back, mut given_back) = mpsc::channel::<Infallible>(1);
        let spawn = move |work| {
            let giving_back = giving_back.clone();
            drop(tokio::spawn(async move {
                work.await;
                drop(giving_back);
            }));
        };
        let layer = LimitLayer::spawning(self.limiter.clone(), spawn)
            .with_tarpit(self.tarpit_until(&drain))
            .with_waiting_room(self.waiting_room_until(&drain));
        let override_headers = Arc::new(self.settings.override_headers.clone());
        let http1 = self.http1(layer.raw(), &worker, &override_headers);
        let raw_pool = http1.as_ref().map(|it| Arc::clone(&it.pool));
        let make_http1 = move |connection: &Connection| {
            let caller = Caller::new(connection.peer.ip(), connection.secure);
            http1.clone().map(|shared| Http1Gateway { shared, caller })
        };
        let make = move |connection: &Connection| {
            let address = connection.peer.ip();
            let forward = Forward::new(Arc::clone(&worker), Caller::new(address, connection.secure));
            let limited = layer.clone().with_peer(move |_| Some(address)).layer(forward);
            LimitedService { limited, override_headers: Arc::clone(&override_headers) }
        };
        let sweep = async move {
            match raw_pool {
                Some(pool) => pool.sweep().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = self.server.clone().serve_http1(listener, (make, make_http1), drain) => served?,
            () = sweep => {}
        }
        // A release that is dropped with this runtime would leave its slot until the lease ends.
        let _late = timeout(RELEASE_TIMEOUT, given_back.recv()).await;
        Ok(())
    }

    /// Returns the state of the HTTP/1.1 path without hyper, if it can serve these upstreams.
    fn http1(
        &self,
        limit: RawLimit<S>,
        worker: &Arc<Worker>,
        override_headers: &Arc<OverrideHeaders>,
    ) -> Option<Arc<Http1Shared<S>>> {
        let settings = &self.settings;
        let is_served = settings.http1 == Http1Server::Native
            && settings.throttle.is_none()
            && self.upstreams.origins().all(|origin| origin.protocol == Protocol::Plain);
        is_served.then(|| {
            Arc::new(Http1Shared {
                limiter: self.limiter.clone(),
                limit,
                worker: Arc::clone(worker),
                pool: Arc::new(RawPool::new(self.upstreams.len(), settings.keep)),
                override_headers: Arc::clone(override_headers),
            })
        })
    }

    /// Returns the tarpit of a worker, which releases all requests when draining starts: a delayed
    /// request might otherwise be aborted.
    fn tarpit_until(&self, drain: &Drain) -> Tarpit {
        let drain = drain.clone();
        self.tarpit.sleeping(move |time| {
            let mut drain = drain.clone();
            async move {
                let _let_go = timeout(time, drain.started()).await;
            }
        })
    }

    fn worker(&self) -> Worker {
        let settings = &self.settings;
        Worker {
            upstreams: Arc::clone(&self.upstreams),
            pool: Arc::new(Pool::new(self.upstreams.len(), settings.keep)),
            connector: self.connector.clone(),
            forwarding: settings.forwarding,
            trusts: trusted_by(&self.limiter),
            strip_lookalikes: lookalikes_of(&self.limiter),
            needs_host: needs_host(&self.limiter),
            throttle_class: throttle_class(&self.limiter, settings.throttle.unwrap_or_default().mode),
            refuse_throttled: refuse_throttled(&self.limiter),
            headers: settings.caps.headers,
            answer: settings.answer,
            still: settings.still,
            total: settings.total,
            body: settings.body,
            detached: Arc::clone(&self.detached),
        }
    }
}

/// Returns the test for trusted proxies of the current policy.
fn trusted_by<S: Store>(limiter: &SharedLimiter<S>) -> Trusts {
    let limiter = limiter.clone();
    Arc::new(move |address| limiter.load().policy().client().trusted_proxies.contains(address))
}

/// Removes headers that a service may confuse with headers that the current policy reads.
fn lookalikes_of<S: Store>(limiter: &SharedLimiter<S>) -> StripHeaders {
    let limiter = limiter.clone();
    Arc::new(move |headers| head::strip_lookalikes(headers, limiter.load().policy()))
}

/// Whether the current policy has limits on hosts, so that a request without a host cannot be
/// matched.
fn needs_host<S: Store>(limiter: &SharedLimiter<S>) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let limiter = limiter.clone();
    Arc::new(move || limiter.load().policy().asks_for_hosts())
}

/// Returns the priority class of a request for the throttle of its upstream. `mode` is in force if the policy
/// has none.
fn throttle_class<S: Store>(
    limiter: &SharedLimiter<S>,
    mode: Mode,
) -> Arc<dyn Fn(&HeaderMap) -> ThrottleClass + Send + Sync> {
    let limiter = limiter.clone();
    Arc::new(move |headers| {
        let limiter = limiter.load();
        let (policy, class) = (limiter.policy(), class_of(limiter.policy(), headers));
        ThrottleClass {
            mode: policy.throttle_mode().unwrap_or(mode),
            is_frozen: policy.is_throttle_frozen(),
            rank: class.map(PriorityClass::rank),
            classes: policy.priorities().len(),
        }
    })
}

/// Returns the priority class of a request, which the limiter has written into its head.
fn class_of<'p>(policy: &'p Policy, headers: &HeaderMap) -> Option<&'p PriorityClass> {
    let name = headers.get(&TOLLGATE_PRIORITY).filter(|_| !policy.priorities().is_empty())?;
    policy.priorities().iter().find(|class| class.name().as_bytes() == name.as_bytes())
}

/// Answers requests that the throttle of their upstream refuses, and reports them to the observer.
fn refuse_throttled<S: Store>(limiter: &SharedLimiter<S>) -> RefuseThrottled {
    let limiter = limiter.clone();
    Arc::new(move |parts, admitted, shed| {
        let limiter = limiter.load();
        throttled_response(&limiter, parts, (admitted, class_of(limiter.policy(), &parts.headers)), shed)
    })
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    fs::read(path).map_err(|error| StartError::Unreadable(path.to_owned(), error))
}

/// The limiter with the forwarding service behind it, as a hyper service.
struct LimitedService<S> {
    limited: Limit<Forward, S>,
    override_headers: Arc<OverrideHeaders>,
}

impl<S: Store> Service<Request<Incoming>> for LimitedService<S> {
    type Response = Response<LimitBody<GatewayBody>>;
    type Error = Infallible;
    type Future = <Limit<Forward, S> as tower_service::Service<Request<Incoming>>>::Future;

    /// Calls the inner service without polling readiness, since forwarding is always ready. Headers
    /// that the upstream will not see are removed before the decision, so that no limit counts by
    /// them.
    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        head::strip_nominated(request.headers_mut());
        self.override_headers.strip(request.headers_mut());
        tower_service::Service::call(&mut self.limited.clone(), request)
    }
}
