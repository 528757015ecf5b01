//! Clients that request much data and read none of it.

use std::sync::{Mutex, mpsc};

use http::Request;
use http_body_util::BodyExt as _;

use crate::support::{
    Behind, Feed, H2Upstream, OK, ONE_SLOT_RELEASED, TEST_TIMEOUT, Upstream, Wire, eventually,
    http2_without_window, wait_for,
};

fn get(path: &str) -> Request<Feed> {
    Request::get(format!("http://example.com{path}")).body(Feed::nothing()).unwrap()
}

/// A slow client uses only its share of the window of a connection. Neither a few slow clients nor
/// more than fit one connection may block others.
#[test]
fn unread_responses_do_not_block_other_responses() {
    for rude in [8, 120] {
        let upstream = H2Upstream::echo();
        let gateway = Behind::all(&[format!("h2c://{}", upstream.address)]).serve();
        wait_for(async {
            let mut client = http2_without_window(gateway.address).await;
            let mut untaken = Vec::new();
            for _ in 0..rude {
                untaken.push(client.requests.send_request(get("/endless")).await.unwrap());
            }
            assert!(untaken.iter().all(|it| it.status() == 200));
            // The bodies together exceed any window: bytes that are released to the connection
            // would otherwise be taken by the slow clients.
            let body = vec![b'x'; 100_000];
            let address = gateway.address;
            let polite = tokio::task::spawn_blocking(move || {
                let mut polite = Wire::to(address);
                for _ in 0..200 {
                    polite.send(format!(
                        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    ));
                    polite.send(&body);
                    assert!(polite.answer().body == body);
                }
            });
            polite.await.unwrap();
            drop(untaken);
        });
        assert_eq!(upstream.connections(), if rude > 100 { 2 } else { 1 });
    }
}

#[test]
fn an_http_2_client_that_reads_nothing_is_disconnected() {
    let (noticed, closed) = mpsc::channel();
    let noticed = Mutex::new(noticed);
    let upstream = Upstream::script(move |turn| {
        while let Some(request) = turn.request() {
            if !request.start.contains("/large") {
                turn.wire.send(OK);
                continue;
            }
            turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\n");
            while turn.wire.try_send([b'x'; 10_000]) {}
            return noticed.lock().unwrap().send(()).unwrap();
        }
    });
    let gateway = Behind::new(&upstream).with("timeouts: {idle: 500ms}").limited(ONE_SLOT_RELEASED).serve();
    wait_for(async {
        let mut client = http2_without_window(gateway.address).await;
        let answer = client.requests.send_request(get("/large")).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(client.ended.await.is_ok());
        assert!(answer.into_body().collect().await.is_err());
    });
    closed.recv_timeout(TEST_TIMEOUT).unwrap();
    eventually("the slot is free", || gateway.get("/").status() == 200);
}
