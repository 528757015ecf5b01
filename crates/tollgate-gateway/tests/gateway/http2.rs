//! HTTP/2 on both sides, with and without TLS.

use std::sync::{Mutex, mpsc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Version};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::support::{
    Behind, Certificate, Feed, H2Upstream, OK, ONCE, ONE_SLOT_RELEASED, Upstream, eventually, http2, wait_for,
};

pub(crate) fn get(path: &str) -> Request<Feed> {
    Request::get(format!("http://example.com{path}")).body(Feed::nothing()).unwrap()
}

#[test]
fn requests_share_a_connection_and_are_forwarded_as_http_1() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let responses: Vec<_> =
            (0..20).map(|it| client.requests.send_request(get(&format!("/{it}")))).collect();
        for answer in responses {
            let answer = answer.await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
        }
        let mut cookies = get("/cookies");
        cookies.headers_mut().append("cookie", "a=1".parse().unwrap());
        cookies.headers_mut().append("cookie", "b=2".parse().unwrap());
        client.requests.send_request(cookies).await.unwrap();
    });
    let seen = upstream.seen();
    assert_eq!(seen.len(), 21);
    let last = seen.last().unwrap();
    assert_eq!(last.start, "GET /cookies HTTP/1.1");
    let names = ["host", "via", "cookie", "x-forwarded-proto"];
    assert_eq!(names.map(|it| last.header(it)), ["example.com", "2 tollgate", "a=1; b=2", "http"]);
}

#[test]
fn refusals_and_problems_are_sent_over_http_2_too() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {header_bytes: 4KiB, body: 1KB}").limited(ONCE).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let status = async |client: &mut crate::support::Http2, request| {
            client.requests.send_request(request).await.unwrap().status().as_u16()
        };
        assert_eq!(status(&mut client, get("/")).await, 200);
        // The upload has no end and is not awaited.
        let (feed, upload) = Feed::new();
        let post = Request::post("http://example.com/").body(upload).unwrap();
        assert_eq!(status(&mut client, post).await, 429);
        drop(feed);
        let mut long = get("/");
        long.headers_mut().insert("x", "x".repeat(5_000).parse().unwrap());
        assert_eq!(status(&mut client, long).await, 431);
        assert_eq!(status(&mut client, get("/")).await, 429, "the connection lives on");
    });
    assert_eq!(upstream.seen().len(), 1);

    let gateway = Behind::new(&upstream).with("caps: {body: 1KB}").serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let connect = Request::builder().method(Method::CONNECT).uri("example.com:443");
        let answer = client.requests.send_request(connect.body(Feed::nothing()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 405);
        let (feed, upload) = Feed::new();
        let post = Request::post("http://example.com/").body(upload).unwrap();
        let answer = client.requests.send_request(post);
        feed.data(vec![0; 2_000]);
        assert_eq!(answer.await.unwrap().status(), 413);
    });
}

#[test]
fn more_headers_than_the_caps_allow_are_refused_with_the_reason() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {headers: 20}").serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        for (count, status) in [(20, 200), (21, 431), (20, 200)] {
            let mut request = get("/");
            for number in 0..count {
                let name: http::HeaderName = format!("x-{number}").parse().unwrap();
                request.headers_mut().insert(name, "1".parse().unwrap());
            }
            let answer = client.requests.send_request(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{count}");
            if status == 431 {
                assert_eq!(answer.headers()["content-type"], "application/problem+json");
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                assert!(String::from_utf8_lossy(&body).contains(r#""status":431,"#), "{body:?}");
            }
        }
    });
    assert_eq!(upstream.seen().len(), 2);
}

/// Bidirectional streaming with trailers, as in gRPC.
#[test]
fn frames_and_trailers_pass_both_ways_concurrently() {
    let upstream = H2Upstream::echo();
    let gateway = Behind::all(&[format!("h2c://{}", upstream.address)]).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        for _ in 0..2 {
            let (feed, upload) = Feed::new();
            let call = Request::post("http://example.com/pkg.Service/Call").header("te", "trailers");
            let answer = client.requests.send_request(call.body(upload).unwrap());
            feed.data("ping".as_bytes());
            let mut answer = answer.await.unwrap();
            assert_eq!(answer.headers()["seen"], "POST http://example.com/pkg.Service/Call te=trailers");
            let body = answer.body_mut();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(first, "ping", "before the call has ended");
            feed.data("pong".as_bytes());
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            feed.trailers(trailers);
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "pong");
            let end = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!(end["grpc-status"], "0");
            assert!(body.frame().await.is_none() && body.is_end_stream());
        }
    });
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn http_1_clients_reach_http_2_upstreams() {
    let upstream = H2Upstream::echo();
    let gateway = Behind::all(&[format!("h2c://{}", upstream.address)]).serve();
    let mut client = gateway.connect();
    let answer = client.ask(
        "POST /x?y=1 HTTP/1.1\r\nhost: one.example\r\nte: trailers\r\ntrailer: x-end\r\ntransfer-encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\nx-end: 1\r\n\r\n",
    );
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hi"));
    assert_eq!(answer.header("seen"), "POST http://one.example/x?y=1 te=trailers");
    // A host that HTTP/2 cannot represent is refused.
    client.ask("GET /x HTTP/1.1\r\nhost: a:b:c\r\n\r\n").assert_problem(400);
    let upgrade = "GET /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    assert_eq!(client.ask(upgrade).status(), 200, "there is no change of protocol");
}

#[test]
fn an_http_2_upstream_that_went_away_is_connected_to_again() {
    let upstream = H2Upstream::one_each();
    let gateway = Behind::all(&[format!("h2c://{}", upstream.address)]).serve();
    let mut client = gateway.connect();
    for number in 0..5 {
        let answer = client.get(&format!("/{number}"));
        assert_eq!(answer.header("seen"), format!("GET http://example.com/{number} te="), "{answer:?}");
    }
    assert!(upstream.connections() > 1);
}

#[test]
fn tls_negotiates_the_protocol_of_the_client() {
    let upstream = Upstream::ok();
    let certificate = Certificate::of("localhost");
    let gateway = Behind::new(&upstream).with(&certificate.served()).serve();
    for (offered, spoken, via) in [
        (&["h2", "http/1.1"][..], Some("h2"), "2 tollgate"),
        (&["http/1.1"], Some("http/1.1"), "1.1 tollgate"),
        (&[], None, "1.1 tollgate"),
    ] {
        let (agreed, status) = wait_for(certificate.get(gateway.address, offered));
        assert_eq!((agreed.as_deref(), status), (spoken, 200), "{offered:?}");
        let seen = upstream.seen().pop().unwrap();
        assert_eq!((seen.header("via"), seen.header("x-forwarded-proto")), (via, "https"));
    }
    // A client without TLS gets no response and does not block others.
    let mut plain = gateway.connect();
    plain.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(!String::from_utf8_lossy(&plain.rest()).contains("HTTP/1.1"));
    assert_eq!(upstream.seen().len(), 3);
}

#[test]
fn tls_upstreams_are_verified_by_their_certificate() {
    let upstream = Upstream::ok();
    let certificate = Certificate::of("localhost");
    let behind = Behind::new(&upstream).with(&certificate.served()).serve();
    let origin = |host: &str| Behind::all(&[format!("https://{host}:{}", behind.address.port())]);
    let known = format!("upstream_ca: \"{}\"", certificate.path());
    let gateway = origin("localhost").with(&known).serve();
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "ok");
    }
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(seen.header("host"), "example.com");
    let via: Vec<_> = seen.headers.iter().filter(|it| it.0 == "via").map(|it| &*it.1).collect();
    assert_eq!(via, ["1.1 tollgate", "2 tollgate"], "HTTP/2 between the two");
    origin("localhost").serve().get("/").assert_problem(502);
    origin("127.0.0.1").with(&known).serve().get("/").assert_problem(502);
    let other = Certificate::of("localhost");
    origin("localhost")
        .with(&format!("upstream_ca: \"{}\"", other.path()))
        .serve()
        .get("/")
        .assert_problem(502);
    assert_eq!(upstream.seen().len(), 3);
}

#[test]
fn a_canceled_request_ends_at_the_upstream_too() {
    let upstream = Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            if request.start.contains("/slow") {
                return turn.wire.assert_closed();
            }
            turn.wire.send(OK);
        }
    });
    let gateway = Behind::new(&upstream).limited(ONE_SLOT_RELEASED).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let slow = tokio::spawn(client.requests.send_request(get("/slow")));
        while upstream.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.requests.send_request(get("/")).await.unwrap().status(), 429);
        slow.abort();
        while client.requests.send_request(get("/")).await.unwrap().status() != 200 {}
    });
}

#[test]
fn draining_sends_goaway_and_finishes_running_requests() {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = Upstream::script(move |turn| {
        turn.request();
        may_go_on.lock().unwrap().recv().unwrap();
        turn.wire.send(OK);
    });
    let gateway = Behind::new(&upstream).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let idle = http2(gateway.address).await;
        let slow = client.requests.send_request(get("/slow"));
        let slow = tokio::spawn(slow);
        while upstream.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        gateway.drainer.begin();
        idle.ended.await.unwrap().unwrap();
        go_on.send(()).unwrap();
        let answer = slow.await.unwrap().unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), Bytes::from("ok"));
        client.ended.await.unwrap().unwrap();
    });
    gateway.ended();
    eventually("nothing is left", || upstream.connections() == 1);
}
