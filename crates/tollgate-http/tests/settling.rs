//! Costs that are settled by the response: the reserve is corrected however the request ends, and
//! requests without settling limits pay nothing for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod remote_store;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, SharedLimiter, Span, Timestamp};
use tollgate_http::{Detached, LimitBody, LimitLayer, NotForwarded, Tarpit};
use tollgate_testkit::{CountingAllocator, allocations, poll_once};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use remote_store::RemoteStore;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// A body that arrives in these pieces.
struct Frames(VecDeque<Piece>);

enum Piece {
    Whole(Frame<Bytes>),
    /// The body ends with an error here.
    Cut,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop_front().map(|piece| match piece {
            Piece::Whole(frame) => Ok(frame),
            Piece::Cut => Err("broken off"),
        }))
    }
}

fn data(piece: &str) -> Piece {
    Piece::Whole(Frame::data(Bytes::copy_from_slice(piece.as_bytes())))
}

fn trailer(name: &'static str, value: &str) -> Piece {
    let mut trailers = HeaderMap::new();
    trailers.insert(name, value.parse().unwrap());
    Piece::Whole(Frame::trailers(trailers))
}

fn answer<const N: usize>(headers: &[(&str, &str)], pieces: [Piece; N]) -> Response<Frames> {
    let mut answer = Response::new(Frames(pieces.into()));
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        answer.headers_mut().append(name, value.parse().unwrap());
    }
    answer
}

/// A limiter with a manual clock.
struct Subject {
    clock: ManualClock,
    limiter: SharedLimiter<MemoryStore<ManualClock>>,
}

fn subject(policy: &str) -> Subject {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let limiter = Limiter::with_store(policy, MemoryStore::with_clock(100, clock.clone())).into();
    Subject { clock, limiter }
}

/// Creates a limiter with 1,000 units a day, of which a request reserves 100.
fn tokens(settle: &str) -> Subject {
    subject(&format!(
        "limits: [{{name: tokens, by: global, rate: 1000/day, algorithm: fixed-window,
                    cost: {{reserve: 100, settle: '{settle}'}}}}]"
    ))
}

impl Subject {
    fn layer(&self) -> LimitLayer<MemoryStore<ManualClock>> {
        LimitLayer::new(self.limiter.clone()).with_clock(self.clock.clone())
    }

    /// Returns the remaining units of each limit.
    fn left(&self) -> Vec<u64> {
        let limiter = self.limiter.load();
        limiter.check(&Call::new("GET", "/").cost(0)).limits().map(|it| it.outcome().remaining).collect()
    }

    /// Sends one request that gets this response, without reading the body.
    async fn begin(&self, answer: Response<Frames>) -> Pin<Box<LimitBody<Frames>>> {
        let answer = Arc::new(Mutex::new(Some(answer)));
        let service = self.layer().layer(service_fn(move |_: Request<()>| {
            let answer = answer.lock().unwrap().take().unwrap();
            async move { Ok::<_, Infallible>(answer) }
        }));
        Box::pin(service.oneshot(Request::new(())).await.unwrap().into_body())
    }

    /// Sends one request and reads its response to the end.
    async fn serve(&self, answer: Response<Frames>) {
        let mut body = self.begin(answer).await;
        while let Some(Ok(_)) = body.frame().await {}
    }
}

/// Checks the remaining units of 1,000 after one response.
#[track_caller]
fn check(settle: &str, answer: Response<Frames>, left: u64) {
    let subject = tokens(settle);
    pollster::block_on(subject.serve(answer));
    assert_eq!(subject.left(), [left], "{settle}");
}

#[test]
fn a_header_or_trailer_of_the_response_settles_the_cost() {
    let used = |value: &str| answer(&[("x-used", value)], [data("hello")]);
    check("response:X-Used", used("250"), 750);
    check("response:X-Used", used(" 7 "), 993);
    check("response:X-Used", used("0"), 1_000);
    check("response:X-Used", answer(&[], [data("hello"), trailer("x-used", "30")]), 970);
    check("response:X-Used", answer(&[("x-used", "999")], [data(""), trailer("x-used", "30")]), 970);
    for nonsense in ["", "-5", "1.5", "many", "0x10"] {
        check("response:X-Used", used(nonsense), 900);
    }
    check("response:X-Used", answer(&[("x-other", "5")], [data("hello")]), 900);
}

#[test]
fn a_number_in_the_json_of_the_response_settles_the_cost() {
    const JSON: (&str, &str) = ("content-type", "application/json");
    const EVENTS: (&str, &str) = ("content-type", "text/event-stream; charset=utf-8");
    let total = "json:usage.total";
    check(total, answer(&[JSON], [data(r#"{"text":"a","usage":{"to"#), data(r#"tal":250}}"#)]), 750);
    check(total, answer(&[], [data(r#"{"usage":{"total":250}}"#)]), 750);
    check(total, answer(&[JSON], [data(r#"{"usage":null}"#)]), 900);
    check(total, answer(&[JSON], []), 900);
    check(total, answer(&[("content-type", "text/html")], [data("<p>usage</p>")]), 900);
    let stream = [
        data("data: {\"text\":\"a\"}\n\nda"),
        data("ta: {\"usage\":{\"total\":40}}\n"),
        data("\ndata: {\"usage\":{\"total\":250}}\n\ndata: [DONE]\n\n"),
    ];
    check(total, answer(&[EVENTS], stream), 750);
    // The byte order mark is skipped, and names are compared after unescaping.
    check(total, answer(&[JSON], [data("\u{feff}{\"usage\":{\"total\":250}}")]), 750);
    check(total, answer(&[EVENTS], [data("\u{feff}data: {\"usage\":{\"total\":250}}\n\n")]), 750);
    check(total, answer(&[JSON], [data(r#"{"us\u0061ge":{"total":250}}"#)]), 750);
    // A compressed body is not read; the charge stays at the reserve.
    let packed = [JSON, ("content-encoding", "gzip")];
    check(total, answer(&packed, [data(r#"{"usage":{"total":1}}"#)]), 900);
    check(total, answer(&[JSON, ("content-encoding", "identity")], [data(r#"{"usage":{"total":1}}"#)]), 999);
}

#[test]
fn debt_is_bounded_by_one_whole_allowance() {
    let subject =
        subject("limits: [{by: global, bucket: 1000/day, cost: {reserve: 100, settle: 'response:x-used'}}]");
    pollster::block_on(subject.serve(answer(&[("x-used", "99999999999999999999999")], [])));
    assert_eq!(subject.left(), [0]);
    subject.clock.advance(Span::from_days(1));
    assert_eq!(subject.left(), [0], "the second day pays for the first");
    subject.clock.advance(Span::from_days(1));
    assert_eq!(subject.left(), [1_000]);
}

#[test]
fn time_is_measured_until_the_last_byte_or_the_disconnect() {
    let subject = tokens("time:10ms");
    let mut body = pollster::block_on(subject.begin(answer(&[], [data("hello")])));
    subject.clock.advance(Span::from_millis(1_501));
    pollster::block_on(body.frame()).unwrap().unwrap();
    assert_eq!(subject.left(), [900], "the reserve, until it is over");
    assert!(pollster::block_on(body.frame()).is_none());
    assert_eq!(subject.left(), [849], "151 begun");
    drop(body);
    assert_eq!(subject.left(), [849], "once");

    let subject = tokens("time:10ms");
    let body = pollster::block_on(subject.begin(answer(&[], [data("hello")])));
    subject.clock.advance(Span::from_millis(20));
    drop(body);
    assert_eq!(subject.left(), [998]);

    let subject = tokens("time:10ms");
    pollster::block_on(subject.serve(answer(&[], [data("half"), Piece::Cut])));
    assert_eq!(subject.left(), [999], "at least one, and an answer that breaks off is no gift");
}

#[test]
fn a_disconnect_before_the_response_settles_the_known_costs() {
    for (settle, left) in [("time:10ms", 993), ("response:x-used", 900), ("json:a", 900)] {
        let subject = tokens(settle);
        let stuck = |_: Request<()>| pending::<Result<Response<Frames>, Infallible>>();
        let mut service = subject.layer().layer(service_fn(stuck));
        let mut waiting = Box::pin(service.call(Request::new(())));
        assert!(poll_once(waiting.as_mut()).is_pending());
        subject.clock.advance(Span::from_millis(61));
        drop(waiting);
        assert_eq!(subject.left(), [left], "{settle}");
    }
}

#[test]
fn an_error_or_a_response_without_cost_keeps_the_reserve() {
    let subject = tokens("response:x-used");
    let broken = |_: Request<()>| async { Err::<Response<Frames>, &str>("broken") };
    let failed = subject.layer().layer(service_fn(broken)).oneshot(Request::new(()));
    assert_eq!(pollster::block_on(failed).err(), Some("broken"));
    assert_eq!(subject.left(), [900]);
    pollster::block_on(subject.serve(answer(&[], [data("half"), Piece::Cut])));
    assert_eq!(subject.left(), [800]);
}

#[test]
fn requests_that_were_not_forwarded_are_refunded() {
    for settle in ["time:10ms", "response:x-used", "json:a"] {
        let subject = tokens(settle);
        let mut unreached = answer(&[("x-used", "500")], [data(r#"{"a":500}"#)]);
        unreached.extensions_mut().insert(NotForwarded);
        pollster::block_on(subject.serve(unreached));
        assert_eq!(subject.left(), [1_000], "{settle}");
    }
    // Refused by an inner layer.
    let (outer, inner) = (tokens("time:10ms"), subject("limits: [{by: global, bucket: 1/day}]"));
    let hello = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) };
    let service = outer.layer().layer(inner.layer().layer(service_fn(hello)));
    for (status, left) in [(200, 999), (429, 999)] {
        let response = pollster::block_on(service.clone().oneshot(Request::new(()))).unwrap();
        assert_eq!(response.status(), status);
        drop(response);
        assert_eq!(outer.left(), [left]);
    }
}

#[test]
fn a_request_canceled_in_the_tarpit_is_refunded() {
    let subject = subject(
        "limits: [{by: global, rate: 1000/day, algorithm: fixed-window, soft: {at: 1%, tarpit: 1s},
                   cost: {reserve: 100, settle: 'time:10ms'}}]",
    );
    let never =
        |_: Request<()>| -> std::future::Ready<Result<Response<Frames>, Infallible>> { panic!("called") };
    let mut service = subject.layer().with_tarpit(Tarpit::new(1, |_| pending())).layer(service_fn(never));
    let mut waiting = Box::pin(service.call(Request::new(())));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert_eq!(subject.left(), [900]);
    drop(waiting);
    assert_eq!(subject.left(), [1_000]);
}

#[test]
fn each_limit_settles_by_its_own_source_and_other_limits_keep_their_charge() {
    let day = "by: global, rate: 1000/day, algorithm: fixed-window";
    let subject = subject(&format!(
        "limits:
           - {{name: requests, {day}}}
           - {{name: used, {day}, cost: {{reserve: 100, settle: 'response:x-used'}}}}
           - {{name: json, {day}, cost: {{reserve: 100, settle: 'json:n'}}}}
           - {{name: again, {day}, cost: {{settle: 'json:n'}}}}
           - {{name: time, {day}, mode: shadow, cost: {{reserve: 100, settle: 'time:1s'}}}}
           - {{name: silent, {day}, cost: {{reserve: 100, settle: 'json:nothing'}}}}
           - {{name: windows, by: global, algorithm: fixed-window, windows: [500/hour, 1000/day],
               cost: {{settle: 'json:n'}}, candidate: {{windows: [600/hour, 900/day]}}}}"
    ));
    pollster::block_on(subject.serve(answer(&[("x-used", "7")], [data("{\"n\":250}")])));
    let expected = [999, 993, 750, 750, 999, 900, 250, 750, 350, 650];
    assert_eq!(subject.left(), expected);
}

#[test]
fn a_cost_is_settled_under_the_policy_in_force_at_the_end() {
    let subject = tokens("response:x-used");
    let body = pollster::block_on(subject.begin(answer(&[("x-used", "250")], [])));
    let larger = "limits: [{name: tokens, by: global, rate: 5000/day, algorithm: fixed-window, cost: 9}]";
    subject.limiter.replace(Policy::parse(larger).unwrap());
    assert_eq!(subject.left(), [4_900], "what was spent still counts");
    drop(body);
    assert_eq!(subject.left(), [4_750]);
}

#[test]
fn detached_work_is_settled_when_it_ends() {
    let (subject, work) = (tokens("time:10ms"), Detached::default());
    let mut switching = answer(&[], []);
    switching.extensions_mut().insert(work.clone());
    pollster::block_on(subject.serve(switching));
    subject.clock.advance(Span::from_millis(500));
    assert_eq!(subject.left(), [900]);
    drop(work);
    assert_eq!(subject.left(), [950]);
}

#[test]
fn requests_whose_cost_is_in_the_body_ask_for_identity_encoding() {
    for (settle, expected) in [("json:usage.total", "identity"), ("response:x-used", "gzip, br")] {
        let subject = tokens(settle);
        let service = subject.layer().layer(service_fn(async |request: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(
                request.headers()[ACCEPT_ENCODING].to_str().unwrap().to_owned(),
            )))
        }));
        let request = Request::get("/").header(ACCEPT_ENCODING, "gzip, br").body(()).unwrap();
        let body = pollster::block_on(service.oneshot(request)).unwrap().into_body();
        assert_eq!(pollster::block_on(body.collect()).unwrap().to_bytes(), expected);
    }
}

#[test]
fn a_body_costs_its_length_or_one_if_the_length_is_unknown() {
    for (headers, left) in [
        (&[("content-length", "2049")][..], 997),
        (&[("content-length", "2048")], 998),
        (&[("content-length", "0")], 999),
        (&[], 999),
        (&[("content-length", "nonsense")], 999),
        (&[("content-length", "999999"), ("transfer-encoding", "chunked")], 999),
        (&[("content-length", "99999999999999999999999")], 1_000),
    ] {
        let subject =
            subject("limits: [{by: global, rate: 1000/day, algorithm: fixed-window, cost: 'body:1KB'}]");
        let service = subject.layer().layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
        }));
        let mut request = Request::post("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        drop(pollster::block_on(service.oneshot(request.body(()).unwrap())).unwrap());
        assert_eq!(subject.left(), [left], "{headers:?}");
    }
}

#[tokio::test]
async fn a_remote_store_settles_in_the_background() {
    let policy = "limits: [{by: global, rate: 1000/day, algorithm: fixed-window, cost: {reserve: 100, settle: 'response:x-used'}},
                           {by: global, slots: 1}]";
    let store =
        RemoteStore(MemoryStore::with_clock(100, ManualClock::at(Timestamp::from_secs(1_700_000_000))));
    let limiter: SharedLimiter<RemoteStore> =
        Limiter::with_store(Policy::parse(policy).unwrap(), store).into();
    let background = Arc::new(Mutex::new(Vec::new()));
    let later = Arc::clone(&background);
    let layer = LimitLayer::spawning(limiter.clone(), move |work| later.lock().unwrap().push(work));
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(answer(&[("x-used", "250")], [data("hello")]))
    }));
    drop(service.oneshot(Request::new(())).await.unwrap());
    let standing = async || {
        let limiter = limiter.load();
        let decision = limiter.decide(&Call::new("GET", "/").cost(0)).await;
        decision.limits().map(|it| it.outcome().remaining).collect::<Vec<_>>()
    };
    assert_eq!(standing().await, [900, 0], "nothing waits for it");
    let work = background.lock().unwrap().pop().expect("a cost to settle and a slot to give back");
    work.await;
    assert_eq!(standing().await, [750, 1]);
    assert!(background.lock().unwrap().is_empty(), "one piece of work for both");
}

/// Counts the allocations of the second of two equal requests.
fn allocations_under(policy: &str) -> u64 {
    let subject = subject(policy);
    let hello =
        |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))));
    let mut service = subject.layer().layer(service_fn(hello));
    let mut serve = || {
        let request = Request::get("/plain").body(()).unwrap();
        allocations(|| {
            let mut answer = Box::pin(service.call(request));
            let Poll::Ready(answer) = poll_once(answer.as_mut()) else { panic!("nothing waits here") };
            drop(answer.unwrap());
        })
    };
    serve();
    serve()
}

#[test]
fn requests_without_settling_limits_allocate_nothing_extra() {
    let plain = "{name: plain, endpoint: /plain, by: global, bucket: 1000/hour}";
    let settling =
        "{name: tokens, endpoint: /tokens, by: global, bucket: 1000/hour, cost: {settle: 'json:a.b'}}";
    let without = allocations_under(&format!("limits: [{plain}]"));
    let synonyms = allocations_under(&format!("limits: [{plain}, {settling}]"));
    assert_eq!(synonyms, without);
    let covered = allocations_under(&format!("limits: [{}]", settling.replace("/tokens", "/plain")));
    assert!(covered > without, "the test can tell the difference");
}
