//! Two regions whose link is cut and healed: each keeps its share, and both together admit the limit.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_testkit::{Redis, SlowLink, Tollgate, wait_until};

use crate::client::post_json;
use crate::harness::{percentile, write_row};
use crate::region::start;

const LIMIT: u64 = 2_000;

/// The answers of one stretch of time.
#[derive(Default)]
struct Answers {
    admitted: u64,
    degraded: u64,
    times: Vec<Duration>,
}

impl Answers {
    /// Asks until a request is refused.
    fn exhaust(&mut self, node: &Tollgate, most: u64) {
        for _ in 0..most {
            let at = Instant::now();
            let answer = post_json(node.api, "/v1/check", r#"{"path":"/","ip":"203.0.113.9"}"#);
            self.times.push(at.elapsed());
            self.degraded += u64::from(answer["degraded"] == true);
            if answer["allowed"] != true {
                break;
            }
            self.admitted += 1;
        }
    }
}

#[test]
fn regions_that_are_cut_and_healed_admit_the_limit() {
    let (eu_redis, us_redis) = (Redis::start(), Redis::start());
    let (to_us, to_eu) = (SlowLink::to(&us_redis), SlowLink::to(&eu_redis));
    for link in [&to_us, &to_eu] {
        link.delay(Duration::from_millis(40));
    }
    let eu = start(LIMIT, ("eu", &eu_redis), ("us", &to_us));
    let us = start(LIMIT, ("us", &us_redis), ("eu", &to_eu));
    let (mut before, mut during) = (Answers::default(), Answers::default());
    before.exhaust(&eu, LIMIT / 8);
    before.exhaust(&us, LIMIT / 8);
    to_us.cut(true);
    to_eu.cut(true);
    during.exhaust(&eu, LIMIT);
    let cut_off = before.admitted + during.admitted;
    to_us.cut(false);
    to_eu.cut(false);
    let healed = Instant::now();
    // Units of the other region are served here, and the rest there.
    wait_until("units of the other region", || {
        during.exhaust(&eu, LIMIT);
        before.admitted + during.admitted > cut_off
    });
    let first = healed.elapsed();
    during.exhaust(&us, 2 * LIMIT);
    let (admitted, degraded) = (before.admitted + during.admitted, before.degraded + during.degraded);
    let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
    let longest = during.times.iter().max().copied().unwrap_or_default();
    let decisions = before.times.len() + during.times.len();
    write_row(
        410,
        &json!({
            "fault": "link between two regions cut, healed after the share was spent",
            "store": "two regions",
            "nodes": 2,
            "admitted": admitted,
            "allowed": {"limit": LIMIT, "share": 0, "lost": 0},
            "why": "",
            "degraded": degraded,
            "decisions": decisions,
            "p99_before_us": micros(percentile(before.times, 99)),
            "p99_during_us": micros(percentile(during.times, 99)),
            "longest_us": micros(longest),
            "errors": 0,
            "first_us": micros(first),
            "recovered_us": 0,
        }),
    );
    assert!(admitted <= LIMIT, "{admitted}\n{}\n{}", eu.log(), us.log());
    assert!(admitted >= LIMIT / 2 && degraded == 0, "{admitted}, {degraded}");
}
