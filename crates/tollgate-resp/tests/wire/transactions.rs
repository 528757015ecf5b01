//! `MULTI` and `EXEC`, which some clients send by default.

use crate::support::{encoded, numbered, plain};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

#[test]
fn a_transaction_is_answered_as_one_array() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    client.send(b"MULTI\r\nCL.THROTTLE u 15 30 60\r\nCL.THROTTLE u 15 30 60\r\nPING\r\nEXEC\r\nPING\r\n");
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n");
    client.expect(&numbered(&[0, 16, 15, -1, 2]));
    client.expect(&numbered(&[0, 16, 14, -1, 4]));
    client.expect("+PONG\r\n+PONG\r\n");
    // The error of one command is an element, and a refund waits for the commands before it.
    client.send(
        b"MULTI\r\nCL.THROTTLE u 15 30 60 -2\r\nCL.THROTTLE u\r\nCL.THROTTLE u 15 30 60 16\r\nEXEC\r\n",
    );
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n");
    client.expect(&numbered(&[0, 16, 16, -1, 0]));
    client.expect(
        "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n",
    );
    client.expect(&numbered(&[0, 16, 0, -1, 32]));
    client.send(b"MULTI\r\nEXEC\r\n");
    client.expect("+OK\r\n*0\r\n");
    assert!(server.metrics().contains("{command=\"exec\",result=\"ok\"} 3\n"), "{}", server.metrics());
}

#[test]
fn a_transaction_with_an_error_spends_nothing() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    client.send(b"MULTI\r\nCL.THROTTLE u 15 30 60\r\nNOSUCH a\r\nCL.THROTTLE u 15 30 60\r\nEXEC\r\n");
    client.expect("+OK\r\n+QUEUED\r\n-ERR unknown command 'NOSUCH', with args beginning with: 'a' \r\n");
    client.expect("+QUEUED\r\n");
    client.expect(ABORTED);
    client.send(b"MULTI\r\nTHROTTLE u\r\nEXEC\r\n");
    client.expect("+OK\r\n-ERR wrong number of arguments for 'throttle' command\r\n");
    client.expect(ABORTED);
    client
        .send(b"MULTI\r\nCL.THROTTLE u 15 30 60\r\nDISCARD\r\nMULTI\r\nCL.THROTTLE u 15 30 60\r\nRESET\r\n");
    client.expect("+OK\r\n+QUEUED\r\n+OK\r\n+OK\r\n+QUEUED\r\n+RESET\r\n");
    client.ask("EXEC", "-ERR EXEC without MULTI\r\n");
    client.ask("DISCARD", "-ERR DISCARD without MULTI\r\n");
    client.ask_numbers("CL.THROTTLE u 15 30 60 0", &[0, 16, 16, -1, 0]);
    client.ask("WATCH a b", "+OK\r\n");
    client.send(b"MULTI\r\nMULTI\r\nWATCH a\r\nUNWATCH\r\nEXEC\r\n");
    client.expect("+OK\r\n-ERR MULTI calls can not be nested\r\n");
    client.expect("-ERR WATCH inside MULTI is not allowed\r\n+QUEUED\r\n*1\r\n+OK\r\n");
}

#[test]
fn the_queue_of_a_transaction_is_bounded() {
    let (server, _clock) = plain();
    let full = "-ERR too many commands in a transaction\r\n";
    let mut many = server.connect();
    many.send(b"MULTI\r\n");
    many.send(&b"PING\r\n".repeat(1_025));
    many.send(b"EXEC\r\n");
    many.expect(&format!("+OK\r\n{}{full}{ABORTED}", "+QUEUED\r\n".repeat(1_024)));
    let mut large = server.connect();
    large.send(b"MULTI\r\n");
    large.send(&encoded(&["ECHO", &"x".repeat(60_000)]).repeat(3));
    large.send(b"EXEC\r\n");
    large.expect(&format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n{full}{ABORTED}"));
    // Far more replies than are buffered, in order.
    let mut long = server.connect();
    long.send(b"MULTI\r\n");
    long.send(&b"ECHO ab\r\nCOMMAND DOCS\r\n".repeat(200));
    long.send(b"EXEC\r\nQUIT\r\n");
    let all = long.rest();
    assert_eq!(all.matches("\r\n$2\r\nab\r\n").count(), 200);
    assert!(all.contains("+QUEUED\r\n*400\r\n$2\r\nab\r\n") && all.ends_with("+OK\r\n"));
}
