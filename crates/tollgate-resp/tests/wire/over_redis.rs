//! A store that has to be awaited: pipelines wait together, and an outage is not an error.

use std::time::Duration;

use tollgate::{Limiter, Policy};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_resp::RespSettings;
use tollgate_testkit::Redis;

use crate::support::{Server, encoded, numbered};

/// A busy machine delays answers: without an outage, the store waits for them.
fn server_on(redis: &Redis) -> Server<RedisStore> {
    server_with_deadline(redis, Duration::from_secs(30))
}

fn server_with_deadline(redis: &Redis, deadline: Duration) -> Server<RedisStore> {
    let settings = RedisSettings { deadline, ..RedisSettings::parse(&[&redis.url()]).unwrap() };
    let store = RedisStore::new(settings);
    let policy = Policy::parse(
        "limits: [{name: api, by: user, bucket: 3/hour}, {name: jobs, by: user, slots: 1, ttl: 1h}]",
    );
    Server::start(Limiter::with_store(policy.unwrap(), store), RespSettings::default(), None)
}

#[test]
fn a_pipeline_over_redis_is_answered_in_order_and_shares_calls() {
    let redis = Redis::start();
    let server = server_on(&redis);
    let mut client = server.connect();
    // One unit an hour, so that elapsed time does not matter.
    let mut pipeline = Vec::new();
    for number in 0..50 {
        pipeline.extend_from_slice(&encoded(&[
            "CL.THROTTLE",
            &format!("key:{number}"),
            "1",
            "1",
            "3600",
            "2",
        ]));
        pipeline.extend_from_slice(&encoded(&["CL.THROTTLE", &format!("key:{number}"), "1", "1", "3600"]));
        pipeline.extend_from_slice(b"PING\r\n");
    }
    client.send(&pipeline);
    for _ in 0..50 {
        client.expect(&numbered(&[0, 2, 0, -1, 7_200]));
        client.expect(&numbered(&[1, 2, 0, 3_600, 7_200]));
        client.expect("+PONG\r\n");
    }
    // A refund between two commands that spend.
    client.send(b"CL.THROTTLE b 0 1 3600\r\nCL.THROTTLE b 0 1 3600 -1\r\nCL.THROTTLE b 0 1 3600\r\n");
    client.expect(&numbered(&[0, 1, 0, -1, 3_600]));
    client.expect(&numbered(&[0, 1, 1, -1, 0]));
    client.expect(&numbered(&[0, 1, 0, -1, 3_600]));
    let calls = redis.cli(&["INFO", "commandstats"]);
    let calls: u64 = calls
        .lines()
        .filter(|line| line.starts_with("cmdstat_evalsha:") || line.starts_with("cmdstat_eval:"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum();
    assert!(calls < 60, "{calls} calls for 103 decisions");
}

#[test]
fn over_redis_a_key_has_one_arrival_time_under_every_quota() {
    let redis = Redis::start();
    let (one, other) = (server_on(&redis), server_on(&redis));
    let (mut here, mut there) = (one.connect(), other.connect());
    // A burst of sixteen, one unit in two hours: no unit is restored during the test.
    here.ask_numbers("CL.THROTTLE u 15 30 216000 16", &[0, 16, 0, -1, 115_200]);
    there.ask_numbers("CL.THROTTLE u 1 30 216000", &[1, 2, 0, 108_000, 115_200]);
    there.ask_numbers("CL.THROTTLE u 16 30 216000", &[0, 17, 0, -1, 122_400]);
    here.ask_numbers("CL.THROTTLE u 31 30 216000 0", &[0, 32, 15, -1, 122_400]);
    here.ask_numbers("THROTTLE u 17 30 216000", &[0, 17, 0, 122_399, 7_199]);
    assert_eq!(redis.cli(&["DBSIZE"]).trim(), "1");
}

#[test]
fn a_transaction_over_redis_is_answered_as_one_array() {
    let redis = Redis::start();
    let server = server_on(&redis);
    let mut client = server.connect();
    let mut calls = b"MULTI\r\n".to_vec();
    for _ in 0..200 {
        calls.extend_from_slice(b"CL.THROTTLE t 299 1 36000\r\n");
    }
    // A refund between two commands that spend, and a peek after them.
    calls.extend_from_slice(
        b"CL.THROTTLE t 299 1 36000 -1\r\nCL.THROTTLE t 299 1 36000\r\nTG.PEEK api ann\r\n",
    );
    calls.extend_from_slice(b"EXEC\r\nPING\r\n");
    client.send(&calls);
    client.expect(&format!("+OK\r\n{}*203\r\n", "+QUEUED\r\n".repeat(203)));
    for left in (100..300).rev().chain([101, 100]) {
        client.expect(&format!("*5\r\n:0\r\n:300\r\n:{left}\r\n"));
        client.line();
        client.line();
    }
    client.expect(&numbered(&[0, 3, 3, -1, 0]));
    client.expect("+PONG\r\n");
}

#[test]
fn named_limits_and_slots_work_over_redis() {
    let redis = Redis::start();
    let server = server_on(&redis);
    let mut client = server.connect();
    client.ask("TG.CHECK api ann 3", "*6\r\n:0\r\n:3\r\n:0\r\n:-1\r\n:3600000\r\n$16\r\n");
    client.line();
    client.send(b"TG.PEEK api ann\r\n");
    assert_eq!((client.line(), client.line(), client.line()), ("*5".into(), ":1".into(), ":3".into()));
    client.expect(":0\r\n");
    let wait: u64 = client.line()[1..].parse().unwrap();
    assert!((1_100_000..=1_200_000).contains(&wait), "{wait}");
    client.line();
    client.ask("TG.ACQUIRE jobs ann", "*6\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600000\r\n$32\r\n");
    let token = client.line();
    client.send(b"TG.ACQUIRE jobs ann\r\n");
    assert_eq!((client.line(), client.line()), ("*6".into(), ":1".into()));
    for _ in 0..4 {
        client.line();
    }
    assert_eq!(client.line(), "$-1");
    client.ask(&format!("TG.RELEASE jobs ann {token}"), "+OK\r\n");
    client.ask_numbers("TG.PEEK jobs ann", &[0, 1, 1, -1, 0]);
}

#[test]
fn an_outage_is_not_an_error() {
    let redis = Redis::start();
    let server = server_with_deadline(&redis, Duration::from_millis(500));
    let mut client = server.connect();
    client.ask_numbers("CL.THROTTLE u 1 1 3600", &[0, 2, 1, -1, 3_600]);
    redis.kill();
    // The node counts locally now and still knows the limit.
    let mut allowed = 0;
    for _ in 0..10 {
        client.send(b"CL.THROTTLE v 1 1 3600\r\n");
        client.expect("*5\r\n");
        allowed += i32::from(client.line() == ":0");
        assert_eq!(client.line(), ":2");
        for _ in 0..3 {
            client.line();
        }
    }
    assert!((1..=2).contains(&allowed), "{allowed} of 2");
    client.ask("TG.PEEK api ann", "-ERR the store gave no answer; nothing is known to have changed\r\n");
    client.ask(
        "CL.THROTTLE v 1 1 3600 -1",
        "-ERR the store gave no answer; the refund is kept and applied when it does, so do not repeat it\r\n",
    );
    client.ask("PING", "+PONG\r\n");
}
