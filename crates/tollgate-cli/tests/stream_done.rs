//! Calls at the end of a stream, with real stores and during an outage: late charges and released slots.
//!
//! Two servers share each store, and the calls of one key alternate between them. Deadlines are long, so that a
//! busy machine does not affect the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_testkit::{Postgres, Redis, Tollgate};

use crate::integrations::message::Ask;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// The maximum time that a test waits for an event on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

const LIMITS: &str = r#"
limits:
  - {name: tokens, descriptor: [user], by: "descriptor:user", rate: 100/day, charge: afterwards}
  - {name: streams, descriptor: [stream, id], by: "descriptor:stream", slots: 2, ttl: 10m, owner: "descriptor:id"}
  - {name: loose, descriptor: [loose], by: "descriptor:loose", slots: 2, ttl: 10m, expect: slots-without-owner}
"#;

/// Two servers on one store.
struct Servers([Tollgate; 2]);

impl Servers {
    fn start(store: &str) -> Self {
        let policy = format!("store: {{url: '{store}', deadline: 10s}}\n{LIMITS}");
        Self([(); 2].map(|()| Tollgate::start(BINARY, &policy)))
    }

    /// Returns whether a call of one server is within the limits. Negative hits report the end of a request.
    fn call(&self, server: usize, entries: &[(&str, &str)], hits: Option<i64>) -> bool {
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        let mut descriptor = json!({"entries": entries});
        if let Some(hits) = hits {
            descriptor["hitsAddend"] = hits.unsigned_abs().into();
            descriptor["isNegativeHits"] = (hits < 0).into();
        }
        let body = json!({"domain": "edge", "descriptors": [descriptor]}).to_string();
        let headers = "Content-Type: application/json\r\n";
        let request = Ask { body: body.as_bytes(), headers, ..Ask::new("POST /json") };
        let response = request.send(self.0[server].api);
        match response.status() {
            200 => true,
            429 => false,
            _ => panic!("{response:?}\n{}", self.0[server].log()),
        }
    }

    fn stream(&self, server: usize, id: &str, hits: Option<i64>) -> bool {
        self.call(server, &[("stream", "ann"), ("id", id)], hits)
    }

    /// Waits until a server sees a state of the store.
    fn wait_until(&self, server: usize, what: &str, is_seen: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_seen(self) {
            assert!(start.elapsed() < WAIT_TIMEOUT, "not seen: {what}\n{}", self.0[server].log());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn late_charges_and_slots_are_shared(store: &str) {
    let servers = Servers::start(store);
    let ann = [("user", "ann")];
    assert!(servers.call(0, &ann, None), "a request costs nothing");
    assert!(servers.call(0, &ann, Some(60)) && servers.call(1, &ann, None), "40 are left");
    assert!(servers.call(1, &ann, Some(90)), "it has been spent");
    assert!(!servers.call(0, &ann, None) && !servers.call(1, &ann, Some(0)), "in debt");
    assert!(servers.call(0, &[("user", "bob")], None));

    assert!(servers.stream(0, "1", None) && servers.stream(1, "2", Some(1)));
    assert!(!servers.stream(0, "3", None));
    assert!(servers.stream(1, "3", Some(-1)), "the end of the refused request");
    assert!(!servers.stream(0, "4", None), "it held no slot");
    assert!(servers.stream(1, "1", Some(-1)) && servers.stream(0, "1", Some(-1)), "one slot, twice");
    assert!(servers.stream(0, "4", None) && !servers.stream(1, "5", None));

    let loose = [("loose", "ann")];
    assert!(servers.call(0, &loose, Some(-1)), "the count stays at zero");
    assert!(servers.call(0, &loose, None) && servers.call(1, &loose, None));
    assert!(!servers.call(0, &loose, None));
    assert!(servers.call(1, &loose, Some(-1)), "the oldest slot");
    assert!(servers.call(0, &loose, None) && !servers.call(1, &loose, None));
}

#[test]
fn late_charges_and_slots_are_shared_on_redis() {
    late_charges_and_slots_are_shared(&Redis::start().url());
}

#[test]
fn late_charges_and_slots_are_shared_on_postgresql() {
    late_charges_and_slots_are_shared(&Postgres::start().url());
}

#[test]
fn a_late_charge_in_an_outage_is_counted_here_and_later_in_the_store() {
    let redis = Redis::start();
    let servers = Servers::start(&redis.url());
    let ann = [("user", "ann")];
    assert!(servers.call(0, &ann, Some(1)) && servers.call(1, &ann, None));
    redis.kill();
    assert!(servers.call(0, &ann, Some(150)), "it has been spent");
    assert!(!servers.call(0, &ann, None), "this node counts it meanwhile");
    // Released slots of this node are free at once: there are at most two.
    for round in ["1", "2", "3", "4", "5"] {
        assert!(servers.stream(0, round, None), "{round}");
        assert!(servers.stream(0, round, Some(-1)), "{round}");
        assert!(servers.call(0, &[("loose", "ann")], None), "{round}");
        assert!(servers.call(0, &[("loose", "ann")], Some(-1)), "{round}");
    }
    redis.restart();
    servers.wait_until(1, "the debt in the store", |servers| !servers.call(1, &ann, None));
    let both = |servers: &Servers| {
        let taken = [servers.stream(1, "6", None), servers.stream(1, "7", None)];
        for id in ["6", "7"] {
            servers.stream(1, id, Some(-1));
        }
        taken == [true; 2]
    };
    servers.wait_until(1, "two free slots", both);
}
