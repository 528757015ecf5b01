//! Limits of the policy, by name.

use tollgate::policy::{KeySource, LimitBuilder};
use tollgate::{Bucket, Policy, Rate, Span};
use tollgate_resp::RespSettings;

use crate::support::{Server, in_memory, with_manual_clock};

const POLICY: &str = "
limits:
  - {name: api, by: user, bucket: 3/minute}
  - {name: pair, by: [user, ip], bucket: 5/minute}
  - {name: everybody, by: global, bucket: 2/minute}
  - {name: exports, by: user, slots: 1, ttl: 1m}
  - {name: watched, by: user, bucket: 1/minute, mode: shadow}
";

#[test]
fn limits_of_the_policy_are_checked_by_name() {
    let (limiter, clock) = in_memory(POLICY);
    let server = Server::start(limiter, RespSettings::default(), None);
    let mut client = server.connect();
    let mut check = |line: &str, numbers: [i64; 5]| client.ask_decision(line, numbers);
    check("TG.CHECK api ann", [0, 3, 2, -1, 20_000]);
    check("tg.check api ann 2", [0, 3, 0, -1, 60_000]);
    check("TG.CHECK api ann", [1, 3, 0, 20_000, 60_000]);
    check("TG.CHECK api bob 4", [1, 3, 3, -1, 0]);
    check("TG.CHECK pair ann 203.0.113.9 5", [0, 5, 0, -1, 60_000]);
    check("TG.CHECK everybody 2", [0, 2, 0, -1, 60_000]);
    check("TG.CHECK watched ann", [0, 1, 0, -1, 60_000]);
    check("TG.CHECK watched ann", [0, 1, 0, -1, 60_000]);
    client.ask_numbers("TG.PEEK api ann", &[1, 3, 0, 20_000, 60_000]);
    client.ask_numbers("TG.PEEK api bob 4", &[1, 3, 3, -1, 0]);
    client.ask_numbers("TG.PEEK api bob", &[0, 3, 3, -1, 0]);
    clock.advance(Span::from_secs(30));
    client.ask_numbers("TG.PEEK api ann 2", &[1, 3, 1, 10_000, 30_000]);
    client.ask("TG.CHECK apo ann", "-ERR no limit is called `apo`; did you mean `api`?\r\n");
    client.ask("TG.CHECK \"x\\r\\n\" ann", "-ERR no limit is called `x  `; the limits are `api`, `pair`, `everybody`, `exports` and `watched`\r\n");
    let usage = "(each part of the key not empty, an ip as an address)\r\n";
    client.ask("TG.CHECK api", &format!("-ERR usage: tg.check api user [cost] {usage}"));
    client.ask("TG.CHECK pair ann bob", &format!("-ERR usage: tg.check pair user ip [cost] {usage}"));
    client.ask("TG.CHECK everybody 1 2", &format!("-ERR usage: tg.check everybody [cost] {usage}"));
    client.ask("TG.CHECK api ann -1", "-ERR the cost is a whole number, and not negative\r\n");
    client
        .ask("TG.CHECK exports ann", "-ERR limit `exports` counts slots: use TG.ACQUIRE and TG.RELEASE\r\n");
    client.ask("TG.ACQUIRE api ann", "-ERR limit `api` counts units, not slots: use TG.CHECK\r\n");
    assert!(server.metrics().contains("{command=\"tg.check\",result=\"limited\"} 2\n"));
}

/// Limits of Envoy files are separate and have entries too.
#[test]
fn limits_on_descriptors_are_checked_by_their_entries() {
    let policy = Policy::parse(
        "limits:
  - {name: gold, descriptor: [plan=gold, user], bucket: 5/minute}
  - {name: fixed, descriptor: [plan=free], bucket: 5/minute}
",
    )
    .unwrap();
    let apart = LimitBuilder::new("shop.plan_gold.user")
        .envoy_match("shop", [("plan", Some("gold")), ("user", None)])
        .by(KeySource::Descriptor)
        .quota(Bucket::new(Rate::per_minute(5)).unwrap());
    let policy = policy.extended(vec![apart]).unwrap();
    let server = Server::start(with_manual_clock(policy).0, RespSettings::default(), None);
    let mut client = server.connect();
    let mut left = |line: &str| {
        client.send(format!("{line}\r\n").as_bytes());
        let first = client.line();
        if first.starts_with('-') {
            return first;
        }
        let numbers: Vec<_> = (0..5).map(|_| client.line()).collect();
        if first == "*6" {
            client.line();
            client.line();
        }
        numbers[2][1..].to_owned()
    };
    for (line, expected) in [
        ("TG.CHECK gold ann", "4"),
        ("TG.CHECK gold plan=gold user=ann", "3"),
        ("TG.CHECK gold \"plan=gold, user=ann\" 2", "1"),
        ("TG.PEEK gold user=ann", "1"),
        ("TG.CHECK fixed", "4"),
        ("TG.CHECK fixed 2", "2"),
        ("TG.CHECK fixed plan=free 2", "0"),
        ("TG.CHECK shop.plan_gold.user plan=gold user=ann", "4"),
        ("TG.CHECK shop.plan_gold.user plan=gold user=ann 2", "2"),
        ("TG.PEEK shop.plan_gold.user \"plan=gold, user=ann\"", "2"),
        ("TG.PEEK shop.plan_gold.user plan=gold user=bob", "5"),
    ] {
        assert_eq!(left(line), expected, "{line}");
    }
    let usage = "plan=VALUE user=VALUE [cost] (each part of the key not empty, an ip as an address)";
    for wrong in ["ann", "plan=gold", "user=ann plan=gold", "\"plan=gold, who=ann\"", "plan=gold who=ann 1"] {
        let said = left(&format!("TG.CHECK shop.plan_gold.user {wrong}"));
        assert_eq!(said, format!("-ERR usage: tg.check shop.plan_gold.user {usage}"), "{wrong}");
    }
}

#[test]
fn slot_tokens_cannot_be_guessed() {
    let policy = "limits: [{name: exports, by: user, slots: 1000}]";
    let (limiter, _clock) = in_memory(policy);
    let server = Server::start(limiter, RespSettings::default(), None);
    let mut client = server.connect();
    let mut tokens = Vec::new();
    for held in 1..=50 {
        client.command(&["TG.ACQUIRE", "exports", "ann"]);
        client.expect(&format!("*6\r\n:0\r\n:1000\r\n:{}\r\n:-1\r\n:60000\r\n$32\r\n", 1_000 - held));
        tokens.push(u128::from_str_radix(client.line().trim(), 16).unwrap());
    }
    for (one, next) in tokens.iter().zip(&tokens[1..]) {
        let differ = (one ^ next).count_ones();
        assert!(differ > 20, "{one:032x} and {next:032x}");
        assert_ne!(one >> 64, next >> 64);
    }
}

#[test]
fn a_slot_is_renewed_by_its_token() {
    let (limiter, clock) = in_memory(POLICY);
    let server = Server::start(limiter, RespSettings::default(), None);
    let mut client = server.connect();
    client.ask("TG.ACQUIRE exports ann", "*6\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60000\r\n$32\r\n");
    let token = client.line();
    for _ in 0..3 {
        clock.advance(Span::from_secs(50));
        client.ask(&format!("TG.RENEW exports ann {token}"), ":1\r\n");
        client.ask_numbers("TG.PEEK exports ann", &[1, 1, 0, 1_000, 60_000]);
    }
    client.ask(&format!("TG.RENEW exports bob {token}"), ":0\r\n");
    client.ask(
        "TG.RENEW exports ann nonsense",
        "-ERR the token of a slot is what TG.ACQUIRE answered last\r\n",
    );
    clock.advance(Span::from_secs(60));
    client.ask(&format!("TG.RENEW exports ann {token}"), ":0\r\n");
    client.ask_numbers("TG.PEEK exports ann", &[0, 1, 1, -1, 0]);
}

#[test]
fn slots_are_acquired_and_released() {
    let (limiter, _clock) = in_memory(POLICY);
    let server = Server::start(limiter, RespSettings::default(), None);
    let mut client = server.connect();
    client.ask("TG.ACQUIRE exports ann", "*6\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60000\r\n$32\r\n");
    let token = client.line();
    client.ask("TG.ACQUIRE exports ann", "*6\r\n:1\r\n:1\r\n:0\r\n:1000\r\n:60000\r\n$-1\r\n");
    client.ask_numbers("TG.PEEK exports ann", &[1, 1, 0, 1_000, 60_000]);
    client.ask(
        "TG.RELEASE exports ann nonsense",
        "-ERR the token of a slot is what TG.ACQUIRE answered last\r\n",
    );
    // The token of another slot releases nothing.
    let other: String = token.chars().rev().collect();
    client.ask(&format!("TG.RELEASE exports ann {other}"), "+OK\r\n");
    client.ask_numbers("TG.PEEK exports ann", &[1, 1, 0, 1_000, 60_000]);
    // On another connection, twice.
    let mut second = server.connect();
    for _ in 0..2 {
        second.ask(&format!("TG.RELEASE exports ann {token}"), "+OK\r\n");
    }
    client.ask_numbers("TG.PEEK exports ann", &[0, 1, 1, -1, 0]);
    client.ask("TG.ACQUIRE exports ann", "*6\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60000\r\n$32\r\n");
}
