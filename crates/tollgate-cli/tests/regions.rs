//! Two regions with a Redis each, and a slow link between them that is cut and healed.
//!
//! No assertion depends on how long a call takes: a slow machine borrows later.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tollgate_testkit::{Redis, SlowLink, wait_until};

use crate::service::client::{get, get_json, post_json};
use crate::service::region::start;

/// The units of all regions together, in a window that does not end within a test.
const LIMIT: usize = 400;

fn is_admitted(api: SocketAddr) -> bool {
    let answer: Value = post_json(api, "/v1/check", r#"{"path":"/","ip":"203.0.113.9"}"#);
    assert_eq!(answer["degraded"], false, "{answer}");
    answer["allowed"] == true
}

/// Asks until a request is refused, and returns the number of admitted ones.
fn exhaust(api: SocketAddr) -> usize {
    (0..1_000).take_while(|_| is_admitted(api)).count()
}

fn counted(name: &str, api: SocketAddr) -> u64 {
    let page = String::from_utf8(get(api, "/metrics").body).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

#[test]
fn a_cut_region_keeps_its_share_and_a_healed_one_borrows_without_exceeding_the_limit() {
    let (eu_redis, us_redis) = (Redis::start(), Redis::start());
    let (to_us, to_eu) = (SlowLink::to(&us_redis), SlowLink::to(&eu_redis));
    for link in [&to_us, &to_eu] {
        link.delay(Duration::from_millis(40));
    }
    to_us.cut(true);
    let eu = start(LIMIT as u64, ("eu", &eu_redis), ("us", &to_us));
    let us = start(LIMIT as u64, ("us", &us_redis), ("eu", &to_eu));

    // Cut off: the share, exactly, and no request is degraded.
    assert_eq!(exhaust(eu.api), LIMIT / 2, "{}", eu.log());
    assert!(!is_admitted(eu.api));
    assert_eq!(counted(r#"tollgate_region_units_total{region="us",event="borrowed"}"#, eu.api), 0);

    // Healed: units of the other region are served here.
    to_us.cut(false);
    let mut admitted = LIMIT / 2;
    wait_until("units of the other region", || {
        admitted += exhaust(eu.api);
        admitted >= LIMIT * 3 / 4
    });
    assert!(counted(r#"tollgate_region_units_total{region="us",event="borrowed"}"#, eu.api) >= 100);
    assert_eq!(counted(r#"tollgate_region_reachable{region="us"}"#, eu.api), 1);

    // The remaining units are served there, and never more than the limit.
    admitted += exhaust(us.api);
    assert!(admitted <= LIMIT, "{admitted}\n{}\n{}", eu.log(), us.log());
    assert!(!is_admitted(us.api) || admitted < LIMIT);

    let limits = get_json(eu.api, "/v1/limits");
    let region = &limits["limits"][0]["region"];
    assert_eq!(region["name"], "eu", "{limits}");
    assert_eq!((region["share"].as_u64(), &region["borrows_from"][0]), (Some(50), &Value::from("us")));
    let explained = post_json(eu.api, "/v1/explain", r#"{"path":"/","ip":"203.0.113.9"}"#).to_string();
    let said = "these are 50% of the limit, the share of region eu; units of us are borrowed";
    assert!(explained.contains(said), "{explained}");
    assert_eq!(get_json(us.api, "/v1/fleet")["nodes"][0]["region"], "us");
}
