//! Limits with a queue: the wait is in the reply, and a place can be given back.

use tollgate::Span;
use tollgate_resp::RespSettings;

use crate::support::{Server, in_memory};

const POLICY: &str = "
limits:
  - {name: reports, by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 2}}
  - {name: quick, by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 3, free: 2}}
  - {name: watched, by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 3}, mode: shadow}
  - {name: api, by: user, bucket: 3/minute}
  - {name: exports, by: user, slots: 1, ttl: 1m}
";

#[test]
fn a_check_on_a_queue_is_not_limited_and_has_the_wait_in_the_fourth_number() {
    let (limiter, clock) = in_memory(POLICY);
    let server = Server::start(limiter, RespSettings::default(), None);
    let mut client = server.connect();
    let mut check = |line: &str, numbers: [i64; 5]| client.ask_decision(line, numbers);
    check("TG.CHECK reports ann", [0, 3, 2, 0, 100]);
    check("TG.CHECK reports ann", [0, 3, 1, 100, 200]);
    clock.advance(Span::from_micros(1));
    check("TG.CHECK reports ann", [0, 3, 0, 200, 300]);
    check("TG.CHECK reports ann", [1, 3, 0, 100, 300]);
    check("TG.CHECK quick ann 3", [0, 4, 1, 0, 300]);
    check("TG.CHECK quick ann", [0, 4, 0, 100, 400]);
    check("TG.CHECK watched ann 2", [0, 4, 2, -1, 200]);
    check("TG.CHECK watched ann", [0, 4, 1, -1, 300]);
    client.ask_numbers("TG.PEEK reports ann", &[1, 3, 0, 100, 300]);
    client.ask_numbers("TG.PEEK reports bob", &[0, 3, 3, 0, 0]);
    client.ask_numbers("TG.PEEK watched ann", &[0, 4, 1, -1, 300]);
    clock.advance(Span::from_millis(100));
    client.ask_numbers("TG.PEEK reports ann", &[0, 3, 1, 200, 200]);
}

#[test]
fn a_caller_that_leaves_its_place_is_replaced_by_the_next_one() {
    let (limiter, _clock) = in_memory(POLICY);
    let server = Server::start(limiter, RespSettings::default(), None);
    let mut client = server.connect();
    client.ask_decision("TG.CHECK reports ann", [0, 3, 2, 0, 100]);
    client.ask_decision("TG.CHECK reports ann 2", [0, 3, 0, 100, 300]);
    client.ask_decision("TG.CHECK reports ann", [1, 3, 0, 100, 300]);
    client.ask("TG.REFUND reports ann 2", "+OK\r\n");
    client.ask_decision("TG.CHECK reports ann", [0, 3, 1, 100, 200]);
    // Units of any limit are refunded, up to its allowance.
    client.ask_decision("TG.CHECK api ann 3", [0, 3, 0, -1, 60_000]);
    client.ask("TG.REFUND api ann", "+OK\r\n");
    client.ask_numbers("TG.PEEK api ann", &[0, 3, 1, -1, 40_000]);
    client.ask("TG.REFUND api ann 9", "+OK\r\n");
    client.ask_numbers("TG.PEEK api ann", &[0, 3, 3, -1, 0]);
    client.ask("TG.REFUND exports ann", "-ERR limit `exports` counts slots: use TG.RELEASE\r\n");
    client.ask("TG.REFUND api ann -1", "-ERR the cost is a whole number, and not negative\r\n");
    client.ask(
        "TG.REFUND api",
        "-ERR usage: tg.refund api user [cost] (each part of the key not empty, an ip as an address)\r\n",
    );
}

#[test]
fn a_port_that_takes_no_refunds_keeps_places_and_units() {
    let (limiter, _clock) = in_memory(POLICY);
    let settings = RespSettings { refuse_refunds: true, ..RespSettings::default() };
    let server = Server::start(limiter, settings, None);
    let mut client = server.connect();
    client.ask_decision("TG.CHECK api ann 3", [0, 3, 0, -1, 60_000]);
    client.ask(
        "TG.REFUND api ann",
        "-ERR quota is not given back on this port: allow it with `resp.refunds: true`, or ask for a password\r\n",
    );
    client.ask_numbers("TG.PEEK api ann", &[1, 3, 0, 20_000, 60_000]);
}
