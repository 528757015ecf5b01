//! The shedder of the node under real pressure: requests in flight at the gateway.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tollgate_testkit::Tollgate;

use super::client::{Client, get, get_json, post_json};
use super::upstream::Upstream;
use super::{BINARY, alone};

/// The number of polls before a test gives up: a minute.
const MAX_POLLS: usize = 6_000;

/// Polls until a condition holds.
fn until(what: &str, tollgate: &Tollgate, mut holds: impl FnMut() -> bool) {
    for _ in 0..MAX_POLLS {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: {}\n{}", get_json(tollgate.api, "/v1/overview")["shed"], tollgate.log());
}

/// Opens requests that the upstream does not answer.
fn pressure(gateway: SocketAddr, upstream: &Upstream, requests: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..requests {
        let mut client = Client::connect(gateway).unwrap();
        client.send("GET /wait/600000 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        upstream.waiting.recv().unwrap();
        clients.push(client);
    }
    clients
}

fn node(api: SocketAddr) -> Value {
    get_json(api, "/v1/overview")["shed"]["node"].clone()
}

#[test]
fn requests_in_flight_above_the_target_shed_until_the_load_is_gone() {
    let _alone = alone();
    let upstream = Upstream::start();
    // The requests that cause the overload are exempt, so that all of them are in flight.
    let policy = "allow: [{endpoint: /wait/**}]
shed: {node: {inflight: 4, cpu: 100%, delay: 1m, rise: 100ms, fall: 100ms, hold: 100ms}}\n";
    let tollgate = Tollgate::start(BINARY, &format!("{policy}{}", upstream.section("")));
    let (gateway, api) = (tollgate.gateway, tollgate.api);
    assert_eq!(get(gateway, "/").status, 200);
    let clients = pressure(gateway, &upstream, 12);
    until("requests are shed", &tollgate, || get(gateway, "/").status == 503);
    until("the level is at its maximum", &tollgate, || node(api)["level_percent"] == 100);
    let refused = get(gateway, "/");
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (503, true));
    let problem: Value = serde_json::from_slice(&refused.body).unwrap();
    assert!(problem["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"), "{problem}");
    let id = refused.header("tollgate-decision").unwrap();
    let explained = get_json(api, &format!("/v1/decisions/{id}"));
    let summary = explained["summary"].as_str().unwrap();
    // How many of the requests are in flight by then depends on the machine.
    let in_flight = summary.split_once("inflight ").and_then(|(_, rest)| rest.split_once(", target 4;"));
    let in_flight = in_flight.and_then(|(count, _)| count.parse::<u64>().ok());
    assert!(summary.contains("shed.node") && in_flight.is_some_and(|it| (5..=12).contains(&it)), "{summary}");
    let checked = post_json(api, "/v1/check", r#"{"path":"/","ip":"203.0.113.9"}"#);
    assert_eq!((&checked["allowed"], &checked["limit"]), (&false.into(), &"shed.node".into()), "{checked}");
    // CPU and delay are measured, and far from their targets.
    until("all signals are measured", &tollgate, || {
        let signals = node(api)["signals"].clone();
        let names = signals.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
        names.eq(["inflight", "cpu", "delay"])
    });
    drop(clients);
    until("all requests pass again", &tollgate, || {
        node(api)["level_percent"] == 0 && get(gateway, "/").status == 200
    });
    assert!(tollgate.log().contains("this node is overloaded"), "{}", tollgate.log());
}

#[test]
fn bulk_requests_are_shed_and_critical_ones_pass() {
    let _alone = alone();
    let upstream = Upstream::start();
    let policy = "allow: [{endpoint: /wait/**}]
priorities:
  - {name: critical, endpoint: /payments/**}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
shed: {node: {inflight: 4, keep: critical, rise: 100ms, fall: 100ms, hold: 100ms}}
";
    let tollgate = Tollgate::start(BINARY, &format!("{policy}{}", upstream.section("")));
    let (gateway, api) = (tollgate.gateway, tollgate.api);
    let bulk = || {
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Priority: bulk\r\n\r\n";
        Client::connect(gateway).unwrap().ask(request).unwrap()
    };
    assert_eq!((bulk().status, get(gateway, "/payments/1").status), (200, 200));
    let clients = pressure(gateway, &upstream, 12);
    until("bulk requests are shed", &tollgate, || bulk().status == 503);
    until("normal requests are shed, too", &tollgate, || get(gateway, "/").status == 503);
    for _ in 0..20 {
        assert_eq!(get(gateway, "/payments/1").status, 200);
    }
    let refused = bulk();
    let explained = get_json(api, &format!("/v1/decisions/{}", refused.header("tollgate-decision").unwrap()));
    let summary = explained["summary"].as_str().unwrap();
    assert!(summary.contains("sheds 100 % of the requests of priority `bulk`"), "{summary}");
    let shares: Vec<_> =
        node(api)["classes"].as_array().unwrap().iter().map(|it| it["shed"].clone()).collect();
    assert_eq!(shares[0], 0, "{shares:?}");
    assert!(shares[1].as_u64() > Some(0) && shares[2].as_u64() > Some(0), "{shares:?}");
    // A class other than the last one is shed: an alert names it.
    let alerts = get_json(api, "/v1/overview")["alerts"].clone();
    assert_eq!((&alerts[0]["limit"], &alerts[0]["key"]), (&"shed.node".into(), &"normal".into()), "{alerts}");
    drop(clients);
    until("all requests pass again", &tollgate, || node(api)["level_percent"] == 0 && bulk().status == 200);
}
