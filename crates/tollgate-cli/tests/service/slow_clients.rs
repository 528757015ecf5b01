//! Hundreds of slow clients (slowhttptest), beside a normal one.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use std::{fs, fs::File};

use tollgate_testkit::{Program, Scratch, Tollgate};

use super::client::{Client, get};
use super::process::{allow_open_files, connections, memory};
use super::upstream::Upstream;
use super::{BINARY, ROOMY, alone};

const SLOW_CLIENTS: usize = 300;
/// The number of concurrent connections that proves the attack. On a busy machine the first connections
/// end before the last are opened, and then the report of the tool counts.
const MIN_SEEN_CONNECTIONS: usize = 10;
/// The seconds after which the tool stops by itself.
const MAX_TOOL_SECONDS: &str = "20";
/// The memory, in MiB, that they may take: the buffer of each is bounded, not the data that it is sent.
const MAX_MEMORY_MIB: u64 = 96;

/// The interval between two counts of the connections.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The pause between two normal requests. Without it, thousands of closed connections fill the kernel's
/// list, and reading it takes so long that it counts several normal connections that did not exist at
/// the same time.
const REQUEST_PAUSE: Duration = Duration::from_millis(5);

const TIMEOUTS: &str = "timeouts: {client_headers: 2s, client_idle: 2s, idle: 2s, total: 4s}";

/// Sends requests on new connections until told to stop; returns their number and the failures.
fn ask_meanwhile(gateway: SocketAddr, stop: &AtomicBool) -> (usize, Vec<String>) {
    let (mut requests, mut wrong) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        requests += 1;
        match Client::connect(gateway).map(|mut client| client.get("/")) {
            Ok(Ok(answer)) if answer.status == 200 => {}
            other => wrong.push(format!("{other:?}")),
        }
        thread::sleep(REQUEST_PAUSE);
    }
    (requests, wrong)
}

fn check(mode: &[&str], path: &str) {
    let _alone = alone();
    allow_open_files(4 * SLOW_CLIENTS);
    let upstream = Upstream::start();
    let mut tollgate = Tollgate::start(BINARY, &format!("{ROOMY}{}", upstream.section(TIMEOUTS)));
    let (gateway, before) = (tollgate.gateway, memory(tollgate.program.id()).resident);
    let files = Scratch::new();
    let said = files.path().join("said");
    let mut command = Command::new("slowhttptest");
    command.args(mode).args([
        "-c",
        &SLOW_CLIENTS.to_string(),
        "-r",
        &SLOW_CLIENTS.to_string(),
        "-l",
        MAX_TOOL_SECONDS,
        "-p",
        "5",
    ]);
    command.args(["-u", &format!("http://{gateway}{path}")]).current_dir(files.path());
    command.stdout(File::create(&said).unwrap()).stderr(Stdio::null());

    let stop = AtomicBool::new(false);
    let (mut most, mut ended, mut left_behind) = (0, false, 0);
    let (requests, wrong) = thread::scope(|scope| {
        let good = scope.spawn(|| ask_meanwhile(gateway, &stop));
        let mut tool = Program::start(command);
        while tool.is_running() {
            let now = connections(gateway);
            most = most.max(now.held);
            // The normal client has one of them.
            if most > MIN_SEEN_CONNECTIONS && now.held <= 1 && tool.is_running() {
                (ended, left_behind) = (true, now.left_behind);
            }
            thread::sleep(POLL_INTERVAL);
        }
        stop.store(true, Ordering::Relaxed);
        good.join().unwrap()
    });
    let said = fs::read_to_string(&said).unwrap();
    let end = said.lines().rev().find(|line| line.contains("Exit status")).unwrap_or_default();
    ended |= end.contains("No open connections left");
    let after = memory(tollgate.program.id());
    println!(
        "{mode:?}: {most} connections at most, {requests} good requests, {before} MiB before, {after:?}"
    );

    assert!(ended, "the server ended all slow connections before their client did: {end}");
    assert_eq!(left_behind, 0, "no unread responses are left in the buffers of the kernel");
    assert!(
        requests > 10 && wrong.is_empty(),
        "each of {requests} good requests is answered meanwhile: {wrong:?}"
    );
    assert!(
        after.peak - before < MAX_MEMORY_MIB,
        "{SLOW_CLIENTS} slow clients take little memory: {before} MiB, then {after:?}"
    );
    tollgate.program.wait_until("end of all connections", || connections(gateway).held == 0);
}

#[test]
fn clients_that_never_finish_their_headers_are_disconnected() {
    check(&["-H", "-i", "1"], "/");
}

#[test]
fn clients_that_never_finish_their_body_are_disconnected() {
    check(&["-B", "-i", "3", "-s", "8192"], "/");
}

#[test]
fn clients_that_send_their_body_slowly_are_disconnected_after_the_total_time() {
    check(&["-B", "-i", "1", "-s", "8192", "-x", "4"], "/");
}

#[test]
fn clients_that_do_not_read_are_disconnected() {
    check(&["-X", "-w", "8", "-y", "16", "-n", "2", "-z", "4"], "/large");
}

#[test]
fn endless_requests_to_the_api_get_an_error_and_are_disconnected() {
    const NEVER_ENDS: &str =
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"path\":";
    let mut tollgate = Tollgate::start(BINARY, ROOMY);
    let api = tollgate.api;
    let mut slow: Vec<_> = (0..50).map(|_| Client::connect(api).unwrap()).collect();
    for client in &mut slow {
        client.send(NEVER_ENDS).unwrap();
    }
    assert_eq!(get(api, "/healthz").status, 200, "others are answered meanwhile");
    for client in &mut slow {
        let answer = client.answer().expect("a client that is too slow gets a response");
        assert_eq!((answer.status, answer.closes), (408, true), "and that the connection closes: {answer:?}");
        assert!(
            String::from_utf8_lossy(&answer.body).contains("the body did not arrive in time"),
            "{answer:?}"
        );
    }
    // The clients still hold their ends.
    tollgate.program.wait_until("end of all connections", || connections(api).held == 0);
    drop(slow);
}
