//! Requests over a soft threshold are delayed: a bounded number, for a bounded time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::sync::oneshot;
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Timestamp};
use tollgate_http::{LimitBody, LimitLayer, SoftNotice, Tarpit};
use tollgate_testkit::poll_once;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

/// Every request is over the threshold. Its delay is the longest of its limits.
const POLICY: &str = "limits:
  - {name: some, by: global, bucket: 100/hour, soft: {at: 1%, tarpit: 100ms}}
  - {name: more, endpoint: /more, by: global, bucket: 100/hour, soft: {at: 1%, tarpit: 250ms}}
  - {name: mark, by: global, bucket: 100/hour, soft: 1%}
  - {name: at-once, by: global, slots: 3}";

/// The length of a sleep, and the sender that ends it.
type Sleeper = (Duration, oneshot::Sender<()>);

/// Sleeps that end when the test ends them.
#[derive(Clone, Default)]
struct ManualSleep(Arc<Mutex<Vec<Sleeper>>>);

impl ManualSleep {
    fn tarpit(&self, most: usize) -> Tarpit {
        let sleeps = self.0.clone();
        Tarpit::new(most, move |time| {
            let (wake, woken) = oneshot::channel();
            sleeps.lock().unwrap().push((time, wake));
            async move {
                let _ = woken.await;
            }
        })
    }

    /// The lengths in milliseconds of the sleeps that have not ended.
    fn sleeping(&self) -> Vec<u128> {
        self.0.lock().unwrap().iter().map(|it| it.0.as_millis()).collect()
    }

    fn wake_first(&self) {
        let _ = self.0.lock().unwrap().remove(0).1.send(());
    }
}

async fn hello(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let held = request.extensions().get::<SoftNotice>().map(|it| it.held().as_millis().to_string());
    let notice = request.headers().get("tollgate-soft").cloned();
    let answer = Response::builder().header("held", held.unwrap_or_default());
    Ok(answer.header("told", notice.unwrap()).body(Full::from("hello")).unwrap())
}

type Answer = Response<LimitBody<Full<Bytes>>>;

/// A response that has not arrived yet.
struct PendingResponse(Pin<Box<dyn Future<Output = Result<Answer, Infallible>>>>);

impl PendingResponse {
    fn now(&mut self) -> Option<Answer> {
        match poll_once(self.0.as_mut()) {
            Poll::Ready(answer) => Some(answer.unwrap()),
            Poll::Pending => None,
        }
    }
}

fn layer(policy: &str) -> LimitLayer<MemoryStore<ManualClock>> {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{wrong}"));
    LimitLayer::new(Limiter::with_store(policy, MemoryStore::with_clock(100, clock)))
}

/// Sends requests to a service behind a tarpit.
fn asking(tarpit: &Tarpit) -> impl Fn(&str) -> PendingResponse + use<> {
    let service = layer(POLICY).with_tarpit(tarpit.clone()).layer(service_fn(hello));
    move |path| PendingResponse(Box::pin(service.clone().oneshot(Request::get(path).body(()).unwrap())))
}

#[test]
fn a_request_waits_for_the_longest_of_its_limits_and_then_passes_marked() {
    let sleeps = ManualSleep::default();
    let tarpit = sleeps.tarpit(10);
    let ask = asking(&tarpit);
    for (path, wait, notice) in [("/", 100, "some, mark"), ("/more", 250, "some, more, mark")] {
        let mut response = ask(path);
        assert!(response.now().is_none());
        assert_eq!((sleeps.sleeping(), tarpit.waiting()), (vec![wait], 1));
        sleeps.wake_first();
        let answer = response.now().expect("it has waited");
        assert_eq!(
            (&answer.headers()["held"], &answer.headers()["told"]),
            (&wait.to_string().parse().unwrap(), &notice.parse().unwrap())
        );
        assert!(answer.headers().contains_key("ratelimit"));
        assert_eq!(tarpit.waiting(), 0);
    }
    assert_eq!((tarpit.held(), tarpit.passed()), (2, 0));
}

#[test]
fn a_request_without_a_free_place_passes_immediately() {
    let sleeps = ManualSleep::default();
    let tarpit = sleeps.tarpit(1);
    let ask = asking(&tarpit);
    let mut first = ask("/");
    assert!(first.now().is_none());
    for _ in 0..5 {
        let answer = ask("/").now().expect("it does not wait");
        assert_eq!(
            (&answer.headers()["held"], &answer.headers()["told"]),
            (&"0".parse().unwrap(), &"some, mark".parse().unwrap())
        );
    }
    assert_eq!((tarpit.waiting(), tarpit.max_held(), tarpit.held(), tarpit.passed()), (1, 1, 1, 5));
    sleeps.wake_first();
    assert!(first.now().is_some());
    assert!(ask("/").now().is_none(), "there is a place again");
}

#[test]
fn a_canceled_request_frees_its_place_and_slots() {
    let sleeps = ManualSleep::default();
    let tarpit = sleeps.tarpit(10);
    let ask = asking(&tarpit);
    let mut waiting: Vec<_> = (0..3).map(|_| ask("/")).collect();
    assert!(waiting.iter_mut().all(|it| it.now().is_none()));
    let refused = ask("/").now().expect("a refusal does not wait");
    assert_eq!(refused.status(), 429, "those that wait hold all slots");
    waiting.pop();
    assert_eq!(tarpit.waiting(), 2);
    assert!(ask("/").now().is_none(), "a slot is free and a place too");
    drop(waiting);
    assert_eq!((tarpit.waiting(), tarpit.held()), (0, 4));
}

#[test]
fn a_request_that_is_never_polled_holds_no_place() {
    let tarpit = ManualSleep::default().tarpit(1);
    let mut service = layer(POLICY).with_tarpit(tarpit.clone()).layer(service_fn(hello));
    drop(service.call(Request::new(())));
    assert_eq!(tarpit.waiting(), 0);
}

#[test]
fn without_a_tarpit_or_with_one_of_no_places_requests_are_only_marked() {
    let sleeps = ManualSleep::default();
    let none = sleeps.tarpit(0);
    for layer in [layer(POLICY), layer(POLICY).with_tarpit(none.clone())] {
        let service = layer.layer(service_fn(hello));
        let answer =
            PendingResponse(Box::pin(service.oneshot(Request::new(())))).now().expect("it does not wait");
        assert_eq!(answer.headers()["told"], "some, mark");
    }
    assert_eq!((sleeps.sleeping(), none.held(), none.passed()), (vec![], 0, 0), "it is off, not full");
}

#[test]
fn clones_share_their_places_whatever_they_sleep_on() {
    let tarpit = ManualSleep::default().tarpit(2);
    let also = tarpit.sleeping(|_| std::future::pending());
    let mut waiting = [asking(&tarpit)("/"), asking(&tarpit.clone())("/")];
    assert!(waiting.iter_mut().all(|it| it.now().is_none()));
    assert!(asking(&also)("/").now().is_some(), "both places are taken");
    assert_eq!((also.waiting(), tarpit.passed()), (2, 1));
    drop(waiting);
    assert!(asking(&also)("/").now().is_none());
}
