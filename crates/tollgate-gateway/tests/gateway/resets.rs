//! Requests in flight are counted until they end, however they end: callers that reset connections and
//! streams by the thousand, connections that upgrade, and upstreams that break off.

use crate::support::{Behind, Feed, OK, ServedGateway, Upstream, eventually, http2, wait_for};

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello";

/// All shedders at once. Their bounds are never reached.
fn policy(on_hangup: &str) -> String {
    format!(
        "shed: {{node: {{inflight: 100000}}, fleet: {{slots: 60000, on_hangup: {on_hangup}}}}}\n\
         limits: [{{name: upstream, by: global, on_hangup: {on_hangup}, slots: {{adaptive: {{min: 5000, max: 9000}}}}}}]"
    )
}

/// An upstream that answers `/`, half-answers `/half`, breaks `/broken` off and upgrades `/chat`.
fn upstream() -> Upstream {
    Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            match request.start.split(' ').nth(1) {
                Some("/half") => return turn.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
                Some("/broken") => return,
                Some("/chat") => {
                    turn.wire.send(SWITCHED);
                    turn.wire.rest();
                    return;
                }
                _ if !turn.wire.try_send(OK) => return,
                _ => {}
            }
        }
    })
}

#[track_caller]
fn assert_none_in_flight(gateway: &ServedGateway) {
    let in_flight = || {
        let limiter = gateway.limiter.load();
        let learned = limiter.adaptive_summaries()[0].in_flight;
        let check = limiter.check(&tollgate::Call::new("GET", "/"));
        let free = check.limits().find(|it| it.name() == "shed.fleet").unwrap().outcome().remaining;
        assert!(limiter.try_release_receipt(&check.receipt().unwrap()));
        // The check itself has taken a slot.
        (learned, limiter.node_shedder().in_flight(), 59_999 - free)
    };
    eventually("no request is in flight, learned, on the node and in the fleet", || in_flight() == (0, 0, 0));
}

#[test]
fn a_thousand_connections_that_are_reset_leave_no_request_in_flight() {
    for on_hangup in ["hold", "release"] {
        let upstream = upstream();
        let gateway = Behind::new(&upstream).limited(&policy(on_hangup)).serve();
        for number in 0..1_000 {
            let path = ["/", "/half", "/broken", "/"][number % 4];
            let mut client = gateway.connect();
            client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
            // Some leave before the answer, some in the middle of it, some after it.
            if number % 3 == 0 {
                client.try_status();
            }
        }
        assert_eq!(gateway.get("/").status(), 200);
        assert_none_in_flight(&gateway);
    }
}

#[test]
fn a_thousand_streams_that_are_reset_leave_no_request_in_flight() {
    for on_hangup in ["hold", "release"] {
        let upstream = upstream();
        let gateway = Behind::new(&upstream).limited(&policy(on_hangup)).serve();
        wait_for(async {
            // A server closes connections with too many resets, so these are many connections.
            for _ in 0..100 {
                let mut client = http2(gateway.address).await;
                let requests: Vec<_> = (0..10)
                    .map(|number| {
                        let path = ["/", "/half", "/broken", "/"][number % 4];
                        client.requests.send_request(crate::http2::get(path))
                    })
                    .collect();
                for (number, answer) in requests.into_iter().enumerate() {
                    match number % 3 {
                        // Dropping a future or a body resets its stream.
                        0 => drop(answer),
                        1 => drop(answer.await.map(http::Response::into_parts)),
                        _ => drop(tokio::time::timeout(std::time::Duration::ZERO, answer).await),
                    }
                }
                if on_hangup == "hold" {
                    // An upstream that waits for the rest of a body holds its slot until it closes the connection.
                    continue;
                }
                // The last stream has a body that does not end.
                let (feed, upload) = Feed::new();
                let post = http::Request::post("http://example.com/").body(upload).unwrap();
                drop(
                    tokio::time::timeout(std::time::Duration::ZERO, client.requests.send_request(post)).await,
                );
                drop(feed);
            }
        });
        assert_eq!(gateway.get("/").status(), 200);
        assert_none_in_flight(&gateway);
    }
}

#[test]
fn connections_that_upgrade_are_in_flight_until_they_close() {
    let upstream = upstream();
    let gateway = Behind::new(&upstream).limited(&policy("hold")).serve();
    let mut open: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
    for client in &mut open {
        client.send(UPGRADE);
        assert_eq!(client.head().unwrap().status(), 101);
    }
    let in_flight = || gateway.limiter.load().adaptive_summaries()[0].in_flight;
    assert_eq!(in_flight(), 20);
    drop(open);
    assert_none_in_flight(&gateway);
}
