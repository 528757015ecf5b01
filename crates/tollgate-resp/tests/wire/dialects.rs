//! The three dialects make equal decisions and have their own replies.

use tollgate::Span;

use tollgate_resp::RespSettings;

use crate::support::{Server, encoded, in_memory, numbered, plain};

#[test]
fn cl_throttle_matches_the_examples_of_redis_cell() {
    let (server, clock) = plain();
    let mut client = server.connect();
    client.ask_numbers("CL.THROTTLE u 15 30 60", &[0, 16, 15, -1, 2]);
    for used in 2..=16 {
        client.ask_numbers("cl.throttle u 15 30 60 1", &[0, 16, 16 - used, -1, 2 * used]);
    }
    client.ask_numbers("CL.THROTTLE u 15 30 60", &[1, 16, 0, 2, 32]);
    // More than the capacity: never admitted, and nothing is spent.
    client.ask_numbers("CL.THROTTLE fresh 15 30 60 17", &[1, 16, 16, -1, 0]);
    client.ask_numbers("CL.THROTTLE fresh 15 30 60 0", &[0, 16, 16, -1, 0]);
    // Refused although some units are left.
    client.ask_numbers("CL.THROTTLE some 15 30 60 10", &[0, 16, 6, -1, 20]);
    client.ask_numbers("CL.THROTTLE some 15 30 60 10", &[1, 16, 6, 8, 20]);
    // A wait below a millisecond is zero; a longer wait is rounded up to a second.
    clock.advance(Span::from_micros(1_999_500));
    client.ask_numbers("CL.THROTTLE u 15 30 60", &[1, 16, 0, 0, 30]);
    clock.advance(Span::from_micros(500));
    client.ask_numbers("CL.THROTTLE u 15 30 60 0", &[0, 16, 1, -1, 30]);
    client.ask_numbers("CL.THROTTLE u 15 30 60", &[0, 16, 0, -1, 32]);
}

#[test]
fn where_refunds_are_refused_a_negative_quantity_is_an_error() {
    let settings = RespSettings { refuse_refunds: true, ..RespSettings::default() };
    let server = Server::start(in_memory("limits: []").0, settings, None);
    let mut client = server.connect();
    client.ask_numbers("CL.THROTTLE u 15 30 60 16", &[0, 16, 0, -1, 32]);
    client.send(b"CL.THROTTLE u 15 30 60 -6\r\n");
    let said = client.line();
    assert!(said.starts_with("-Cell error: quota is not given back on this port"), "{said}");
    client.ask("MULTI", "+OK\r\n");
    client.ask("CL.THROTTLE u 15 30 60 -6", "+QUEUED\r\n");
    client.ask("EXEC", "*1\r\n");
    assert!(client.line().starts_with("-Cell error: quota is not given back"));
    client.ask_numbers("CL.THROTTLE u 15 30 60 0", &[0, 16, 0, -1, 32]);
}

#[test]
fn a_negative_quantity_refunds_up_to_the_limit() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    client.ask_numbers("CL.THROTTLE u 15 30 60 16", &[0, 16, 0, -1, 32]);
    client.ask_numbers("CL.THROTTLE u 15 30 60 -6", &[0, 16, 6, -1, 20]);
    client.ask_numbers("CL.THROTTLE u 15 30 60 -9223372036854775808", &[0, 16, 16, -1, 0]);
    // In one pipeline, in order.
    client.send(b"CL.THROTTLE p 1 1 60 2\r\nCL.THROTTLE p 1 1 60\r\nCL.THROTTLE p 1 1 60 -1\r\nCL.THROTTLE p 1 1 60\r\n");
    client.expect(&numbered(&[0, 2, 0, -1, 120]));
    client.expect(&numbered(&[1, 2, 0, 60, 120]));
    client.expect(&numbered(&[0, 2, 1, -1, 60]));
    client.expect(&numbered(&[0, 2, 0, -1, 120]));
}

#[test]
fn a_key_has_one_arrival_time_under_every_quota() {
    let (server, clock) = plain();
    let mut client = server.connect();
    client.ask_numbers("CL.THROTTLE u 15 30 60 16", &[0, 16, 0, -1, 32]);
    // A burst of two, one unit in two seconds: 28 seconds short.
    client.ask_numbers("CL.THROTTLE u 1 30 60", &[1, 2, 0, 30, 32]);
    client.ask_numbers("GCRA u 15 30 60", &[1, 16, 0, 2, 32]);
    client.ask_numbers("THROTTLE u 16 30 60", &[0, 16, 0, 32, 2]);
    clock.advance(Span::from_secs(30));
    client.ask_numbers("CL.THROTTLE u 1 30 60", &[0, 2, 0, -1, 4]);
    client.ask_numbers("CL.THROTTLE u 15 30 60 0", &[0, 16, 14, -1, 4]);
}

/// Under this quota the key owes more than its capacity: now < tat - limit * period / count.
#[test]
fn a_peek_at_a_key_with_more_debt_than_capacity_is_limited() {
    let (server, clock) = plain();
    let mut client = server.connect();
    client.ask_numbers("CL.THROTTLE u 15 30 60 16", &[0, 16, 0, -1, 32]);
    client.ask_numbers("CL.THROTTLE u 0 1 2 0", &[1, 1, 0, 30, 32]);
    client.ask_numbers("CL.THROTTLE u 15 30 60 0", &[0, 16, 0, -1, 32]);
    clock.advance(Span::from_secs(30));
    client.ask_numbers("CL.THROTTLE u 0 1 2 0", &[0, 1, 0, -1, 2]);
}

#[test]
fn cl_throttle_has_the_errors_of_redis_cell() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    let usage =
        "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n";
    client.ask("CL.THROTTLE", usage);
    client.ask("CL.THROTTLE k 1 2", usage);
    client.ask("CL.THROTTLE k 1 2 3 4 5", usage);
    client.ask("CL.THROTTLE k x 2 3", "-Cell error: Couldn't parse as integer: x\r\n");
    client.ask(
        "CL.THROTTLE k 1 2 3 9223372036854775808",
        "-Cell error: Couldn't parse as integer: 9223372036854775808\r\n",
    );
    client.ask("CL.THROTTLE k \"\\r\\n+OK\" 2 3", "-Cell error: Couldn't parse as integer:   +OK\r\n");
    client.ask("CL.THROTTLE k 1 0 60", "-Cell error: Zero rates are not supported\r\n");
    client.ask("CL.THROTTLE k 1 30 0", "-Cell error: Zero rates are not supported\r\n");
    client.ask("CL.THROTTLE k -1 30 60", "-Cell error: Negative bursts and rates are not supported\r\n");
    client.ask(
        "CL.THROTTLE k 9223372036854775807 30 60",
        "-Cell error: more than 2^48 units cannot be counted exactly\r\n",
    );
    client.ask_numbers("CL.THROTTLE k +1 030 60", &[0, 2, 1, -1, 2]);
}

#[test]
fn throttle_has_the_order_and_rounding_of_throttlecrab() {
    let (server, clock) = plain();
    let mut client = server.connect();
    client.ask_numbers("THROTTLE u 10 30 60", &[1, 10, 9, 2, 0]);
    client.ask_numbers("THROTTLE u 10 30 60 9", &[1, 10, 0, 20, 0]);
    client.ask_numbers("THROTTLE u 10 30 60", &[0, 10, 0, 20, 2]);
    clock.advance(Span::from_millis(1_100));
    client.ask_numbers("THROTTLE u 10 30 60", &[0, 10, 0, 18, 0]);
    // More than the capacity: returns the time it would take, because the reply requires a number.
    client.ask_numbers("THROTTLE fresh 10 30 60 13", &[0, 10, 10, 0, 6]);
    client.ask_numbers("THROTTLE fresh 10 30 60 0", &[1, 10, 10, 0, 0]);
    // Idle time beyond a full bucket gives no credit.
    clock.advance(Span::from_secs(19));
    client.ask_numbers("THROTTLE u 10 30 60 11", &[0, 10, 10, 0, 2]);
    for (line, error) in [
        ("THROTTLE k 1 2", "-ERR wrong number of arguments for 'throttle' command\r\n"),
        ("THROTTLE k 1 2 3 4 5", "-ERR wrong number of arguments for 'throttle' command\r\n"),
        ("THROTTLE k x 2 3", "-ERR invalid max_burst\r\n"),
        ("THROTTLE k 1 x 3", "-ERR invalid count_per_period\r\n"),
        ("THROTTLE k 1 2 x", "-ERR invalid period\r\n"),
        ("THROTTLE k 1 2 3 x", "-ERR invalid quantity\r\n"),
        ("THROTTLE k 1 2 3 -4", "-ERR Rate limit check failed: negative quantity: -4\r\n"),
        ("THROTTLE k 0 2 3", "-ERR Rate limit check failed: invalid rate limit parameters\r\n"),
        ("THROTTLE k 1 -2 3", "-ERR Rate limit check failed: invalid rate limit parameters\r\n"),
    ] {
        client.ask(line, error);
    }
}

#[test]
fn gcra_follows_the_proposal_of_redis() {
    let (server, clock) = plain();
    let mut client = server.connect();
    client.ask_numbers("GCRA u 15 30 60", &[0, 16, 15, -1, 2]);
    client.ask_numbers("GCRA u 15 30 60 TOKENS 15", &[0, 16, 0, -1, 32]);
    client.ask_numbers("GCRA u 15 30 60 num_requests 1", &[1, 16, 0, 2, 32]);
    clock.advance(Span::from_micros(1_999_500));
    client.ask_numbers("GCRA u 15 30 60", &[1, 16, 0, 1, 31]);
    client.ask_numbers("GCRA u 15 30 60 TOKENS 0", &[0, 16, 0, -1, 31]);
    client.ask_numbers("GCRA half 0 1 0.5", &[0, 1, 0, -1, 1]);
    client.ask_numbers("GCRA half 0 1 0.5 TOKENS 2", &[1, 1, 0, -1, 1]);
    for (line, error) in [
        ("GCRA k 1 2", "-ERR wrong number of arguments for 'gcra' command\r\n"),
        ("GCRA k 1 2 3 TOKENS 4 5", "-ERR wrong number of arguments for 'gcra' command\r\n"),
        ("GCRA k x 2 3", "-ERR value is not an integer or out of range\r\n"),
        ("GCRA k -1 2 3", "-ERR value is out of range, must be positive\r\n"),
        ("GCRA k 1 0 3", "-ERR value is out of range, value must between 1 and 9223372036854775807\r\n"),
        ("GCRA k 1 2 x", "-ERR value is not a valid float\r\n"),
        ("GCRA k 1 2 nan", "-ERR value is not a valid float\r\n"),
        ("GCRA k 1 2 0", "-ERR period must be > 0 and < 1e12\r\n"),
        ("GCRA k 1 2 inf", "-ERR period must be > 0 and < 1e12\r\n"),
        ("GCRA k 1 2 3 COST 4", "-ERR syntax error\r\n"),
        ("GCRA k 1 2 3 TOKENS", "-ERR Missing TOKENS value\r\n"),
    ] {
        client.ask(line, error);
    }
}

#[test]
fn a_pipeline_is_answered_in_its_order() {
    let (server, _clock) = plain();
    let mut client = server.connect();
    let call = encoded(&["CL.THROTTLE", "key:7", "15", "30", "60"]);
    let mut pipeline = Vec::new();
    for _ in 0..5_000 {
        pipeline.extend_from_slice(&call);
        pipeline.extend_from_slice(b"PING\r\n");
    }
    let sender = client.0.try_clone().unwrap();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut &sender, &pipeline).unwrap());
    for used in 1..=5_000 {
        let reply = if used <= 16 { [0, 16, 16 - used, -1, 2 * used] } else { [1, 16, 0, 2, 32] };
        client.expect(&numbered(&reply));
        client.expect("+PONG\r\n");
    }
    sending.join().unwrap();
    assert!(server.metrics().contains("{command=\"ping\",result=\"ok\"} 5000\n"));
    assert!(server.metrics().contains("{command=\"cl.throttle\",result=\"limited\"} 4984\n"));
}
