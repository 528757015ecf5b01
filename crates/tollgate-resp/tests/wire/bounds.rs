//! Misbehaving connections get a protocol error and do not affect others.

use std::io::Write as _;
use std::time::{Duration, Instant};

use tollgate_resp::{Password, RespSettings};

use crate::support::{Server, encoded, in_memory, plain};

fn impatient() -> RespSettings {
    let short = Duration::from_millis(300);
    RespSettings { idle: short, stalled: short, handshake: short, ..RespSettings::default() }
}

#[test]
fn protocol_errors_are_reported_and_close_the_connection() {
    let (server, _clock) = plain();
    let mut other = server.connect();
    for (bytes, said) in [
        (&b"*3\r\n*1\r\n"[..], "expected '$', got '*'"),
        (b"*1\r\n$1073741824\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1073741824\r\n", "invalid multibulk length"),
        (b"*1\r\n$4\r\nPINGPONG\r\n", "invalid bulk length"),
        (b"PING \"\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = server.connect();
        client.send(b"PING\r\n");
        client.send(bytes);
        assert_eq!(client.rest(), format!("+PONG\r\n-ERR Protocol error: {said}\r\n"));
    }
    other.ask("PING", "+PONG\r\n");
    assert!(server.metrics().contains("{reason=\"malformed\"} 6\n"));
}

#[test]
fn idle_clients_and_incomplete_commands_time_out() {
    let (limiter, _clock) = in_memory("limits: []");
    let server = Server::start(limiter, impatient(), None);
    let begun = Instant::now();
    let (mut quiet, mut slow, mut busy) = (server.connect(), server.connect(), server.connect());
    slow.send(b"*1\r\n$100\r\n");
    let trickle = {
        let mut slow = slow.0.try_clone().unwrap();
        std::thread::spawn(move || {
            while std::io::Write::write_all(&mut slow, b"x").is_ok() {
                std::thread::yield_now();
                if begun.elapsed() > Duration::from_secs(10) {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        })
    };
    while begun.elapsed() < Duration::from_millis(900) {
        busy.ask("PING", "+PONG\r\n");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!((quiet.rest(), slow.rest()), (String::new(), String::new()));
    assert!(begun.elapsed() < Duration::from_secs(10));
    trickle.join().unwrap();
    assert!(!server.metrics().contains("{reason=\"idle\"} 0\n"), "{}", server.metrics());
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let (limiter, _clock) = in_memory("limits: []");
    let server = Server::start(limiter, impatient(), None);
    let (mut greedy, mut other) = (server.connect(), server.connect());
    let echo = encoded(&["ECHO", &"x".repeat(60_000)]);
    let mut sent = 0;
    let begun = Instant::now();
    // Far more than the kernel buffers hold.
    while sent < 256 << 20 && std::io::Write::write_all(&mut greedy.0, &echo).is_ok() {
        sent += echo.len();
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    assert!(sent < 64 << 20, "{sent} bytes were taken from a client that reads nothing");
    other.ask("PING", "+PONG\r\n");
    assert!(server.metrics().contains("{reason=\"stalled\"} 1\n"), "{}", server.metrics());
}

#[test]
fn no_more_connections_are_served_than_there_is_room_for() {
    let (limiter, _clock) = in_memory("limits: []");
    let server = Server::start(limiter, RespSettings { connections: 2, ..RespSettings::default() }, None);
    let (mut one, mut two, mut three) = (server.connect(), server.connect(), server.connect());
    one.ask("PING", "+PONG\r\n");
    two.ask("PING", "+PONG\r\n");
    three.send(b"PING\r\n");
    assert!(server.metrics().contains("tollgate_resp_connections 2\n"));
    one.ask("QUIT", "+OK\r\n");
    three.expect("+PONG\r\n");
}

#[test]
fn unauthenticated_clients_have_small_bounds_and_a_timeout() {
    let password = Password::new("hunter2");
    let handshake = Duration::from_millis(300);
    let (limiter, _clock) = in_memory("limits: []");
    let settings = RespSettings { password, handshake, ..RespSettings::default() };
    let server = Server::start(limiter, settings, None);
    for (bytes, said) in [
        (encoded(&["AUTH", &"x".repeat(4_097)]), "unauthenticated bulk length"),
        (encoded(&["AUTH", &"x".repeat(4_000), &"y".repeat(4_000), &"z".repeat(4_000)]), "too big request"),
        (vec![b'x'; 9_000], "too big inline request"),
    ] {
        let mut client = server.connect();
        client.send(&bytes);
        assert_eq!(client.rest(), format!("-ERR Protocol error: {said}\r\n"));
    }
    let begun = Instant::now();
    let (mut silent, mut chatty, mut known) = (server.connect(), server.connect(), server.connect());
    known.ask("AUTH hunter2", "+OK\r\n");
    while chatty.0.write_all(b"PING\r\n").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(silent.rest(), "");
    known.ask("PING", "+PONG\r\n");
    // After `RESET` the client has the full time again.
    known.ask("RESET", "+RESET\r\n");
    known.ask("AUTH hunter2", "+OK\r\n");
    known.ask("RESET", "+RESET\r\n");
    assert_eq!(known.rest(), "");
    assert!(server.metrics().contains("{reason=\"stranger\"} 3\n"), "{}", server.metrics());
}

#[test]
fn a_drain_does_not_wait_for_clients_that_do_not_read() {
    let (mut server, _clock) = plain();
    let mut greedy = server.connect();
    greedy.0.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    // Sends while the server accepts bytes.
    let mut taken = Instant::now();
    while taken.elapsed() < Duration::from_millis(300) {
        if greedy.0.write(&b"COMMAND DOCS\n".repeat(1_000)).is_ok() {
            taken = Instant::now();
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let begun = Instant::now();
    server.drain();
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[test]
fn a_drain_answers_more_than_one_read() {
    let (mut server, _clock) = plain();
    let mut client = server.connect();
    client.ask("PING", "+PONG\r\n");
    // More than one read, and less than the kernel buffers hold.
    client.send(&b"PING\r\n".repeat(10_000));
    let drained = std::thread::spawn(move || server.drain());
    assert_eq!(client.rest().len(), 10_000 * "+PONG\r\n".len());
    drained.join().unwrap();
}

#[test]
fn a_drain_answers_commands_that_have_arrived() {
    let (mut server, _clock) = plain();
    let mut client = server.connect();
    client.ask("PING", "+PONG\r\n");
    server.drainer.as_ref().unwrap().begin();
    // The drain has started, and existing connections are still served.
    client.ask("PING", "+PONG\r\n");
    let drained = std::thread::spawn(move || server.drain());
    assert_eq!(client.rest(), "");
    drained.join().unwrap();
}
