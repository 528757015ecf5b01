//! Hostile clients: they get an error or nothing, cost little, and do not disturb others.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Server;
use super::wire::{Wire, command};
use crate::service::process::{connections, memory};

/// The number of hostile clients.
const CONNECTIONS: usize = 300;
/// The memory, in MiB, that they may take together.
const MAX_MEMORY_MIB: u64 = 96;
/// The maximum latency of another client meanwhile, generous for a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Sends commands until told to stop, on a persistent connection and on new ones; returns their number.
fn ask_meanwhile(address: SocketAddr, stop: &AtomicBool) -> usize {
    let mut kept = Wire::connect(address).unwrap();
    let mut requests = 0;
    while !stop.load(Ordering::Relaxed) || requests < 10 {
        let start = Instant::now();
        let mut other = Wire::connect(address).unwrap();
        for wire in [&mut kept, &mut other] {
            wire.send(&command(&["CL.THROTTLE", &format!("good-{requests}"), "15", "30", "60"])).unwrap();
            let answer: Vec<_> = (0..6).map(|_| wire.line().unwrap()).collect();
            assert!(answer.starts_with(&["*5".into(), ":0".into(), ":16".into()]), "{answer:?}");
        }
        assert!(start.elapsed() < MAX_WAIT, "others wait {:?}", start.elapsed());
        requests += 1;
        thread::sleep(Duration::from_millis(2));
    }
    requests
}

/// Runs hostile clients beside a normal one, and checks the memory.
#[track_caller]
fn beside(harm: impl FnOnce(SocketAddr) + Send) {
    let mut server = Server::open();
    let (address, process) = (server.address, server.process());
    let before = memory(process).resident;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let good = scope.spawn(|| ask_meanwhile(address, &stop));
        let harmed = scope.spawn(|| harm(address)).join();
        stop.store(true, Ordering::Relaxed);
        let requests = good.join();
        harmed.unwrap();
        assert!(requests.unwrap() >= 10);
    });
    let after = memory(process);
    assert!(after.peak - before < MAX_MEMORY_MIB, "{before} MiB before, then {after:?}");
    let tollgate = server.tollgate.as_mut().unwrap();
    tollgate.program.wait_until("end of all connections", || connections(address).held == 0);
    let log = tollgate.log();
    assert!(!log.contains("panic"), "{log}");
}

/// Checks that invalid frames get this error, and that the connection is closed.
#[track_caller]
fn refused(frames: &'static [&'static [u8]], said: &'static str) {
    beside(move |address| {
        for number in 0..CONNECTIONS {
            let frame = frames[number % frames.len()];
            let mut wire = Wire::connect(address).unwrap();
            wire.send(frame).unwrap();
            let answer = wire.rest();
            assert_eq!(answer, format!("-ERR Protocol error: {said}\r\n"), "{}", frame.escape_ascii());
        }
    });
}

#[test]
fn a_bulk_of_a_gibibyte_is_refused_when_it_is_announced() {
    refused(
        &[
            b"*1\r\n$1073741824\r\n",
            b"*5\r\n$11\r\nCL.THROTTLE\r\n$1073741824\r\n",
            b"*1\r\n$9223372036854775807\r\n",
            b"*1\r\n$-2\r\n",
        ],
        "invalid bulk length",
    );
}

#[test]
fn a_billion_arguments_are_refused_when_they_are_announced() {
    refused(
        &[b"*1073741824\r\n", b"*9223372036854775807\r\n", b"*99999999999999999999\r\n", b"*one\r\n"],
        "invalid multibulk length",
    );
}

#[test]
fn nested_arrays_are_refused() {
    refused(&[b"*1\r\n*1\r\n*1\r\n*1\r\n", b"*2\r\n*2\r\n$4\r\nPING\r\n"], "expected '$', got '*'");
}

#[test]
fn wrong_lengths_close_the_connection() {
    refused(&[b"*1\r\n$4\r\nPINGPING\r\n", b"*2\r\n$1\r\nECHO\r\n$1\r\na\r\n"], "invalid bulk length");
}

/// A length that is too large consumes the next command, which is then quoted on one line.
#[test]
fn a_wrong_length_cannot_inject_reply_lines() {
    let server = Server::open();
    let mut wire = Wire::connect(server.address).unwrap();
    wire.send(b"*1\r\n$13\r\nPING\r\n+OK\r\n:1\r\n").unwrap();
    let line = wire.line().unwrap();
    assert!(line.starts_with("-ERR unknown command"), "{line}");
    wire.send(b"PING\r\n").unwrap();
    assert_eq!(wire.line().unwrap(), "+PONG", "nothing else was said, and the connection lives on");
}

#[test]
fn endless_lines_are_refused() {
    beside(|address| {
        for _ in 0..CONNECTIONS / 10 {
            let mut wire = Wire::connect(address).unwrap();
            wire.stuff(&[b'a'; 4096], 1 << 20, Duration::from_secs(5));
            let answer = wire.rest();
            // Unread data may have reset the connection before the reply arrived.
            assert!(
                answer.is_empty() || answer.starts_with("-ERR Protocol error: too big inline"),
                "{answer}"
            );
        }
    });
}

/// Hundreds of clients start a command of tens of thousands of bytes, and send it slowly.
#[test]
fn slow_writers_take_memory_only_for_sent_bytes() {
    const KEY_BYTES: usize = 60_000;
    beside(|address| {
        let mut slow: Vec<_> = (0..CONNECTIONS).map(|_| Wire::connect(address).unwrap()).collect();
        let key = "k".repeat(KEY_BYTES);
        let whole = command(&["CL.THROTTLE", &key, "15", "30", "60"]);
        let (most, drops) = whole.split_at(whole.len() - 50);
        for wire in &mut slow {
            wire.send(most).unwrap();
        }
        for drop in drops.chunks(5) {
            for wire in &mut slow {
                wire.send(drop).unwrap();
            }
        }
        let mut admitted = 0;
        for wire in &mut slow {
            let answer: Vec<_> = (0..6).map(|_| wire.line().unwrap()).collect();
            assert_eq!(answer[0], "*5");
            admitted += usize::from(answer[1] == ":0");
        }
        // All use one key. On a slow machine some units are refilled.
        assert!((16..CONNECTIONS).contains(&admitted), "{admitted}");
    });
}

/// They request the longest replies and read none of them: the server then stops reading.
#[test]
fn a_client_that_does_not_read_is_not_read() {
    const MAX_BYTES: usize = 16 << 20;
    beside(|address| {
        let questions = command(&["COMMAND", "DOCS"]).repeat(1_000);
        let mut greedy: Vec<_> = (0..CONNECTIONS / 10).map(|_| Wire::connect(address).unwrap()).collect();
        for wire in &mut greedy {
            let taken = wire.stuff(&questions, MAX_BYTES, Duration::from_millis(200));
            assert!(taken < MAX_BYTES, "it takes all that is sent");
        }
    });
}

#[test]
fn an_http_request_is_not_parsed_as_commands() {
    let server = Server::open();
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nCL.THROTTLE a 1 1 1\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nCL.THROTTLE a 1 1 1\r\n",
    ] {
        let mut wire = Wire::connect(server.address).unwrap();
        wire.send(request.as_bytes()).unwrap();
        let answer = wire.rest();
        assert!(!answer.contains('*'), "{request} was answered {answer}");
    }
}

#[test]
fn unauthenticated_clients_have_smaller_bounds() {
    let server = Server::locked();
    for (frame, said) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$60000\r\n", "unauthenticated bulk length"),
    ] {
        let mut wire = Wire::connect(server.address).unwrap();
        wire.send(frame).unwrap();
        assert_eq!(wire.rest(), format!("-ERR Protocol error: {said}\r\n"));
    }
}
