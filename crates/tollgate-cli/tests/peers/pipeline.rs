//! Pipelines of Redis clients on a node that owns a part of their keys.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use tollgate_testkit::{Tollgate, free_port};

use super::{LIMIT, counted, list, start, wait_until_settled};

const USERS: usize = 12;

/// The lines of a reply to `TG.CHECK`: the array, five numbers, the id with its length.
const REPLY_LINES: usize = 8;

/// Sends one command for each user in one write, again and again, and then reads all replies. Returns the units
/// that remained after each admission, by user.
fn admissions(port: u16, rounds: usize) -> Vec<Vec<u64>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let round: Vec<String> = (0..USERS).map(|user| format!("TG.CHECK api user-{user}\r\n")).collect();
    stream.write_all(round.concat().repeat(rounds).as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut remaining = vec![Vec::new(); USERS];
    for number in 0..rounds * USERS {
        let reply: Vec<String> = lines.by_ref().take(REPLY_LINES).collect();
        assert_eq!(reply[0], "*6", "{reply:?}");
        if reply[1] == ":0" {
            remaining[number % USERS].push(reply[3][1..].parse().unwrap());
        }
    }
    remaining
}

#[test]
fn commands_of_a_pipeline_are_decided_in_order_whoever_owns_their_keys() {
    let ports = [free_port(), free_port(), free_port()];
    let list = list(&ports);
    let nodes: Vec<Tollgate> = ports.iter().map(|port| start(&list, *port)).collect();
    wait_until_settled(&nodes);
    let left = (0..LIMIT as u64).rev().collect::<Vec<_>>();
    for (user, remaining) in admissions(ports[0], LIMIT + 20).into_iter().enumerate() {
        assert_eq!(remaining, left, "user {user}:\n{}", nodes[0].log());
    }
    assert!(counted(&nodes[0], "tollgate_peers_calls_total") > 0);
    // Another node refuses all of them.
    assert!(admissions(ports[1], 2).iter().all(Vec::is_empty));
}
