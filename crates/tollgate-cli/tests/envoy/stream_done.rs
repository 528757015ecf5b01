//! Calls of a real Envoy at the end of streams, with the files in `integrations/envoy-stream-done`.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::json;

use super::app::App;
use super::proxy::{Between, Envoy, replaced};
use super::{ask, tollgate};
use crate::integrations::message::{Ask, Message};
use tollgate_testkit::Tollgate;

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/envoy-stream-done");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The copied configuration with long timeouts, so that a busy machine does not affect the result.
fn config() -> String {
    file("envoy.yaml").replace("timeout: 0.25s", "timeout: 30s").replace("timeout: 1s", "timeout: 30s")
}

/// The copied limits without the address of the service.
fn policy() -> String {
    replaced(&file("policy.yaml"), "listen: {rls: 127.0.0.1:8081}\n", "")
}

/// Returns the remaining units of ann.
fn left(tollgate: &Tollgate, limit: &str) -> u64 {
    let body = json!({"key": "ann"}).to_string();
    let line = format!("POST /v1/limits/{limit}/peek");
    let headers = "Content-Type: application/json\r\n";
    let response = Ask { body: body.as_bytes(), headers, ..Ask::new(&line) }.send(tollgate.api);
    response.json()["limits"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("{response:?}"))
}

#[test]
fn the_tokens_of_a_response_are_charged_although_fewer_are_left() {
    // Each response costs 40 tokens.
    let app = App::start();
    let (mut tollgate, rls) = tollgate(&replaced(&policy(), "10_000/minute", "\"1/day, burst 100\""));
    let envoy = Envoy::start(&config(), Between { rls, app: app.address });
    for remaining in [60, 20, 0] {
        assert_eq!(ask(&envoy, "GET /", "X-User: ann\r\n").status(), 200, "{remaining}");
        let api = tollgate.api;
        let is_charged = || {
            let response = Ask {
                headers: "Content-Type: application/json\r\n",
                body: br#"{"key":"ann"}"#,
                ..Ask::new("POST /v1/limits/tokens/peek")
            };
            response.send(api).json()["limits"][0]["remaining"] == remaining
        };
        tollgate.program.wait_until("the cost is charged", is_charged);
    }
    let refused = ask(&envoy, "GET /", "X-User: ann\r\n");
    assert_eq!(refused.status(), 429, "{refused:?}");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 86_400, "a debt of 20 and one more, at one a day: {refused:?}");
    assert_eq!(ask(&envoy, "GET /", "X-User: bob\r\n").status(), 200);
    assert_eq!(app.seen(), 4);
}

/// An upstream that answers when it is released.
struct HoldingApp {
    address: SocketAddr,
    seen: Arc<AtomicU64>,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl HoldingApp {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let app = Self { address, seen: Arc::default(), open: Arc::default() };
        let (seen, open) = (Arc::clone(&app.seen), Arc::clone(&app.open));
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (seen, open) = (Arc::clone(&seen), Arc::clone(&open));
                thread::spawn(move || {
                    while Message::read(&mut stream).is_some() {
                        seen.fetch_add(1, Ordering::SeqCst);
                        drop(open.1.wait_while(open.0.lock().unwrap(), |open| !*open).unwrap());
                        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
                            break;
                        }
                    }
                });
            }
        });
        app
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    fn answer(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

#[test]
fn of_fifty_parallel_streams_as_many_run_as_there_are_slots_and_the_count_returns_to_zero() {
    let app = HoldingApp::start();
    let (mut tollgate, rls) = tollgate(&policy());
    let envoy = Envoy::start(&config(), Between { rls, app: app.address });
    let refused = Arc::new(AtomicU64::new(0));
    let address = envoy.address;
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let refused = Arc::clone(&refused);
            thread::spawn(move || {
                let response = Ask { headers: "X-User: ann\r\n", ..Ask::new("GET /streams") }.send(address);
                refused.fetch_add(u64::from(response.status() == 429), Ordering::SeqCst);
                response.status()
            })
        })
        .collect();
    tollgate.program.wait_until("forty are refused", || refused.load(Ordering::SeqCst) == 40);
    // The ends of the refused requests have been reported, too, and release nothing.
    assert_eq!(app.seen(), 10);
    assert_eq!(ask(&envoy, "GET /streams", "X-User: ann\r\n").status(), 429);
    app.answer();
    let statuses: Vec<u16> = clients.into_iter().map(|it| it.join().unwrap()).collect();
    assert_eq!(statuses.iter().filter(|it| **it == 200).count(), 10, "{statuses:?}");
    wait_for_all_slots(&mut tollgate);
    assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0);
}

/// Waits until no slot of ann is taken.
fn wait_for_all_slots(tollgate: &mut Tollgate) {
    let api = tollgate.api;
    tollgate.program.wait_until("all slots are free", || {
        let request = Ask {
            headers: "Content-Type: application/json\r\n",
            body: br#"{"key":"ann"}"#,
            ..Ask::new("POST /v1/limits/streams/peek")
        };
        request.send(api).json()["limits"][0]["remaining"] == 10
    });
}

#[test]
fn clients_that_reset_their_streams_give_their_slots_back() {
    let app = HoldingApp::start();
    let (mut tollgate, rls) = tollgate(&policy());
    let envoy = Envoy::start(&config(), Between { rls, app: app.address });
    for round in 1..=3 {
        let clients: Vec<_> = (0..10)
            .map(|_| {
                let mut client = TcpStream::connect(envoy.address).unwrap();
                client.write_all(b"GET /streams HTTP/1.1\r\nHost: test\r\nX-User: ann\r\n\r\n").unwrap();
                client
            })
            .collect();
        tollgate.program.wait_until("ten streams", || app.seen() == round * 10);
        assert_eq!(left(&tollgate, "streams"), 0);
        drop(clients);
        wait_for_all_slots(&mut tollgate);
    }
}

#[test]
fn streams_whose_first_call_is_cut_off_leave_no_slot_behind() {
    let app = HoldingApp::start();
    let short_lived = replaced(&policy(), "ttl: 10m", "ttl: 2s");
    let (mut tollgate, rls) = tollgate(&short_lived);
    // Envoy gives up after a second, and lets the request pass.
    let config = config().replace(
        "domain: edge\n                      timeout: 30s",
        "domain: edge\n                      timeout: 1s",
    );
    let envoy = Envoy::start(&config, Between { rls, app: app.address });
    app.answer();
    assert_eq!(ask(&envoy, "GET /streams", "X-User: ann\r\n").status(), 200);
    tollgate.program.signal("STOP");
    // A client that leaves during the first call, and one whose first call times out.
    let mut leaving = TcpStream::connect(envoy.address).unwrap();
    leaving.write_all(b"GET /streams HTTP/1.1\r\nHost: test\r\nX-User: ann\r\n\r\n").unwrap();
    drop(leaving);
    assert_eq!(ask(&envoy, "GET /streams", "X-User: ann\r\n").status(), 200, "it passes uncounted");
    tollgate.program.signal("CONT");
    wait_for_all_slots(&mut tollgate);
    let statuses: Vec<u16> =
        (0..20).map(|_| ask(&envoy, "GET /streams", "X-User: ann\r\n").status()).collect();
    assert_eq!(statuses, [200; 20], "one after the other");
    wait_for_all_slots(&mut tollgate);
}
