//! Requests that a limit with a queue admits with a wait are held: a bounded number of them, and
//! none of them is forwarded early.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, SharedLimiter, Span, Store, Timestamp};
use tollgate_http::{LimitBody, LimitLayer, ShuttingDown, Tarpit, WaitingRoom};
use tollgate_testkit::poll_once;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::remote_store::RemoteStore;

/// One request starts immediately, and four wait for 100 ms to 400 ms. Each of them takes one of 100
/// units, and one of ten slots.
const POLICY: &str = "limits:
  - {name: queue, by: global, algorithm: leaky-queue, rate: 10/second, queue: {length: 4}}
  - {name: day, by: global, bucket: 100/day}
  - {name: slots, by: global, slots: 10}";

/// The length of a sleep, and the sender that ends it.
type Sleeper = (Duration, oneshot::Sender<Result<(), ShuttingDown>>);

/// Sleeps that end when the test ends them.
#[derive(Clone, Default)]
struct ManualSleep(Arc<Mutex<Vec<Sleeper>>>);

impl ManualSleep {
    fn room(&self, max: usize) -> WaitingRoom {
        let sleeps = self.0.clone();
        WaitingRoom::new(max, |_| async {}).sleeping(move |time| {
            let (wake, woken) = oneshot::channel();
            sleeps.lock().unwrap().push((time.max(), wake));
            async move { woken.await.unwrap() }
        })
    }

    /// The lengths in milliseconds of the sleeps that have not ended.
    fn sleeping(&self) -> Vec<u128> {
        self.0.lock().unwrap().iter().map(|it| it.0.as_millis()).collect()
    }

    fn end_first(&self, end: Result<(), ShuttingDown>) {
        let _ = self.0.lock().unwrap().remove(0).1.send(end);
    }
}

type Reply = Response<LimitBody<Full<Bytes>>>;

/// A response that has not arrived yet.
struct PendingResponse(Pin<Box<dyn Future<Output = Result<Reply, Infallible>>>>);

impl PendingResponse {
    fn now(&mut self) -> Option<Reply> {
        match poll_once(self.0.as_mut()) {
            Poll::Ready(answer) => Some(answer.unwrap()),
            Poll::Pending => None,
        }
    }
}

/// A layer with a service that counts its calls.
struct Site<S = MemoryStore<ManualClock>> {
    clock: ManualClock,
    limiter: SharedLimiter<S>,
    layer: LimitLayer<S>,
    calls: Arc<AtomicUsize>,
}

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

impl Site {
    fn new(policy: &str) -> Self {
        let clock = clock();
        let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}"));
        let limiter: SharedLimiter<_> =
            Limiter::with_store(policy, MemoryStore::with_clock(100, clock.clone())).into();
        let layer = LimitLayer::new(limiter.clone());
        Self { clock, limiter, layer, calls: Arc::default() }
    }

    /// The units or slots of each limit that are left, in the order of the policy.
    fn left(&self) -> Vec<u64> {
        let limiter = self.limiter.load();
        let decision = limiter.check(&tollgate::Call::new("GET", "/").cost(0));
        decision.limits().map(|it| it.outcome().remaining).collect()
    }
}

impl<S: Store> Site<S> {
    fn in_room(mut self, room: &WaitingRoom) -> Self {
        self.layer = self.layer.with_waiting_room(room.clone());
        self
    }

    fn send(&self) -> PendingResponse {
        self.send_to("/")
    }

    fn send_to(&self, path: &str) -> PendingResponse {
        let calls = Arc::clone(&self.calls);
        let service = service_fn(move |_: Request<()>| {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) }
        });
        PendingResponse(Box::pin(self.layer.layer(service).oneshot(Request::get(path).body(()).unwrap())))
    }

    /// Sends a request that has to wait.
    #[track_caller]
    fn hold(&self) -> PendingResponse {
        let mut waiting = self.send();
        assert!(waiting.now().is_none(), "it waits");
        waiting
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn json(answer: Reply) -> Value {
    let body = pollster::block_on(answer.into_body().collect()).unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn admitted_requests_start_at_their_times_and_a_full_queue_refuses() {
    let (sleeps, site) = (ManualSleep::default(), Site::new(POLICY));
    let room = sleeps.room(100);
    let site = site.in_room(&room);
    assert_eq!(site.send().now().expect("it does not wait").status(), 200);
    let mut waiting: Vec<_> = (0..4).map(|_| site.hold()).collect();
    assert_eq!(sleeps.sleeping(), [100, 200, 300, 400]);
    let refused = site.send().now().expect("a refusal does not wait");
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after-ms"]),
        (429, &"100".parse().unwrap())
    );
    assert_eq!((site.calls(), room.waiting(), room.held(), room.refused()), (1, 4, 4, 0));
    for number in 0..4 {
        sleeps.end_first(Ok(()));
        let answer = waiting[number].now().expect("it has waited");
        assert_eq!((answer.status().as_u16(), site.calls()), (200, number + 2));
        for name in ["ratelimit", "x-ratelimit-remaining", "tollgate-decision"] {
            assert!(answer.headers().contains_key(name), "{name}");
        }
        assert!(waiting[number + 1..].iter_mut().all(|it| it.now().is_none()));
    }
    assert_eq!((room.waiting(), room.held(), room.refused()), (0, 4, 0));
    assert_eq!(site.left(), [0, 95, 10], "what has started is charged");
}

#[test]
fn free_places_start_immediately() {
    let policy =
        "limits: [{by: global, algorithm: leaky-queue, rate: 10/second, queue: {length: 4, free: 2}}]";
    let sleeps = ManualSleep::default();
    let site = Site::new(policy).in_room(&sleeps.room(100));
    let mut sent: Vec<_> = (0..5).map(|_| site.send()).collect();
    let answered: Vec<_> = sent.iter_mut().map(|it| it.now().is_some()).collect();
    assert_eq!((answered, sleeps.sleeping()), (vec![true, true, true, false, false], vec![100, 200]));
    let all = ManualSleep::default();
    let site = Site::new(&policy.replace("free: 2", "free: 4")).in_room(&all.room(0));
    assert!((0..5).all(|_| site.send().now().unwrap().status() == 200), "none of them needs a place");
}

#[test]
fn a_request_that_leaves_gives_back_its_place_and_its_units() {
    let sleeps = ManualSleep::default();
    let room = sleeps.room(100);
    let site = Site::new(POLICY).in_room(&room);
    let before = site.left();
    let first = site.send().now().unwrap();
    let mut waiting: Vec<_> = (0..4).map(|_| site.hold()).collect();
    assert_eq!(site.send().now().unwrap().status(), 429);
    assert_eq!(site.left(), [0, 95, 9], "requests that wait take no slots");
    drop(waiting.pop());
    assert_eq!((room.waiting(), site.left()), (3, vec![1, 96, 9]));
    let newcomer = site.hold();
    assert_eq!(sleeps.sleeping(), [100, 200, 300, 400, 400], "the others keep their times");
    assert_eq!(site.send().now().unwrap().status(), 429);
    // A place in the middle is not given to others, but the units are.
    drop(waiting.remove(1));
    assert_eq!(site.left(), [0, 96, 9]);
    drop(newcomer);
    while let Some(last) = waiting.pop() {
        drop(last);
    }
    drop(first);
    assert_eq!((room.waiting(), site.calls()), (0, 1));
    site.clock.advance(Span::from_millis(300));
    assert_eq!(site.left(), [before[0], 99, 10], "only the first request was charged");
}

#[test]
fn a_request_takes_its_slots_when_it_starts_and_not_while_it_waits() {
    let (sleeps, policy) = (ManualSleep::default(), POLICY.replace("length: 4", "length: 20"));
    let site = Site::new(&policy.replace("slots: 10", "slots: 2")).in_room(&sleeps.room(100));
    let first = site.send().now().unwrap();
    let mut waiting: Vec<_> = (0..10).map(|_| site.hold()).collect();
    assert_eq!(site.left()[1..], [89, 1], "ten requests wait, and one works");
    let mut start = || {
        sleeps.end_first(Ok(()));
        waiting.remove(0).now().expect("its turn has come")
    };
    let second = start();
    assert_eq!((second.status().as_u16(), site.left()[2]), (200, 0));
    let third = start();
    assert_eq!((third.status().as_u16(), site.calls()), (429, 2));
    assert!(third.headers().contains_key("retry-after") && third.headers().contains_key("tollgate-decision"));
    assert_eq!(json(third)["violated-policies"], serde_json::json!(["slots"]));
    assert_eq!(site.left()[1], 90, "it is refunded");
    drop(first);
    let fourth = start();
    assert_eq!((fourth.status().as_u16(), site.left()[2], site.calls()), (200, 0, 3));
}

#[test]
fn a_request_that_does_not_have_to_wait_takes_its_slots_too_and_charges_nothing_without_one() {
    let site = Site::new(&POLICY.replace("slots: 10", "slots: 1"));
    let first = site.send().now().unwrap();
    site.clock.advance(Span::from_secs(1));
    let before = site.left();
    assert_eq!((first.status().as_u16(), before[2]), (200, 0));
    assert_eq!(site.send().now().unwrap().status(), 429);
    assert_eq!((site.left(), site.calls()), (before, 1));
    drop(first);
    assert_eq!((site.send().now().unwrap().status().as_u16(), site.calls()), (200, 2));
}

#[test]
fn a_request_whose_turn_has_come_waits_in_line_for_its_slot() {
    let (sleeps, policy) =
        (ManualSleep::default(), POLICY.replace("slots: 10", "slots: 1, queue: {length: 1, wait: 1s}"));
    let site = Site::new(&policy).in_room(&sleeps.room(100));
    let first = site.send().now().unwrap();
    let mut second = site.hold();
    assert_eq!(sleeps.sleeping(), [100]);
    sleeps.end_first(Ok(()));
    assert!(second.now().is_none());
    assert_eq!(sleeps.sleeping(), [1_000], "it waits for the slot of the first");
    drop(first);
    assert_eq!((second.now().unwrap().status().as_u16(), site.calls()), (200, 2));
}

#[test]
fn a_request_that_waits_is_not_in_flight_under_a_learned_number_of_slots() {
    let (sleeps, policy) =
        (ManualSleep::default(), POLICY.replace("slots: 10", "slots: {adaptive: {min: 2, max: 2}}"));
    let site = Site::new(&policy).in_room(&sleeps.room(100));
    let in_flight = || site.limiter.load().adaptive_views(1)[0].in_flight;
    let first = site.send().now().unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| site.hold()).collect();
    assert_eq!(in_flight(), 1);
    let mut start = || {
        sleeps.end_first(Ok(()));
        waiting.remove(0).now().expect("its turn has come")
    };
    let second = start();
    assert_eq!((second.status().as_u16(), in_flight()), (200, 2));
    assert_eq!((start().status().as_u16(), in_flight()), (503, 2));
    drop((first, second));
    let fourth = start();
    assert_eq!((fourth.status().as_u16(), in_flight(), site.calls()), (200, 1, 3));
}

#[test]
fn thousands_that_leave_leave_no_trace() {
    let sleeps = ManualSleep::default();
    let room = sleeps.room(2);
    let site = Site::new(POLICY).in_room(&room);
    let _first = site.send().now().unwrap();
    let before = site.left();
    for _ in 0..5_000 {
        // The last one leaves first.
        let _second = site.hold();
        let _third = site.hold();
        assert_eq!(site.send().now().unwrap().status(), 429);
        assert_eq!(room.waiting(), 2);
    }
    assert_eq!((room.waiting(), room.held(), room.refused()), (0, 10_000, 5_000));
    assert_eq!((site.left(), site.calls()), (before, 1));
}

#[test]
fn requests_that_leave_in_the_order_in_which_they_came_leave_no_trace() {
    let sleeps = ManualSleep::default();
    let site = Site::new(POLICY).in_room(&sleeps.room(10));
    let _first = site.send().now().unwrap();
    let before = site.left();
    for _ in 0..1_000 {
        let waiting: Vec<_> = (0..4).map(|_| site.hold()).collect();
        waiting.into_iter().for_each(drop);
        assert_eq!(site.left(), before, "the whole queue is free again");
    }
    // A request that stays keeps its time, and the places before it pass unused.
    let waiting: Vec<_> = (0..4).map(|_| site.hold()).collect();
    let mut waiting = waiting.into_iter();
    drop((waiting.next(), waiting.next(), waiting.next()));
    assert_eq!(site.send().now().unwrap().status(), 429, "the last request is behind them");
    drop(waiting);
    assert_eq!(site.left(), before);
}

#[test]
fn a_request_that_finds_no_place_is_refused_and_charges_nothing() {
    let sleeps = ManualSleep::default();
    for room in [None, Some(sleeps.room(0))] {
        let site = Site::new(POLICY);
        let site = match &room {
            Some(room) => site.in_room(room),
            None => site,
        };
        let first = site.send().now().unwrap();
        assert_eq!(first.status(), 200, "a request that does not wait needs no place");
        let before = site.left();
        for _ in 0..3 {
            let refused = site.send().now().expect("it does not wait");
            assert_eq!(refused.status(), 429);
            for (name, value) in
                [("retry-after", "1"), ("retry-after-ms", "100"), ("cache-control", "no-store")]
            {
                assert_eq!(refused.headers()[name], value, "{name}");
            }
            assert!(refused.headers().contains_key("tollgate-decision"));
            let body = json(refused);
            assert_eq!(body["violated-policies"], Value::Null, "no limit refuses");
            let reason = "the waiting room of this server is full; it would have had to wait in the queue of \
                          limit `queue`; try again in 1 s";
            assert_eq!((&body["title"], &body["detail"]), (&"Too Many Requests".into(), &reason.into()));
            assert_eq!(site.left(), before);
        }
        assert_eq!(room.map_or((0, 0, 3), |it| (it.waiting(), it.held(), it.refused())), (0, 0, 3));
        assert_eq!((site.calls(), sleeps.sleeping()), (1, vec![]));
    }
}

#[test]
fn a_more_important_request_takes_the_place_of_a_less_important_one_in_a_full_room() {
    let classes =
        "priorities: [{name: critical, endpoint: /pay}, {name: normal}, {name: bulk, endpoint: /bulk}]";
    let (sleeps, limits) = (ManualSleep::default(), POLICY.replace("length: 4", "length: 9"));
    let policy = format!("{classes}\n{limits}");
    let room = sleeps.room(2);
    let site = Site::new(&policy).in_room(&room);
    let _first = site.send().now().unwrap();
    let before = site.left();
    let [mut older, mut newer] = ["/bulk", "/bulk"].map(|path| site.send_to(path));
    assert!(older.now().is_none() && newer.now().is_none());
    let two_wait = site.left();
    let mut critical = site.send_to("/pay");
    assert!(critical.now().is_none(), "it waits, although the room is full");
    let answer = newer.now().expect("it has lost its place");
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(answer.headers().contains_key("tollgate-decision"));
    let body = json(answer);
    assert!(body["detail"].as_str().unwrap().contains("a more important request took the place"), "{body}");
    // Its place in the queue is before that of the critical request, and comes back with it.
    assert_eq!(site.left()[1..], two_wait[1..], "the displaced request is refunded, and the other charged");
    assert_eq!((room.waiting(), room.displaced(), room.refused()), (2, 1, 0));
    for path in ["/bulk", "/bulk"] {
        assert_eq!(site.send_to(path).now().expect("no place").status(), 429);
    }
    assert_eq!((room.displaced(), room.refused()), (1, 2));
    // Requests of the middle class displace, and are displaced.
    let mut normal = site.send();
    assert!(normal.now().is_none());
    assert_eq!(older.now().expect("it has lost its place").status(), 429);
    let mut second = site.send_to("/pay");
    assert!(second.now().is_none());
    assert_eq!(normal.now().expect("it has lost its place").status(), 429);
    assert_eq!(site.send_to("/pay").now().expect("both places are critical").status(), 429);
    assert_eq!((site.calls(), room.waiting(), room.displaced(), room.refused()), (1, 2, 3, 3));
    drop((critical, second));
    assert_eq!((room.waiting(), site.left()), (0, before));
}

#[test]
fn a_request_that_a_shutdown_does_not_let_wait_is_answered_with_503_and_charges_nothing() {
    let sleeps = ManualSleep::default();
    let room = sleeps.room(10);
    let site = Site::new(POLICY).in_room(&room);
    let _first = site.send().now().unwrap();
    let before = site.left();
    let mut waiting = site.hold();
    sleeps.end_first(Err(ShuttingDown));
    let answer = waiting.now().expect("it has been answered");
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert!(answer.headers().contains_key("tollgate-decision"));
    assert_eq!(json(answer)["title"], "Temporary Reduced Capacity");
    assert_eq!((site.calls(), room.waiting(), site.left()), (1, 0, before));
}

#[test]
fn a_reload_while_a_request_waits_does_not_keep_what_it_gives_back() {
    let sleeps = ManualSleep::default();
    let room = sleeps.room(10);
    let site = Site::new(POLICY).in_room(&room);
    let first = site.send().now().unwrap();
    let before = site.left();
    let waiting = site.hold();
    site.limiter.replace(Policy::parse(&POLICY.replace("length: 4", "length: 9")).unwrap());
    drop(waiting);
    assert_eq!(site.left(), [before[0] + 5, before[1], before[2]]);
    let waiting = site.hold();
    // The slots are released although their limit is gone.
    let without_slots: Vec<_> = POLICY.lines().take(3).collect();
    site.limiter.replace(Policy::parse(&without_slots.join("\n")).unwrap());
    drop((waiting, first));
    site.limiter.replace(Policy::parse(POLICY).unwrap());
    assert_eq!(site.left(), [before[0], before[1], 10]);
}

#[test]
fn a_request_takes_a_place_in_the_tarpit_when_its_turn_in_the_queue_comes() {
    let policy = "limits:
      - {by: global, algorithm: leaky-queue, rate: 10/second, queue: {length: 4}}
      - {by: global, bucket: 100/hour, soft: {at: 1%, tarpit: 50ms}}";
    let (queue, tarpit) = (ManualSleep::default(), ManualSleep::default());
    let (room, pit) = (queue.room(10), {
        let sleeps = tarpit.clone();
        Tarpit::new(10, move |time| {
            let (wake, woken) = oneshot::channel();
            sleeps.0.lock().unwrap().push((time, wake));
            async move { drop(woken.await) }
        })
    });
    let mut site = Site::new(policy).in_room(&room);
    site.layer = site.layer.with_tarpit(pit.clone());
    let _in_tarpit = site.hold();
    let mut both = site.hold();
    assert_eq!((queue.sleeping(), tarpit.sleeping()), (vec![100], vec![50]));
    assert_eq!((room.waiting(), pit.waiting()), (1, 1), "it takes one place, not two");
    queue.end_first(Ok(()));
    assert!(both.now().is_none(), "it is still delayed");
    assert_eq!((room.waiting(), pit.waiting(), tarpit.sleeping()), (0, 2, vec![50, 50]));
    tarpit.end_first(Ok(()));
    tarpit.end_first(Ok(()));
    assert_eq!(both.now().unwrap().status(), 200);
    assert_eq!((room.waiting(), pit.waiting(), site.calls()), (0, 1, 1));
}

/// A service that is ready with a permit, as `ConcurrencyLimit` of tower is.
struct WithPermit(Arc<Semaphore>, Option<OwnedSemaphorePermit>);

impl Clone for WithPermit {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), None)
    }
}

impl Service<Request<()>> for WithPermit {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.1.is_none() {
            self.1 = Arc::clone(&self.0).try_acquire_owned().ok();
        }
        if self.1.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        drop(self.1.take().expect("it was ready"));
        ready(Ok(Response::new(Full::from("hello"))))
    }
}

#[test]
fn a_waiting_request_does_not_keep_the_inner_service_ready() {
    let (sleeps, permits) = (ManualSleep::default(), Arc::new(Semaphore::new(1)));
    let site = Site::new(POLICY).in_room(&sleeps.room(100));
    let send = || {
        let service = site.layer.layer(WithPermit(Arc::clone(&permits), None));
        PendingResponse(Box::pin(service.oneshot(Request::new(()))))
    };
    assert!(send().now().is_some());
    let mut waiting = send();
    assert!(waiting.now().is_none(), "it waits");
    assert_eq!(permits.available_permits(), 1);
    let other = Arc::clone(&permits).try_acquire_owned().unwrap();
    sleeps.end_first(Ok(()));
    assert!(waiting.now().is_none(), "another request has the permit");
    drop(other);
    assert_eq!(waiting.now().expect("it is ready again").status(), 200);
}

#[tokio::test]
async fn a_remote_store_gets_the_refund_from_the_spawn_hook() {
    let sleeps = ManualSleep::default();
    let room = sleeps.room(1);
    let limiter: SharedLimiter<_> = Limiter::with_store(
        Policy::parse(POLICY).unwrap(),
        RemoteStore(MemoryStore::with_clock(100, clock())),
    )
    .into();
    let background = Arc::new(Mutex::new(Vec::new()));
    let later = Arc::clone(&background);
    let spawn = move |work| later.lock().unwrap().push(work);
    let layer = LimitLayer::spawning(limiter.clone(), spawn);
    let site = Site { clock: clock(), limiter, layer, calls: Arc::default() }.in_room(&room);
    let left = async || {
        let limiter = site.limiter.load();
        let decision = limiter.decide_without_slots(&tollgate::Call::new("GET", "/").cost(0)).await;
        decision.limits().map(|it| it.outcome().remaining).collect::<Vec<_>>()
    };
    let _first = site.send().0.await.unwrap();
    let before = left().await;
    let mut waiting = site.send();
    while sleeps.sleeping().is_empty() {
        assert!(waiting.now().is_none());
    }
    let full = site.send().0.await.unwrap();
    assert_eq!((full.status().as_u16(), &full.headers()["retry-after-ms"]), (429, &"200".parse().unwrap()));
    drop(waiting);
    assert_eq!(room.waiting(), 0);
    let work: Vec<_> = background.lock().unwrap().drain(..).collect();
    assert_eq!(work.len(), 2, "that of the refused one, and that of the one that left");
    for work in work {
        work.await;
    }
    assert_eq!((left().await, site.calls()), (before, 1));
}
