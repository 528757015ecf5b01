//! An API on a manual clock, and helpers to call it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tollgate::store::ManualClock;
use tollgate::{Limiter, MemoryStore, OutageSettings, Policy, SharedLimiter, Span, Store, Timestamp};
use tollgate_server::{Access, Api, Status};
use tollgate_telemetry::{WatchSettings, Watcher};

pub(crate) type Store_ = MemoryStore<ManualClock>;

/// An API with its limiter and status.
pub(crate) struct Subject<S = Store_> {
    pub(crate) api: Api<S>,
    pub(crate) limiter: SharedLimiter<S>,
    pub(crate) status: Arc<Status>,
    pub(crate) clock: ManualClock,
}

/// A response that was read completely.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

pub(crate) fn subject(policy: &str) -> Subject {
    with_access(policy, Access::open())
}

pub(crate) fn with_access(policy: &str, access: Access) -> Subject {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    on_store(policy, access, MemoryStore::with_seed(1_000, clock.clone(), 7), clock)
}

pub(crate) fn on_store<S: Store>(policy: &str, access: Access, store: S, clock: ManualClock) -> Subject<S> {
    let policy = Policy::parse(policy).expect("a policy without mistakes");
    let limiter = Limiter::with_store(policy, store);
    let limiter = SharedLimiter::from(limiter.with_outage_on(&OutageSettings::default(), clock.clone()));
    let status = Arc::new(Status::new());
    let api = Api::new(limiter.clone(), Arc::clone(&status), access).with_clock(clock.clone());
    Subject { api, limiter, status, clock }
}

/// Creates an API with a watcher.
pub(crate) fn watched(policy: &str, access: Access) -> (Subject, Watcher) {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let policy = Policy::parse(policy).expect("a policy without mistakes");
    let watcher = Watcher::new(&WatchSettings { records: 200, ..WatchSettings::default() });
    let store = MemoryStore::with_seed(20_000, clock.clone(), 7);
    let limiter =
        Limiter::with_store(policy, store).with_observer_on(Arc::new(watcher.clone()), clock.clone());
    let (limiter, status) = (SharedLimiter::from(limiter), Arc::new(Status::new()));
    let api = Api::new(limiter.clone(), Arc::clone(&status), access)
        .with_clock(clock.clone())
        .with_json(|body| Box::pin(async move { (StatusCode::BAD_REQUEST, body) }))
        .with_watcher(watcher.clone());
    (Subject { api, limiter, status, clock }, watcher)
}

impl<S: Store> Subject<S> {
    pub(crate) fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        self.send_from(request, PEER)
    }

    pub(crate) fn send_from(&self, request: Request<Full<Bytes>>, peer: IpAddr) -> Answer {
        pollster::block_on(async {
            let (parts, body) = self.api.answer(request, peer).await.into_parts();
            let body = body.collect().await.expect("it is in memory").to_bytes();
            Answer { status: parts.status, headers: parts.headers, body }
        })
    }

    pub(crate) fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(Request::post(path).body(Full::new(body.into())).expect("a request"))
    }

    /// Posts a body, and returns the JSON of a successful response.
    #[track_caller]
    pub(crate) fn ask(&self, path: &str, body: &str) -> Value {
        let answer = self.post(path, body.to_owned());
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// Sends a `PUT`.
    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: &str) -> Answer {
        self.send(Request::put(path).body(Full::new(Bytes::from(body.to_owned()))).expect("a request"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Full::default()).expect("a request"))
    }

    pub(crate) fn advance(&self, span: Span) {
        self.clock.advance(span);
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are text")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Fails unless the response is a problem document of its status; returns its detail.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let view = self.json();
        assert_eq!(view["status"], self.status.as_u16(), "{view}");
        for member in ["type", "title", "detail"] {
            assert!(view[member].as_str().is_some_and(|it| !it.is_empty()), "{member} of {view}");
        }
        view["detail"].as_str().unwrap_or_default().to_owned()
    }
}
