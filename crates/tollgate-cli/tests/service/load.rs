//! Many concurrent requests, sent by h2load.

use serde_json::json;
use tollgate_testkit::{Scratch, Tollgate};

use super::client::post_json;
use super::tools::{BOTH, Protocol, Statuses, h2load};
use super::upstream::Upstream;
use super::{BINARY, ROOMY, alone};

const MANY: usize = 4_000;
const ALLOWED: usize = 300;
const REQUESTS: usize = 2_000;

/// A limit that is not refilled within the test.
const TIGHT: &str = "limits:\n  - {name: tight, by: global, bucket: 300/day}\n";

fn all_fine() -> Statuses {
    Statuses::from([(200, MANY)])
}

fn only_the_allowed() -> Statuses {
    Statuses::from([(200, ALLOWED), (429, REQUESTS - ALLOWED)])
}

#[test]
fn every_request_to_the_gateway_is_answered_over_both_protocols() {
    let _alone = alone();
    let upstream = Upstream::start();
    let tollgate = Tollgate::start(BINARY, &format!("{ROOMY}{}", upstream.section("")));
    for protocol in BOTH {
        let statuses = h2load(protocol, &format!("http://{}/", tollgate.gateway), MANY, &[]);
        assert_eq!(statuses, all_fine(), "every request over {protocol:?} passes the gateway");
    }
}

#[test]
fn every_question_to_the_api_is_answered_over_both_protocols() {
    let _alone = alone();
    let tollgate = Tollgate::start(BINARY, ROOMY);
    let files = Scratch::new();
    let question = files.write("question.json", r#"{"path":"/","ip":"203.0.113.9"}"#);
    let send = ["-d", question.to_str().unwrap(), "-H", "content-type: application/json"];
    for protocol in BOTH {
        let statuses = h2load(protocol, &format!("http://{}/v1/check", tollgate.api), MANY, &send);
        assert_eq!(statuses, all_fine(), "every check over {protocol:?} is answered");
        let statuses = h2load(protocol, &format!("http://{}/healthz", tollgate.api), MANY, &[]);
        assert_eq!(statuses, all_fine(), "every page over {protocol:?} is answered");
    }
}

#[test]
fn the_gateway_admits_exactly_the_limit() {
    let _alone = alone();
    for protocol in BOTH {
        let tollgate = Tollgate::start(BINARY, TIGHT);
        let statuses = h2load(protocol, &format!("http://{}/", tollgate.gateway), REQUESTS, &[]);
        assert_eq!(statuses, only_the_allowed(), "over {protocol:?}, the rest is refused");
    }
}

#[test]
fn forward_auth_admits_exactly_the_limit() {
    let _alone = alone();
    for protocol in BOTH {
        let tollgate = Tollgate::start(BINARY, TIGHT);
        let url = format!("http://{}/v1/auth/original", tollgate.api);
        let statuses = h2load(protocol, &url, REQUESTS, &["-H", "x-original-uri: /"]);
        assert_eq!(statuses, only_the_allowed(), "over {protocol:?}, the rest is refused");
    }
}

#[test]
fn gateway_and_api_count_together_while_both_are_busy() {
    let _alone = alone();
    let tollgate = Tollgate::start(BINARY, TIGHT);
    let url = format!("http://{}/v1/auth/original", tollgate.api);
    let (api, gateway) = std::thread::scope(|scope| {
        let api = scope.spawn(|| h2load(Protocol::Http2, &url, REQUESTS, &["-H", "x-original-uri: /"]));
        let gateway = h2load(Protocol::Http1, &format!("http://{}/", tollgate.gateway), REQUESTS, &[]);
        (api.join().unwrap(), gateway)
    });
    let count = |status| api.get(&status).unwrap_or(&0) + gateway.get(&status).unwrap_or(&0);
    assert_eq!(count(200), ALLOWED, "one limit, however it is asked: {api:?} and {gateway:?}");
    assert_eq!(count(429), 2 * REQUESTS - ALLOWED, "the rest is refused: {api:?} and {gateway:?}");
    let left = post_json(tollgate.api, "/v1/limits/tight/peek", "{}");
    assert_eq!(left["limits"][0]["remaining"], json!(0), "nothing is left: {left}");
}
