//! A service on a real socket, and a client for its responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::ConnectInfo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Store, Timestamp};
use tollgate_http::{LimitLayer, SharedLimiter};

pub(crate) const START: u64 = 1_700_000_000;

pub(crate) type TestLimiter = Limiter<MemoryStore<ManualClock>>;

/// Creates a limiter with a manual clock.
pub(crate) fn limiter(policy: &str) -> (SharedLimiter<MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(START));
    let limiter: TestLimiter =
        Limiter::with_store(parse(policy), MemoryStore::with_clock(1_000, clock.clone()));
    (limiter.into(), clock)
}

pub(crate) fn parse(policy: &str) -> Policy {
    Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Creates a layer that reads peer addresses from axum.
pub(crate) fn layer<S>(limiter: impl Into<SharedLimiter<S>>) -> LimitLayer<S> {
    LimitLayer::spawning(limiter, |work| drop(tokio::spawn(work)))
        .with_peer(|parts| parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()))
}

/// A listening service behind a layer.
pub(crate) struct ServedService {
    address: SocketAddr,
    calls: Arc<AtomicU32>,
}

impl ServedService {
    /// Starts a service that answers `hello` and counts its calls.
    pub(crate) async fn hello<S: Store>(layer: LimitLayer<S>) -> Self {
        let calls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&calls);
        let hello = move || {
            count.fetch_add(1, Ordering::SeqCst);
            async { ([("x-ratelimit-limit", "what the service thinks")], "hello") }
        };
        let address = listen(Router::new().fallback(hello).layer(layer)).await;
        Self { address, calls }
    }

    /// The number of calls of the service.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        get(self.address, path, headers).await
    }
}

/// Serves until the test ends.
pub(crate) async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// A response as received.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// The only header of a name; `absent` if there is none.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let value = found.next().map_or("absent", |(_, value)| value);
        assert!(found.next().is_none(), "{name} twice in {self:?}");
        value
    }

    /// The `instance` of a problem, which must end in the decision ID of the header.
    #[track_caller]
    pub(crate) fn instance(&self) -> String {
        let id = self.header("tollgate-decision");
        assert!(id.parse::<tollgate::DecisionId>().is_ok(), "{self:?}");
        format!("urn:tollgate:decision:{id}")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers: String = headers.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect();
    let request = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n{headers}\r\n");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();

    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    };
    Answer { status, headers: lines.map(header).collect(), body: body.to_owned() }
}
