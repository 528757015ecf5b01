//! Requests that wait for a slot are held: in line, a bounded number of them, for a bounded time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::oneshot;
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, SharedLimiter, Store, Timestamp};
use tollgate_http::{HoldTime, LimitBody, LimitLayer, ShuttingDown, WaitingRoom};
use tollgate_testkit::poll_once;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::remote_store::RemoteStore;

const POLICY: &str = "
limits:
  - {name: day, by: global, bucket: 100/day}
  - {name: db, by: global, slots: 1, queue: {length: 2, wait: 5s}}
";

type Ends = Arc<Mutex<Vec<(Duration, oneshot::Sender<Result<(), ShuttingDown>>)>>>;
type Reply = Response<LimitBody<Full<Bytes>>>;

struct Site<S: Store> {
    limiter: SharedLimiter<S>,
    layer: LimitLayer<S>,
    room: WaitingRoom,
    ends: Ends,
    calls: Arc<AtomicUsize>,
}

fn store() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

impl<S: Store> Site<S> {
    fn new(store: S, places: usize) -> Self {
        Self::with_policy(POLICY, store, places)
    }

    fn with_policy(policy: &str, store: S, places: usize) -> Self {
        let limiter = SharedLimiter::from(Limiter::with_store(Policy::parse(policy).unwrap(), store));
        let ends = Ends::default();
        let sleeps = Arc::clone(&ends);
        let room = WaitingRoom::new(places, |_| async {}).sleeping(move |time| {
            let (end, ended) = oneshot::channel();
            assert!(matches!(time, HoldTime::AtMost(_)), "a slot may be free at any moment");
            sleeps.lock().unwrap().push((time.max(), end));
            async move { ended.await.unwrap() }
        });
        let layer = LimitLayer::spawning(limiter.clone(), pollster::block_on).with_waiting_room(room.clone());
        Self { limiter, layer, room, ends, calls: Arc::default() }
    }

    fn send(&self) -> Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>> {
        self.send_to("/")
    }

    fn send_to(&self, path: &str) -> Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>> {
        let calls = Arc::clone(&self.calls);
        let service = service_fn(move |_: Request<()>| {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) }
        });
        Box::pin(self.layer.layer(service).oneshot(Request::get(path).body(()).unwrap()))
    }

    /// The units of the day that are left.
    fn left(&self) -> u64 {
        let limiter = self.limiter.load();
        let decision = pollster::block_on(limiter.consider(&tollgate::Call::new("GET", "/"))).unwrap();
        decision.limits().find(|it| it.name() == "day").unwrap().outcome().remaining
    }
}

/// Returns the response, unless the request waits. A store that is awaited answers at the second poll.
fn now(response: &mut Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>>) -> Option<Reply> {
    (0..4).find_map(|_| match poll_once(response.as_mut()) {
        Poll::Ready(reply) => Some(reply.unwrap()),
        Poll::Pending => None,
    })
}

/// The reason of a refusal for lack of a place in the waiting room.
const FULL_ROOM: &str = "the waiting room of this server is full";

fn body(reply: Reply) -> String {
    let body = pollster::block_on(reply.into_body().collect()).unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn check_line<S: Store>(site: &Site<S>) {
    let first = now(&mut site.send()).expect("a slot is free");
    let (mut second, mut third) = (site.send(), site.send());
    assert!(now(&mut second).is_none() && now(&mut third).is_none(), "they wait");
    assert_eq!((site.room.waiting(), site.limiter.load().waiting()), (2, 2));
    assert_eq!(site.ends.lock().unwrap()[0].0, Duration::from_secs(5));
    let refused = now(&mut site.send()).expect("the line is full");
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!((site.left(), site.calls.load(Ordering::Relaxed)), (99, 1), "no other request is charged");
    // The response is sent: its slot is released.
    drop(first);
    let second = now(&mut second).expect("its turn");
    assert_eq!(second.status(), 200);
    assert!(now(&mut third).is_none());
    drop(second);
    assert_eq!(now(&mut third).expect("its turn").status(), 200);
    assert_eq!((site.room.waiting(), site.limiter.load().waiting(), site.left()), (0, 0, 97));
}

#[test]
fn requests_wait_in_line_and_the_end_of_a_response_admits_the_next() {
    check_line(&Site::new(store(), 100));
}

#[test]
fn requests_wait_in_line_on_a_store_that_is_awaited() {
    check_line(&Site::new(RemoteStore(store()), 100));
}

#[test]
fn a_request_that_leaves_frees_its_places() {
    let site = Site::new(store(), 100);
    let first = now(&mut site.send()).unwrap();
    let (mut second, mut third) = (site.send(), site.send());
    assert!(now(&mut second).is_none() && now(&mut third).is_none());
    drop(second);
    assert_eq!((site.room.waiting(), site.limiter.load().waiting()), (1, 1));
    drop(first);
    assert_eq!(now(&mut third).expect("it is the first now").status(), 200);
}

#[test]
fn a_wait_that_ends_in_vain_is_answered_with_429_and_a_shutdown_with_503() {
    for (end, status) in [(Ok(()), 429), (Err(ShuttingDown), 503)] {
        let site = Site::new(store(), 100);
        let _first = now(&mut site.send()).unwrap();
        let mut second = site.send();
        assert!(now(&mut second).is_none());
        let _sent = site.ends.lock().unwrap().remove(0).1.send(end);
        let reply = now(&mut second).expect("it must not wait any longer");
        assert_eq!(reply.status().as_u16(), status);
        assert!(reply.headers().contains_key("retry-after"));
        assert_eq!((site.room.waiting(), site.limiter.load().waiting(), site.left()), (0, 0, 99));
        assert_eq!(site.calls.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_full_room_refuses_requests_that_would_have_to_wait() {
    let site = Site::new(store(), 1);
    let first = now(&mut site.send()).unwrap();
    let mut second = site.send();
    assert!(now(&mut second).is_none());
    let refused = now(&mut site.send()).expect("no place");
    assert_eq!(refused.status(), 429);
    let body = body(refused);
    assert!(body.contains(FULL_ROOM) && !body.contains("violated-policies"), "{body}");
    assert_eq!((site.room.refused(), site.limiter.load().waiting()), (1, 1));
    drop(first);
    assert_eq!(now(&mut second).unwrap().status(), 200);
}

#[test]
fn a_more_important_request_takes_the_place_of_a_less_important_one_that_waits_for_a_slot() {
    let policy = "
priorities: [{name: critical, endpoint: /pay}, {name: normal}, {name: bulk, endpoint: /bulk}]
limits:
  - {name: day, by: global, bucket: 100/day}
  - {name: db, by: global, slots: 1, queue: {length: 9, wait: 5s}}
";
    let site = Site::with_policy(policy, store(), 2);
    let first = now(&mut site.send()).unwrap();
    let [mut older, mut newer] = [site.send_to("/bulk"), site.send_to("/bulk")];
    assert!(now(&mut older).is_none() && now(&mut newer).is_none());
    let mut critical = site.send_to("/pay");
    assert!(now(&mut critical).is_none(), "it waits, although the room is full");
    let displaced = now(&mut newer).expect("it has lost its place");
    assert_eq!(displaced.status(), 429);
    assert!(displaced.headers().contains_key("retry-after"));
    let body = body(displaced);
    assert!(body.contains(FULL_ROOM) && body.contains("a more important request took the place"), "{body}");
    assert!(now(&mut older).is_none(), "the request that has waited longer stays");
    assert_eq!((site.room.waiting(), site.room.displaced(), site.limiter.load().waiting()), (2, 1, 2));
    assert_eq!(now(&mut site.send_to("/bulk")).expect("no place").status(), 429);
    assert_eq!((site.room.refused(), site.left()), (1, 99));
    drop(first);
    assert_eq!(now(&mut critical).expect("its turn").status(), 200);
    assert_eq!(now(&mut older).expect("its turn").status(), 200);
    assert_eq!((site.room.waiting(), site.limiter.load().waiting(), site.left()), (0, 0, 97));
}

#[test]
fn a_layer_without_a_waiting_room_refuses_requests_that_would_have_to_wait() {
    let limiter = Limiter::with_store(Policy::parse(POLICY).unwrap(), store());
    let layer = LimitLayer::new(limiter);
    let service = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = layer.layer(service);
    let _first = pollster::block_on(service.clone().oneshot(Request::new(()))).unwrap();
    let second = pollster::block_on(service.oneshot(Request::new(()))).unwrap();
    assert_eq!(second.status(), 429);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a lease of a store on the system clock")]
fn a_response_that_takes_longer_than_the_lease_keeps_its_slot() {
    let policy = "limits: [{name: db, by: global, slots: 1, ttl: 1500ms}]";
    let service = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = LimitLayer::new(Limiter::from_policy(policy).unwrap()).layer(service);
    let send = || pollster::block_on(service.clone().oneshot(Request::new(()))).unwrap();
    let first = send();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(send().status(), 429);
    drop(first);
    assert_eq!(send().status(), 200);
}
