//! A gateway on its own thread, configured by a file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;
use tollgate::{Call, Limiter, Policy, Quota, SharedLimiter};
use tollgate_document::{Document, Problems};
use tollgate_gateway::{Gateway, GatewaySettings, ThrottleCounts};
use tollgate_http::{Tarpit, WaitingRoom};
use tollgate_net::{Drain, Drainer, Sockets};

use super::{Upstream, Wire};

/// Reads a `gateway` section, or returns its errors.
pub(crate) fn settings(section: &str) -> Result<GatewaySettings, String> {
    let document = Document::parse(&format!("gateway: {{{section}}}\n")).map_err(|it| it.to_string())?;
    let mut problems = Problems::default();
    let settings = GatewaySettings::read(document.root().get("gateway"), &mut problems);
    if problems.has_errors() { Err(problems.into_diagnostics(&document).to_string()) } else { Ok(settings) }
}

/// A builder for a gateway.
pub(crate) struct Behind {
    section: String,
    policy: String,
}

impl Behind {
    /// Starts with these upstreams.
    pub(crate) fn all(origins: &[String]) -> Self {
        let list: Vec<_> = origins.iter().map(|it| format!("\"{it}\"")).collect();
        Self { section: format!("upstream: [{}]", list.join(", ")), policy: "limits: []".to_owned() }
    }

    /// Starts with one upstream.
    pub(crate) fn new(upstream: &Upstream) -> Self {
        Self::all(&[format!("http://{}", upstream.address)])
    }

    /// Adds settings of the section: `timeouts: {total: 1s}, keep_alive: 3`.
    pub(crate) fn with(mut self, lines: &str) -> Self {
        self.section = format!("{}, {lines}", self.section);
        self
    }

    pub(crate) fn limited(mut self, policy: &str) -> Self {
        policy.clone_into(&mut self.policy);
        self
    }

    #[track_caller]
    pub(crate) fn serve(&self) -> ServedGateway {
        let section = if self.section.contains("http1:") {
            self.section.clone()
        } else {
            format!("{}, http1: {}", self.section, crate::HTTP1)
        };
        let settings = settings(&section).unwrap_or_else(|wrong| panic!("{wrong}"));
        let mut policy = Policy::parse(&self.policy).unwrap_or_else(|wrong| panic!("{wrong}"));
        if let Some(throttle) = settings.throttle {
            // As the daemon does.
            policy = policy.with_throttle_mode(throttle.mode);
        }
        let limiter = SharedLimiter::from(Limiter::new(policy));
        let gateway = Arc::new(Gateway::new(settings, limiter.clone(), None).unwrap());
        let counted = Arc::clone(&gateway);
        let throttle_counts = Box::new(move || counted.throttle_counts());
        let (tarpit, waiting_room) = (gateway.tarpit().clone(), gateway.waiting_room().clone());
        let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
        let address = sockets.address();
        let listener = sockets.into_listeners().pop().unwrap();
        let (drainer, drain) = Drain::new();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    served = gateway.serve(listener, drain) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let (stop, thread) = (Some(stop), Some(thread));
        ServedGateway { address, drainer, tarpit, waiting_room, limiter, throttle_counts, stop, thread }
    }
}

/// A gateway that serves until it is drained or dropped.
pub(crate) struct ServedGateway {
    pub(crate) address: SocketAddr,
    pub(crate) drainer: Drainer,
    pub(crate) tarpit: Tarpit,
    pub(crate) waiting_room: WaitingRoom,
    pub(crate) limiter: SharedLimiter,
    pub(crate) throttle_counts: Box<dyn Fn() -> Vec<ThrottleCounts> + Send + Sync>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ServedGateway {
    pub(crate) fn connect(&self) -> Wire {
        Wire::to(self.address)
    }

    /// Sends one request on a new connection.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> super::Message {
        self.connect().get(path)
    }

    /// Returns the remaining units of the only limit, for all callers.
    #[track_caller]
    pub(crate) fn left(&self) -> u64 {
        let limiter = self.limiter.load();
        let decision = limiter.check(&Call::new("GET", "/").cost(0));
        decision.limits().next().unwrap().outcome().remaining
    }

    /// Returns the slots that local clients may still take, of all limits together.
    pub(crate) fn free_slots(&self) -> u64 {
        let limiter = self.limiter.load();
        let decision = limiter.check(&Call::new("GET", "/").ip([127, 0, 0, 1]).cost(0));
        let slots = decision.limits().filter(|it| matches!(it.rule().quota, Quota::Concurrency(_)));
        slots.map(|it| it.outcome().remaining).sum()
    }

    /// Replaces the policy.
    #[track_caller]
    pub(crate) fn limit_by(&self, policy: &str) {
        self.limiter.replace(Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}")));
    }

    /// Waits until serving has ended.
    pub(crate) fn ended(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for ServedGateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok(), "the gateway panicked");
        }
    }
}
