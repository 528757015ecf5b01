//! SIGTERM while requests are served: no accepted request is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::Tollgate;

use super::client::{Broken, Client};
use super::process::connections;
use super::upstream::Upstream;
use super::{BINARY, ROOMY, alone};

const CLIENTS: usize = 16;
const ROUNDS: usize = 5;
/// Some clients send the next request at once, others after a pause.
const THINK_TIMES: [Duration; 4] =
    [Duration::ZERO, Duration::ZERO, Duration::from_millis(7), Duration::from_millis(60)];

/// The observations of one client.
#[derive(Debug, Default)]
struct ClientTotals {
    answers: usize,
    /// Connections that the server announced to close, after a response.
    announced: usize,
    /// New connections that ended without a byte of a response, after the stop signal.
    turned_away: usize,
    failures: Vec<String>,
}

/// Sends requests on a connection until the server closes it, then on the next, until none can be
/// opened.
fn ask_until_the_end(
    (address, path): (SocketAddr, &str),
    thinking: Duration,
    is_stopping: &AtomicBool,
    answers: &AtomicUsize,
) -> ClientTotals {
    let mut seen = ClientTotals::default();
    'connections: loop {
        let Ok(mut client) = Client::connect(address) else {
            if !is_stopping.load(Ordering::SeqCst) {
                seen.failures.push("a connection was refused while the server served".to_owned());
            }
            return seen;
        };
        for on_this_one in 0.. {
            let was_stopping = is_stopping.load(Ordering::SeqCst);
            match client.get(path) {
                Ok(answer) => {
                    seen.answers += 1;
                    answers.fetch_add(1, Ordering::SeqCst);
                    if answer.status != 200 || answer.body.trim_ascii() != b"ok" {
                        seen.failures.push(format!("answered {answer:?}"));
                    }
                    if answer.closes {
                        seen.announced += 1;
                        if !is_stopping.load(Ordering::SeqCst) {
                            seen.failures.push("closed without a reason".to_owned());
                        }
                        continue 'connections;
                    }
                }
                // The server had not accepted it: the kernel completes the handshake before the server
                // does.
                Err(Broken::BeforeIt) if on_this_one == 0 && is_stopping.load(Ordering::SeqCst) => {
                    seen.turned_away += 1;
                    return seen;
                }
                Err(broken) => {
                    seen.failures.push(format!(
                        "request {on_this_one} of a connection broke off {broken:?}, told to stop before it: {was_stopping}"
                    ));
                    return seen;
                }
            }
            thread::sleep(thinking);
        }
    }
}

/// Stops a server during many requests to the gateway and to the API.
fn stop_under_load() {
    let upstream = Upstream::start();
    let mut tollgate = Tollgate::start(BINARY, &format!("{ROOMY}{}", upstream.section("")));
    let (gateway, api) = (tollgate.gateway, tollgate.api);
    let (is_stopping, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (seen, code) = thread::scope(|scope| {
        let (is_stopping, answers) = (&is_stopping, &answers);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let page = if number < CLIENTS / 2 { (gateway, "/") } else { (api, "/healthz") };
                let thinking = THINK_TIMES[number % THINK_TIMES.len()];
                scope.spawn(move || ask_until_the_end(page, thinking, is_stopping, answers))
            })
            .collect();
        tollgate.program.wait_until("load", || answers.load(Ordering::SeqCst) > 50 * CLIENTS);
        is_stopping.store(true, Ordering::SeqCst);
        tollgate.program.signal("TERM");
        let code = tollgate.program.wait().code();
        (clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>(), code)
    });
    let sum = |count: fn(&ClientTotals) -> usize| seen.iter().map(count).sum::<usize>();
    let (answered, announced, turned_away) =
        (sum(|it| it.answers), sum(|it| it.announced), sum(|it| it.turned_away));
    println!("{answered} answers, {announced} announced ends, {turned_away} new connections turned away");
    let failures: Vec<_> = seen.iter().flat_map(|it| &it.failures).collect();
    assert!(failures.is_empty(), "every request on an established connection is answered: {failures:?}");
    assert!(announced + turned_away >= CLIENTS, "every client is told of the end: {seen:?}");
    assert_eq!(code, Some(0), "the server ends well: {}", tollgate.log());
    for address in [gateway, api] {
        assert_eq!(connections(address).held, 0, "no connection to {address} is left");
    }
}

#[test]
fn no_request_on_an_established_connection_is_lost() {
    let _alone = alone();
    // Repeated, so that the stop comes at different moments of each connection.
    (0..ROUNDS).for_each(|_| stop_under_load());
}

#[test]
fn a_slow_response_is_finished_before_its_head_and_within_its_body() {
    let _alone = alone();
    let upstream = Upstream::start();
    let mut tollgate =
        Tollgate::start(BINARY, &format!("{ROOMY}{}", upstream.section("timeouts: {drain: 30s}")));
    let gateway = tollgate.gateway;
    let (answers, code) = thread::scope(|scope| {
        let asking = ["/wait/1000", "/pause/1000"]
            .map(|path| scope.spawn(move || Client::connect(gateway).unwrap().get(path)));
        (0..2).for_each(|_| upstream.waiting.recv().unwrap());
        tollgate.program.signal("TERM");
        let code = tollgate.program.wait().code();
        (asking.map(|it| it.join().unwrap()), code)
    });
    let [waited, paused] = answers;
    let waited = waited.expect("an answer that has not begun is waited for");
    assert_eq!((waited.status, &*waited.body), (200, &b"done"[..]));
    assert!(waited.closes, "and says that the connection closes after it");
    let paused = paused.expect("an answer that has begun is finished");
    assert_eq!((paused.status, &*paused.body), (200, &b"halfhalf"[..]));
    assert_eq!(code, Some(0), "the server ends well: {}", tollgate.log());
}

#[test]
fn a_response_beyond_the_drain_timeout_is_cut_off() {
    const DRAIN: Duration = Duration::from_secs(1);
    /// Time for a busy machine to start and stop processes.
    const MARGIN: Duration = Duration::from_secs(10);
    let _alone = alone();
    let upstream = Upstream::start();
    let mut tollgate =
        Tollgate::start(BINARY, &format!("{ROOMY}{}", upstream.section("timeouts: {drain: 1s}")));
    let gateway = tollgate.gateway;
    let (broken, code, took) = thread::scope(|scope| {
        let asking = ["/wait/40000", "/pause/40000"]
            .map(|path| scope.spawn(move || Client::connect(gateway).unwrap().get(path).map(|it| it.status)));
        (0..2).for_each(|_| upstream.waiting.recv().unwrap());
        let start = Instant::now();
        tollgate.program.signal("TERM");
        let code = tollgate.program.wait().code();
        (asking.map(|it| it.join().unwrap()), code, start.elapsed())
    });
    assert_eq!(broken, [Err(Broken::BeforeIt), Err(Broken::WithinIt)], "both are cut off where they are");
    assert_eq!(code, Some(0), "the server ends well all the same: {}", tollgate.log());
    assert!(took >= DRAIN, "it waited for as long as it was told: {took:?}");
    assert!(took < DRAIN + MARGIN, "and no longer: {took:?}");
    assert!(
        tollgate.log().contains("were cut off (`gateway.timeouts.drain`)"),
        "and says so: {}",
        tollgate.log()
    );
}
