//! External authorization: `Check` about requests that Envoy describes.

use serde_json::{Value, json};

use crate::support::{Service, decode, encode, of_policy};

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

const POLICY: &str = "
client: {trusted_proxies: [10.0.0.0/8]}
priorities: [{name: critical, endpoint: /pay/**}, {name: normal}]
deny: [{'header:x-bad': '1'}]
limits:
  - {name: login, endpoint: /login, method: POST, by: ip, bucket: 1/day}
  - {name: keys, endpoint: /keys, by: api_key, missing: refuse, bucket: 1/day}
  - {name: jobs, endpoint: /jobs, by: global, slots: 1}";

fn request(method: &str, path: &str, headers: &Value) -> Value {
    json!({"attributes": {
        "source": {"address": {"socketAddress": {"address": "203.0.113.9", "portValue": 4711}}},
        "request": {"http": {"method": method, "path": path, "host": "shop.test", "headers": headers}},
    }})
}

fn check(service: &Service, request: &Value) -> Value {
    let (status, reply) = service.call(CHECK, &encode("envoy.service.auth.v3.CheckRequest", request));
    assert_eq!(status, "0", "{request}");
    decode("envoy.service.auth.v3.CheckResponse", &reply.unwrap())
}

/// The HTTP status of an answer; 200 if the request passes.
fn status(answer: &Value) -> u64 {
    answer["deniedResponse"]["status"]["code"].as_u64().unwrap_or(200)
}

fn header<'a>(options: &'a Value, name: &str) -> Option<&'a str> {
    let options = options.as_array()?;
    options.iter().find(|it| it["header"]["key"] == name)?["header"]["value"].as_str()
}

#[test]
fn an_admitted_request_gets_headers_and_metadata() {
    let service = of_policy(POLICY);
    let admitted = check(&service, &request("POST", "/login?next=%2F", &json!({})));
    assert_eq!(status(&admitted), 200, "{admitted}");
    let ok = &admitted["okResponse"];
    assert_eq!(header(&ok["responseHeadersToAdd"], "x-ratelimit-limit"), Some("1"), "{admitted}");
    assert_eq!(header(&ok["headers"], "tollgate-priority"), Some("normal"), "{admitted}");
    assert_eq!(ok["headers"][0]["appendAction"], "OVERWRITE_IF_EXISTS_OR_ADD");
    let metadata = &admitted["dynamicMetadata"];
    assert_eq!(metadata["limit"], "login", "{admitted}");
    assert_eq!(metadata["remaining"], 0.0);
    assert_eq!(metadata["decision"].as_str().map(str::len), Some(16));
    let critical = check(&service, &request("GET", "/pay/now", &json!({})));
    assert_eq!(header(&critical["okResponse"]["headers"], "tollgate-priority"), Some("critical"));
}

#[test]
fn a_refused_request_is_429_with_all_headers_and_a_body() {
    let service = of_policy(POLICY);
    check(&service, &request("POST", "/login", &json!({})));
    let refused = check(&service, &request("POST", "/login", &json!({})));
    assert_eq!(status(&refused), 429, "{refused}");
    assert_eq!(refused["status"]["code"], 8, "RESOURCE_EXHAUSTED");
    let denied = &refused["deniedResponse"];
    assert_eq!(header(&denied["headers"], "content-type"), Some("application/problem+json"));
    assert!(header(&denied["headers"], "retry-after").is_some_and(|it| it.parse::<u64>().unwrap() > 1));
    assert!(header(&denied["headers"], "ratelimit").is_some(), "{refused}");
    let body: Value = serde_json::from_str(denied["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["status"], 429);
    assert_eq!(refused["dynamicMetadata"]["allowed"], false);
}

#[test]
fn another_spelling_of_a_path_is_the_same_path() {
    for path in
        ["/login", "//login", "/./login", "/x/../login", "/login#x", "/%6cogin", "/login;a=b", "/login/"]
    {
        let service = of_policy(POLICY);
        check(&service, &request("POST", "/login", &json!({})));
        assert_eq!(status(&check(&service, &request("POST", path, &json!({})))), 429, "{path}");
    }
}

#[test]
fn forged_headers_are_removed_and_do_not_raise_a_class() {
    let service = of_policy(POLICY);
    let forged = json!({"tollgate-priority": "critical", "tollgate-soft": "x", "tollgate_soft": "y",
        "tollgate-decision": "z", "x-other": "stays"});
    let admitted = check(&service, &request("GET", "/", &forged));
    assert_eq!(header(&admitted["okResponse"]["headers"], "tollgate-priority"), Some("normal"));
    let mut removed: Vec<_> = admitted["okResponse"]["headersToRemove"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    removed.sort_unstable();
    assert_eq!(removed, ["tollgate-decision", "tollgate-soft", "tollgate_soft"], "{admitted}");
}

#[test]
fn the_client_is_the_peer_that_envoy_saw_unless_that_is_a_trusted_proxy() {
    let service = of_policy(POLICY);
    let from = |peer: Option<&str>, forwarded: &str| {
        let mut request = request("POST", "/login", &json!({"x-forwarded-for": forwarded}));
        match peer {
            Some(peer) => {
                request["attributes"]["source"]["address"]["socketAddress"]["address"] = peer.into();
            }
            None => request["attributes"]["source"] = json!({}),
        }
        status(&check(&service, &request))
    };
    assert_eq!(from(Some("198.51.100.1"), "1.1.1.1"), 200);
    assert_eq!(from(Some("198.51.100.1"), "2.2.2.2"), 429, "an untrusted peer speaks for itself");
    assert_eq!(from(Some("10.0.0.1"), "3.3.3.3"), 200);
    assert_eq!(from(Some("10.0.0.2"), "3.3.3.3"), 429, "the same client behind another proxy");
    assert_eq!(from(Some("10.0.0.1"), "4.4.4.4"), 200);
    assert_eq!(from(None, "5.5.5.5"), 200);
    assert_eq!(from(None, "6.6.6.6"), 429, "clients without an address share one allowance");
    assert_eq!(from(Some("no address"), "7.7.7.7"), 429);
}

#[test]
fn raw_headers_are_read_line_by_line() {
    let service = of_policy(POLICY);
    let with = |lines: &[(&str, &str)]| {
        let mut request = request("GET", "/keys", &json!({}));
        let lines: Vec<_> = lines.iter().map(|(key, value)| json!({"key": key, "rawValue": value})).collect();
        request["attributes"]["request"]["http"]["headerMap"] = json!({"headers": lines});
        status(&check(&service, &request))
    };
    // Bytes are base64 in JSON: ann, \xff\xfe.
    assert_eq!(with(&[("x-api-key", "YW5u")]), 200);
    assert_eq!(with(&[("X-Api-Key", "YW5u"), (":path", "YW5u")]), 429, "in any case");
    assert_eq!(with(&[("x-api-key", "//4=")]), 200);
    assert_eq!(with(&[("x-api-key", "//4=")]), 429, "any bytes are a key");
    assert_eq!(with(&[("x-bad", "MQ==")]), 403, "a denied caller");
    assert!(with(&[]) >= 400, "a missing key is refused");
}

#[test]
fn slots_are_looked_at_and_not_held() {
    let service = of_policy(POLICY);
    for _ in 0..3 {
        assert_eq!(status(&check(&service, &request("GET", "/jobs", &json!({})))), 200);
    }
}

#[test]
fn missing_attributes_are_an_error_and_garbage_is_no_panic() {
    let service = of_policy(POLICY);
    for empty in [json!({}), json!({"attributes": {}}), json!({"attributes": {"request": {}}})] {
        let message = encode("envoy.service.auth.v3.CheckRequest", &empty);
        assert_eq!(service.call(CHECK, &message).0, "3", "{empty}");
    }
    // A request without any field is one for `/`.
    let bare = json!({"attributes": {"request": {"http": {}}}});
    assert_eq!(status(&check(&service, &bare)), 200);
    let whole = encode("envoy.service.auth.v3.CheckRequest", &request("POST", "/login", &json!({"a": "b"})));
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut message = whole.clone();
        message.truncate(rng.usize(..=whole.len()));
        for _ in 0..rng.usize(..4) {
            if !message.is_empty() {
                let at = rng.usize(..message.len());
                message[at] = rng.u8(..);
            }
        }
        let (status, _) = service.call(CHECK, &message);
        assert!(["0", "3"].contains(&status.as_str()), "seed {seed}: {status}");
    }
}

#[test]
fn a_request_with_too_many_headers_is_denied() {
    let service = of_policy(POLICY);
    let headers: serde_json::Map<_, _> = (0..2_001).map(|at| (format!("h{at}"), json!("x"))).collect();
    let denied = check(&service, &request("GET", "/", &Value::Object(headers)));
    assert_eq!(status(&denied), 431, "{denied}");
}
