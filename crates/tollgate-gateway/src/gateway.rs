//! The gateway as a whole: what all workers share, and how one serves.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tollgate::{MemoryStore, Store};
use tollgate_http::{Limit, LimitBody, LimitLayer, SharedLimiter, Tarpit};
use tollgate_net::{Connection, Drain, HttpServer, Tls, TlsError, Trusts};
use tower_layer::Layer;

use crate::body::GatewayBody;
use crate::connect::Connector;
use crate::detached::DetachedRequests;
use crate::forward::{Forward, StripHeaders, Worker};
use crate::head::{self, Caller};
use crate::override_headers::OverrideHeaders;
use crate::pool::Pool;
use crate::settings::{GatewaySettings, Target};
use crate::upstream::{Origin, Protocol, Upstreams};

/// How long a worker that ends waits for a remote store to take back slots.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A file that the settings name.
    #[error("cannot read {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// The certificate or its key.
    #[error("cannot serve TLS with {}", .0.display())]
    Tls(PathBuf, #[source] TlsError),
    /// The certificates that upstreams are believed by.
    #[error("cannot use {} to check upstreams", .0.display())]
    Authorities(PathBuf, #[source] rustls::Error),
    /// Whoever could connect could claim to speak for anybody.
    #[error(
        "`gateway.proxy_protocol` needs `client.trusted_proxies`: list the balancers that may say whom they speak for"
    )]
    NobodyTrusted,
}

/// What all workers of a gateway share.
pub struct Gateway<S = MemoryStore> {
    settings: GatewaySettings,
    limiter: SharedLimiter<S>,
    upstreams: Arc<Upstreams>,
    connector: Connector,
    server: HttpServer,
    tarpit: Tarpit,
    detached: Arc<DetachedRequests>,
}

impl<S: Store> Gateway<S> {
    /// A gateway behind this limiter. `demo` is where the demo service listens,
    /// if that is what the settings ask for.
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
                    speech: Protocol::Plain,
                }]
            }
            (Target::Demo, None) => Vec::new(),
        };
        let upstreams = Upstreams::new(origins, settings.eject_after, settings.eject_for);
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
        let (upstreams, detached) = (Arc::new(upstreams), DetachedRequests::new(settings.detached));
        Ok(Self { settings, limiter, upstreams, connector, server, tarpit, detached })
    }

    /// Where requests go.
    pub fn upstreams(&self) -> Vec<String> {
        self.upstreams.origins().map(ToString::to_string).collect()
    }

    /// Where requests over a soft threshold are held back: how many are, and were.
    pub const fn tarpit(&self) -> &Tarpit {
        &self.tarpit
    }

    /// Serves on one worker until draining has ended.
    pub async fn serve(&self, listener: TcpListener, drain: Drain) -> io::Result<()> {
        let worker = Arc::new(self.worker());
        // Closed when the last slot has been given back.
        let (giving_back, mut given_back) = mpsc::channel::<Infallible>(1);
        let layer = LimitLayer::new(self.limiter.clone())
            .with_spawn(move |work| {
                let giving_back = giving_back.clone();
                drop(tokio::spawn(async move {
                    work.await;
                    drop(giving_back);
                }));
            })
            .with_tarpit(self.tarpit_until(&drain));
        let override_headers = Arc::new(self.settings.override_headers.clone());
        let make = move |connection: &Connection| {
            let address = connection.peer.ip();
            let forward = Forward::new(Arc::clone(&worker), Caller::new(address, connection.secure));
            let limited = layer.clone().with_peer(move |_| Some(address)).layer(forward);
            LimitedService { limited, override_headers: Arc::clone(&override_headers) }
        };
        self.server.clone().serve(listener, make, drain).await?;
        // What ends with this runtime would be held until its lease ends.
        let _late = timeout(RELEASE_TIMEOUT, given_back.recv()).await;
        Ok(())
    }

    /// The tarpit, which lets everybody go when the end begins: what is held back then might
    /// be cut instead of answered.
    fn tarpit_until(&self, drain: &Drain) -> Tarpit {
        let drain = drain.clone();
        self.tarpit.sleeping(move |time| {
            let mut drain = drain.clone();
            async move {
                let _let_go = timeout(time, drain.begun()).await;
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
            headers: settings.caps.headers,
            answer: settings.answer,
            still: settings.still,
            total: settings.total,
            body: settings.body,
            detached: Arc::clone(&self.detached),
        }
    }
}

/// Whom the policy in force trusts.
fn trusted_by<S: Store>(limiter: &SharedLimiter<S>) -> Trusts {
    let limiter = limiter.clone();
    Arc::new(move |address| limiter.load().policy().client().trusted_proxies.contains(address))
}

/// Removes headers that a service may take for headers that the policy in force reads.
fn lookalikes_of<S: Store>(limiter: &SharedLimiter<S>) -> StripHeaders {
    let limiter = limiter.clone();
    Arc::new(move |headers| head::strip_lookalikes(headers, limiter.load().policy()))
}

/// Whether the policy in force limits hosts, so that a request without one cannot be matched.
fn needs_host<S: Store>(limiter: &SharedLimiter<S>) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let limiter = limiter.clone();
    Arc::new(move || limiter.load().policy().asks_for_hosts())
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    fs::read(path).map_err(|error| StartError::Unreadable(path.to_owned(), error))
}

/// The limiter with the forwarding service behind it, as hyper calls it.
struct LimitedService<S> {
    limited: Limit<Forward, S>,
    override_headers: Arc<OverrideHeaders>,
}

impl<S: Store> Service<Request<Incoming>> for LimitedService<S> {
    type Response = Response<LimitBody<GatewayBody>>;
    type Error = Infallible;
    type Future = <Limit<Forward, S> as tower_service::Service<Request<Incoming>>>::Future;

    /// Forwarding is always ready, so nobody asks. What the upstream will not see
    /// is taken away before anybody is counted by it.
    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        head::strip_nominated(request.headers_mut());
        self.override_headers.strip(request.headers_mut());
        tower_service::Service::call(&mut self.limited.clone(), request)
    }
}
