//! Stores that have to be waited for: the task of the connection awaits the decision.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use tokio::sync::oneshot;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, Limiter, MemoryStore, Outcome, Policy, Quota, Rule, SharedLimiter, Store, StoreError,
};
use tollgate_gateway::Gateway;
use tollgate_http::WaitingRoom;
use tollgate_net::{Drain, Sockets};

use crate::support::{OK, ONCE, ONE_SLOT, Upstream, Wire, eventually, settings};

/// How a store answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answering {
    Later,
    Never,
    /// With an error, as if it could not be reached.
    Fails,
    /// Never about slots.
    NeverAboutSlots,
}

/// A store that does not answer at once.
struct RemoteStore {
    inner: MemoryStore,
    answering: Answering,
    /// The calls that wait for an answer.
    waiting: Arc<AtomicUsize>,
}

/// Counts a call until it is dropped.
struct CallGuard(Arc<AtomicUsize>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store for RemoteStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _guard = CallGuard(Arc::clone(&self.waiting));
        tokio::task::yield_now().await;
        let is_about_slots = || checks.iter().any(|it| matches!(it.rule.quota, Quota::Concurrency(_)));
        match self.answering {
            Answering::NeverAboutSlots if is_about_slots() => std::future::pending().await,
            Answering::Later | Answering::NeverAboutSlots => self.inner.decide(checks).await,
            Answering::Never => std::future::pending().await,
            Answering::Fails => Err(StoreError::Refused("it is down".into())),
        }
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.inner.adjust(rule, key, adjustment).await
    }
}

/// A gateway on a remote store.
struct RemoteGateway {
    address: SocketAddr,
    limiter: SharedLimiter<RemoteStore>,
    waiting: Arc<AtomicUsize>,
    waiting_room: WaitingRoom,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RemoteGateway {
    fn serve(upstream: &Upstream, policy: &str, answering: Answering) -> Self {
        let section = format!("upstream: [\"http://{}\"], http1: native", upstream.address);
        let settings = settings(&section).unwrap_or_else(|wrong| panic!("{wrong}"));
        let store = RemoteStore { inner: MemoryStore::new(1_000), answering, waiting: Arc::default() };
        let waiting = Arc::clone(&store.waiting);
        let limiter = SharedLimiter::from(Limiter::with_store(Policy::parse(policy).unwrap(), store));
        let gateway = Gateway::new(settings, limiter.clone(), None).unwrap();
        let waiting_room = gateway.waiting_room().clone();
        let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
        let address = sockets.address();
        let listener = sockets.into_listeners().pop().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (_drainer, drain) = Drain::new();
            runtime.block_on(async {
                tokio::select! {
                    served = gateway.serve(listener, drain) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self { address, limiter, waiting, waiting_room, stop: Some(stop), thread: Some(thread) }
    }

    fn connect(&self) -> Wire {
        Wire::to(self.address)
    }

    /// Returns the remaining units of the only limit on a path.
    fn left(&self, path: &str) -> u64 {
        let (limiter, call) = (self.limiter.load(), Call::new("GET", path).cost(0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let decision = runtime.block_on(limiter.decide(&call));
        decision.limits().next().unwrap().outcome().remaining
    }
}

impl Drop for RemoteGateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok(), "the gateway panicked");
        }
    }
}

#[test]
fn a_limit_holds_on_a_store_that_has_to_be_waited_for() {
    let upstream = Upstream::ok();
    let policy = "limits: [{name: three, by: global, bucket: 3/hour, soft: 50%}]";
    let gateway = RemoteGateway::serve(&upstream, policy, Answering::Later);
    let mut client = gateway.connect();
    let body = "POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    let chunks = "POST /up HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let admitted = client.ask(body);
    assert_eq!((admitted.status(), admitted.header("x-ratelimit-remaining")), (200, "2"));
    assert_eq!(client.ask(chunks).status(), 200);
    // All at once: one is admitted, and the bodies of the others are skipped.
    client.send([chunks, body, chunks, body, "GET /last HTTP/1.1\r\nhost: a\r\n\r\n"].concat());
    let statuses: Vec<_> = (0..5).map(|_| client.answer().status()).collect();
    assert_eq!(statuses, [200, 429, 429, 429, 429]);
    let refused = client.ask("HEAD / HTTP/1.1\r\nhost: a\r\naccept: text/plain\r\nconnection: close\r\n\r\n");
    assert_eq!((refused.status(), refused.header("connection")), (429, "close"));
    let seen = upstream.seen();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.iter().all(|it| it.text() == "hello" && it.is_whole), "{seen:?}");
    assert!(seen[2].find("tollgate-soft").is_some(), "the decision adds to the request: {:?}", seen[2]);
}

#[test]
fn a_refused_body_that_has_not_arrived_ends_the_connection() {
    let upstream = Upstream::ok();
    let gateway = RemoteGateway::serve(&upstream, ONCE, Answering::Later);
    assert_eq!(gateway.connect().get("/").status(), 200);
    let inner = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for framing in ["content-length: 36", "transfer-encoding: chunked"] {
        let mut client = gateway.connect();
        let refused = client.ask(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        assert_eq!(refused.status(), 429, "{framing}");
        client.send(inner);
        client.assert_closed();
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn a_client_that_leaves_ends_the_call_to_the_store() {
    let upstream = Upstream::ok();
    let gateway =
        RemoteGateway::serve(&upstream, "limits: [{name: a, by: global, bucket: 9/hour}]", Answering::Never);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the store is asked", || gateway.waiting.load(Ordering::SeqCst) == 1);
    drop(client);
    eventually("the call is dropped", || gateway.waiting.load(Ordering::SeqCst) == 0);
    assert!(upstream.seen().is_empty());
}

#[test]
fn a_slot_is_held_until_the_upstream_has_answered_and_released_then_also_while_the_store_is_down() {
    for (answering, leaves) in
        [Answering::Later, Answering::Fails].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let upstream = Upstream::script(move |turn| {
            while let Some(request) = turn.request() {
                if request.start.contains("/hold") {
                    may_go_on.lock().unwrap().recv().unwrap();
                }
                turn.wire.send(OK);
            }
        });
        let gateway = RemoteGateway::serve(&upstream, ONE_SLOT, answering);
        let mut client = gateway.connect();
        client.send("GET /hold HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually("it is forwarded", || upstream.seen().len() == 1);
        assert_eq!(gateway.connect().get("/").status(), 429);
        if leaves {
            // The gateway closes the connection when it has noticed that the client is gone.
            client.stop_sending();
            client.assert_closed();
            assert_eq!(gateway.connect().get("/").status(), 429);
        }
        go_on.send(()).unwrap();
        if !leaves {
            assert_eq!(client.answer().status(), 200);
        }
        eventually("the slot is free", || gateway.connect().get("/").status() == 200);
        eventually("the slot is free again", || gateway.connect().get("/").status() == 200);
    }
}

#[test]
fn requests_wait_in_queues_and_in_line_also_on_a_store_that_has_to_be_waited_for() {
    let (upstream, go_on) = Upstream::released();
    let policy = "limits:
      - {name: queue, endpoint: /queue, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}
      - {name: line, endpoint: /line, by: global, slots: 1, queue: {length: 9, wait: 10m}}";
    for (round, answering) in [Answering::Later, Answering::Fails].into_iter().enumerate() {
        let gateway = RemoteGateway::serve(&upstream, policy, answering);
        for (number, path) in ["/queue", "/line"].into_iter().enumerate() {
            let get = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
            let mut first = gateway.connect();
            first.send(&get);
            eventually("it is forwarded", || upstream.seen().len() == 2 * round + number + 1);
            let left = gateway.left(path);
            for _ in 0..3 {
                let mut second = gateway.connect();
                second.send(&get);
                eventually("it waits", || gateway.waiting_room.waiting() == 1);
                drop(second);
                // The place in the queue is given back by a call to the store.
                eventually("it has left", || {
                    gateway.waiting_room.waiting() == 0 && gateway.left(path) == left
                });
            }
            go_on.send(()).unwrap();
            assert_eq!(first.answer().status(), 200);
        }
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[test]
fn a_client_that_leaves_while_its_slots_are_taken_gets_its_place_back() {
    let upstream = Upstream::ok();
    let policy = "limits:
      - {name: queue, by: global, algorithm: leaky-queue, rate: 1/hour, queue: {length: 9}}
      - {name: slots, endpoint: /slot, by: global, slots: 1}";
    let gateway = RemoteGateway::serve(&upstream, policy, Answering::NeverAboutSlots);
    for _ in 0..3 {
        let mut client = gateway.connect();
        client.send("GET /slot HTTP/1.1\r\nhost: a\r\n\r\n");
        let is_asked = || gateway.waiting.load(Ordering::SeqCst) == 1;
        eventually("its slot is taken", || gateway.left("/other") == 9 && is_asked());
        drop(client);
        eventually("the call is dropped", || gateway.waiting.load(Ordering::SeqCst) == 0);
        eventually("its place is free", || gateway.left("/other") == 10);
    }
    assert!(upstream.seen().is_empty());
}

#[test]
fn a_client_that_leaves_before_the_decision_leaves_no_request_in_flight() {
    let upstream = Upstream::ok();
    let policy = "shed: {node: {inflight: 1000}}\n\
                  limits: [{name: slots, by: global, slots: 9}, {name: learned, by: global, slots: adaptive}]";
    let gateway = RemoteGateway::serve(&upstream, policy, Answering::Never);
    let in_flight = || {
        let limiter = gateway.limiter.load();
        (limiter.adaptive_summaries().iter().map(|it| it.in_flight).sum(), limiter.node_shedder().in_flight())
    };
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the store is asked", || gateway.waiting.load(Ordering::SeqCst) == 1);
    assert_eq!(in_flight(), (1, 1));
    drop(client);
    eventually("no request is in flight", || in_flight() == (0, 0));
    assert!(upstream.seen().is_empty());
}
