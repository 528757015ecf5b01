//! Domains of the policy: batches, every algorithm, all fields.

use serde_json::json;
use tollgate::{Limiter, ManualClock, Measurement, MemoryStore, NodeShedder, Policy, Span, Timestamp};
use tollgate_rls::{Headers, Rls, RlsSettings};

use crate::support::{START, Service, of, of_policy};

const EDGE: &str = "
limits:
  - {name: per-user, domain: edge, descriptor: [user], bucket: 3/minute}
  - {name: per-plan, domain: edge, descriptor: [plan=free], algorithm: fixed-window, rate: 2/hour}
";

fn user(name: &str) -> serde_json::Value {
    json!({"entries": [{"key": "user", "value": name}]})
}

fn free() -> serde_json::Value {
    json!({"entries": [{"key": "plan", "value": "free"}]})
}

#[test]
fn a_status_describes_its_limit_completely() {
    let service = of_policy(EDGE);
    let response = service.ask(&json!({"domain": "edge", "descriptors": [user("ann"), free()]}));
    assert_eq!(
        response,
        json!({"overallCode": "OK", "statuses": [
            {"code": "OK", "limitRemaining": 2, "durationUntilReset": "20s",
             "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE", "name": "per-user"}},
            {"code": "OK", "limitRemaining": 1, "durationUntilReset": "330s",
             "currentLimit": {"requestsPerUnit": 2, "unit": "HOUR", "name": "per-plan"}},
        ]})
    );
}

#[test]
fn all_descriptors_are_charged_or_none_is() {
    let service = of_policy(EDGE);
    let both = json!({"domain": "edge", "descriptors": [user("ann"), free()]});
    assert_eq!(service.codes(&both), "OK: OK OK");
    assert_eq!(service.codes(&both), "OK: OK OK");
    assert_eq!(service.codes(&both), "OVER_LIMIT: OK OVER_LIMIT");
    // The refusals did not charge ann.
    let response = service.ask(&json!({"domain": "edge", "descriptors": [user("ann")]}));
    assert_eq!(response["statuses"][0].get("limitRemaining"), None);
    assert_eq!(
        service.codes(&json!({"domain": "edge", "descriptors": [user("ann")]})),
        "OVER_LIMIT: OVER_LIMIT"
    );
    service.pass(20);
    assert_eq!(service.codes(&json!({"domain": "edge", "descriptors": [user("ann")]})), "OK: OK");
}

#[test]
fn a_descriptor_without_a_limit_is_ok_without_details() {
    let service = of_policy(EDGE);
    for request in [
        json!({"domain": "other", "descriptors": [user("ann")]}),
        json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user"}, {"key": "path"}]}]}),
    ] {
        assert_eq!(service.ask(&request), json!({"overallCode": "OK", "statuses": [{"code": "OK"}]}));
    }
}

#[test]
fn the_hits_of_a_descriptor_precede_those_of_the_request() {
    let service = of_policy(EDGE);
    let left = |request: &serde_json::Value| {
        let response = service.ask(request);
        (
            response["overallCode"].as_str().unwrap().to_owned(),
            response["statuses"][0]["limitRemaining"].as_u64(),
        )
    };
    let ok = |left: u64| ("OK".to_owned(), Some(left).filter(|left| *left > 0));
    assert_eq!(left(&json!({"domain": "edge", "descriptors": [user("a")], "hitsAddend": 2})), ok(1));
    let with_hits = |hits: u64| {
        let mut descriptor = user("b");
        descriptor["hitsAddend"] = hits.into();
        json!({"domain": "edge", "descriptors": [descriptor], "hitsAddend": 1})
    };
    assert_eq!(left(&with_hits(0)), ok(3));
    assert_eq!(left(&with_hits(3)), ok(0));
    assert_eq!(left(&with_hits(0)).0, "OVER_LIMIT", "nothing is left");
    assert_eq!(left(&with_hits(0)).0, "OVER_LIMIT");
    let mut back = user("b");
    (back["hitsAddend"], back["isNegativeHits"]) = (2.into(), true.into());
    assert_eq!(left(&json!({"domain": "edge", "descriptors": [back]})), ok(2));
    assert_eq!(left(&with_hits(2)), ok(0));
}

#[test]
fn an_override_counts_with_its_own_quota() {
    let service = of_policy(EDGE);
    let mut instead = user("ann");
    instead["limit"] = json!({"requestsPerUnit": 1, "unit": "DAY"});
    let request = json!({"domain": "edge", "descriptors": [instead]});
    let response = service.ask(&request);
    assert_eq!(response["statuses"][0]["currentLimit"], json!({"requestsPerUnit": 1, "unit": "DAY"}));
    assert_eq!(service.codes(&request), "OVER_LIMIT: OVER_LIMIT");
    assert_eq!(service.codes(&json!({"domain": "edge", "descriptors": [user("ann")]})), "OK: OK");
}

#[test]
fn overrides_and_limits_of_one_call_are_all_charged_or_none_is() {
    let service = of_policy("limits: [{name: three, descriptor: [user], domain: edge, bucket: 3/day}]");
    let (ann, mut instead) = (user("ann"), json!({"entries": [{"key": "plan", "value": "ann"}]}));
    instead["limit"] = json!({"requestsPerUnit": 1, "unit": "DAY"});
    let both = json!({"domain": "edge", "descriptors": [ann, instead]});
    assert_eq!(service.codes(&both), "OK: OK OK");
    for _ in 0..5 {
        assert_eq!(service.codes(&both), "OVER_LIMIT: OK OVER_LIMIT", "the override refuses");
    }
    let only = |it: &serde_json::Value, hits: u64| {
        let request = json!({"domain": "edge", "descriptors": [it], "hitsAddend": hits});
        service.ask(&request)["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
    };
    assert_eq!(only(&ann, 1), 1, "2 of 3 were left, and one is spent now");
    // The reverse: the override counts neither requests that the limit refuses nor its own
    // refusals.
    instead["limit"]["requestsPerUnit"] = 10.into();
    let both = json!({"domain": "edge", "descriptors": [instead, ann], "hitsAddend": 2});
    for _ in 0..5 {
        assert_eq!(service.codes(&both), "OVER_LIMIT: OK OVER_LIMIT", "the limit refuses");
    }
    assert_eq!(only(&instead, 1), 8);
}

#[test]
fn an_override_that_peeks_refuses_the_call_if_one_hit_would_be_refused() {
    let service = of_policy("limits: [{name: three, descriptor: [user], domain: edge, bucket: 3/day}]");
    let (ann, mut instead) = (user("ann"), user("bob"));
    instead["limit"] = json!({"requestsPerUnit": 1, "unit": "DAY"});
    assert_eq!(service.codes(&json!({"domain": "edge", "descriptors": [instead]})), "OK: OK");
    instead["hitsAddend"] = 0.into();
    let both = json!({"domain": "edge", "descriptors": [ann, instead]});
    for _ in 0..5 {
        assert_eq!(service.codes(&both), "OVER_LIMIT: OK OVER_LIMIT");
    }
    let request = json!({"domain": "edge", "descriptors": [ann], "hitsAddend": 3});
    assert_eq!(service.codes(&request), "OK: OK", "all three are left");
}

#[test]
fn descriptors_of_the_domain_tollgate_describe_requests() {
    let service =
        of_policy("limits: [{name: login, endpoint: /login, method: POST, by: ip, bucket: 1/minute}]");
    let login = |ip: &str| {
        let entries = json!([
            {"key": "method", "value": "POST"}, {"key": "path", "value": "/login?x=1"},
            {"key": "remote_address", "value": ip}, {"key": "header:x-a", "value": "b"},
        ]);
        service.codes(&json!({"domain": "tollgate", "descriptors": [{"entries": entries}]}))
    };
    assert_eq!(login("203.0.113.9"), "OK: OK");
    assert_eq!(login("203.0.113.9"), "OVER_LIMIT: OVER_LIMIT");
    assert_eq!(login("203.0.113.10"), "OK: OK");
}

#[test]
fn a_quota_is_granted_in_advance_and_charged() {
    let service = of_policy(
        "limits: [{name: q, descriptor: [user], algorithm: fixed-window, rate: 100/minute, quota: 40}]",
    );
    let ask = || {
        service.ask(&json!({"domain": "edge", "descriptors": [user("ann")]}))["statuses"][0]["quota"].clone()
    };
    let first = ask();
    assert_eq!((&first["requests"], &first["validUntil"]), (&json!(40), &json!("2025-10-09T08:54:54Z")));
    assert_eq!(first["id"].as_str().unwrap().len(), 16);
    assert_eq!(ask()["requests"], 40);
    assert_eq!(ask()["requests"], 17, "the last that there are");
    let response = service.ask(&json!({"domain": "edge", "descriptors": [user("ann")]}));
    assert_eq!(response["overallCode"], "OVER_LIMIT");
    assert_eq!(response["statuses"][0].get("quota"), None);
}

#[test]
fn hits_granted_in_advance_are_no_longer_available() {
    let policy = "limits: [{name: q, descriptor: [user], bucket: '60/minute, burst 20', quota: 5}]";
    let service = of(Policy::parse(policy).unwrap(), None);
    let response = service.ask(&json!({"domain": "edge", "descriptors": [user("ann")]}));
    assert_eq!(response["statuses"][0]["limitRemaining"], 14);
    assert_eq!(response["statuses"][0]["durationUntilReset"], "6s");
    assert_eq!(header(&response, "x-ratelimit-remaining"), "14");
    assert_eq!(header(&response, "ratelimit"), r#""q";r=14;t=6"#);
    assert_eq!(
        (&response["quota"], &response["quota"]["requests"]),
        (&response["statuses"][0]["quota"], &json!(5))
    );
    // Each of several descriptors has its own quota.
    let both = json!({"domain": "edge", "descriptors": [user("ann"), user("bob")]});
    let response = service.ask(&both);
    let left = |at: usize| response["statuses"][at]["limitRemaining"].as_u64();
    assert_eq!((left(0), left(1), response.get("quota")), (Some(8), Some(14), None));
    let body = both.to_string();
    let (_, text) = pollster::block_on(service.rls.json(body.as_bytes()));
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&text["statuses"][0]["limitRemaining"], text.get("quota")), (&json!(2), None));
}

/// Returns a header that the response asks to add.
#[track_caller]
fn header(response: &serde_json::Value, name: &str) -> String {
    let headers = response["responseHeadersToAdd"].as_array().expect("headers");
    let header =
        headers.iter().find(|it| it["key"] == name).unwrap_or_else(|| panic!("{name} in {response}"));
    header["value"].as_str().unwrap().to_owned()
}

#[test]
fn a_peek_without_units_left_is_a_complete_refusal() {
    let policy = "limits:
        - {name: slow, descriptor: [user], bucket: 2/minute}
        - {name: wide, descriptor: [plan=free], bucket: 9/minute}";
    let service = of(Policy::parse(policy).unwrap(), None);
    let ask = |hits: u64| {
        let mut look = user("ann");
        look["hitsAddend"] = hits.into();
        service.ask(&json!({"domain": "edge", "descriptors": [free(), look]}))
    };
    let left = |response: &serde_json::Value| {
        (0..2).map(|at| response["statuses"][at]["limitRemaining"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(left(&ask(0)), [8, 2], "it cost ann nothing");
    assert_eq!(left(&ask(2)), [json!(7), json!(null)]);
    let refused = ask(0);
    assert_eq!(refused["overallCode"], "OVER_LIMIT");
    assert_eq!(refused["statuses"][1]["code"], "OVER_LIMIT");
    assert_eq!(refused["statuses"][1]["durationUntilReset"], "30s", "until there is one");
    assert_eq!(header(&refused, "retry-after"), "30");
    assert_eq!(header(&refused, "content-type"), "application/problem+json");
    assert!(refused["rawBody"].is_string(), "{refused}");
    service.pass(30);
    assert_eq!(left(&ask(0))[1], 1, "looking spends nothing, nor does a refused look");
}

#[test]
fn a_limit_of_two_descriptors_is_listed_once() {
    let service =
        of(Policy::parse("limits: [{name: per-user, descriptor: [user], bucket: 2/minute}]").unwrap(), None);
    let ask = |users: [&str; 2]| service.ask(&json!({"domain": "edge", "descriptors": users.map(user)}));
    let response = ask(["ann", "ann"]);
    assert_eq!(header(&response, "ratelimit-policy"), r#""per-user";q=2;w=60"#);
    assert_eq!(header(&response, "ratelimit"), r#""per-user";r=0;t=60"#, "the least that is left");
    let response = ask(["bob", "ann"]);
    assert_eq!(header(&response, "ratelimit"), r#""per-user";r=0;t=30"#, "the limit of ann, which refuses");
    let response = ask(["ann", "ann"]);
    let body = of_base64(response["rawBody"].as_str().unwrap());
    assert_eq!(body["violated-policies"], json!(["per-user"]));
}

/// Decodes JSON from base64.
fn of_base64(text: &str) -> serde_json::Value {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.bytes().filter(|it| *it != b'=') {
        bits = bits << 6 | u32::from(digit(byte));
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn an_override_is_called_override() {
    let service = of(Policy::default(), None);
    let mut instead = user("ann");
    instead["limit"] = json!({"requestsPerUnit": 1, "unit": "DAY"});
    let request = json!({"domain": "edge", "descriptors": [instead]});
    service.ask(&request);
    let refused = service.ask(&request);
    assert_eq!(header(&refused, "ratelimit-policy"), r#""override";q=1;w=86400"#);
    assert_eq!(of_base64(refused["rawBody"].as_str().unwrap())["violated-policies"], json!(["override"]));
}

#[test]
fn the_status_describes_the_limit_closest_to_refusing() {
    let service = of_policy(
        "limits:
           - {name: short, descriptor: [user], bucket: 2/second}
           - {name: long, descriptor: [user], bucket: 6/hour}",
    );
    let ask = |hits: u64| {
        let request = json!({"domain": "d", "descriptors": [user("ann")], "hitsAddend": hits});
        service.ask(&request)["statuses"][0]["currentLimit"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(1), "short", "it has the least left");
    service.pass(5);
    assert_eq!(ask(2), "short");
    service.pass(5);
    assert_eq!(ask(2), "short");
    assert_eq!(ask(2), "long", "both refuse, and this for longer");
}

#[test]
fn the_proxy_gets_the_priority_class_of_a_descriptor() {
    let text = "
priorities: [{name: gold, 'descriptor:plan': gold}, {name: rest}]
shed: {fleet: {slots: 1}}
limits: [{name: api, descriptor: [user], bucket: 9/minute}]
";
    let service = of(Policy::parse(text).unwrap(), None);
    let mut gold = user("ann");
    gold["entries"].as_array_mut().unwrap().push(json!({"key": "plan", "value": "gold"}));
    for (descriptor, class) in [(gold, "gold"), (user("ann"), "rest"), (user("ann"), "rest")] {
        let response = service.ask(&json!({"domain": "d", "descriptors": [descriptor]}));
        assert_eq!(response["requestHeadersToAdd"], json!([{"key": "tollgate-priority", "value": class}]));
        // The end of a request is not reported, so descriptors take no slots of the fleet.
        assert_eq!(response["overallCode"], "OK");
    }
}

#[test]
fn a_shed_descriptor_is_over_limit_with_the_headers_of_a_shed_request() {
    let clock = ManualClock::at(Timestamp::from_secs(START));
    let shedder = NodeShedder::with_clock(clock.clone());
    let policy = "shed: {node: {inflight: 1}}\nlimits: [{name: api, descriptor: [user], bucket: 9/minute}]";
    let store = MemoryStore::with_seed(1_000, clock.clone(), 1);
    let limiter =
        Limiter::with_store(Policy::parse(policy).unwrap(), store).with_node_shedder(shedder.clone());
    let service = Service { rls: Rls::new(limiter.into(), RlsSettings::default()) };
    let request = json!({"domain": "d", "descriptors": [user("ann")]});
    assert_eq!(service.ask(&request)["overallCode"], "OK");
    shedder.report(Measurement::InFlight(100));
    for _ in 0..50 {
        clock.advance(Span::from_millis(100));
        service.rls.limiter().load().sample_load();
    }
    let response = service.ask(&request);
    assert_eq!(response["overallCode"], "OVER_LIMIT");
    let headers = response["responseHeadersToAdd"].as_array().unwrap();
    let header =
        |name: &str| headers.iter().find(|it| it["key"] == name).map(|it| it["value"].as_str().unwrap());
    assert!((1..=3).contains(&header("retry-after").unwrap().parse::<u32>().unwrap()), "{response}");
    assert_eq!(header("content-type"), Some("application/problem+json"), "{response}");
    assert!(header("tollgate-decision").is_some(), "{response}");
}

#[test]
fn headers_equal_those_of_other_surfaces() {
    let policy =
        || Policy::parse("limits: [{name: api, descriptor: [user], bucket: 1/minute, soft: 50%}]").unwrap();
    let request = json!({"domain": "d", "descriptors": [user("ann")]});
    let names = |response: &serde_json::Value, field: &str| {
        let headers = response[field].as_array().cloned().unwrap_or_default();
        headers.iter().map(|it| it["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = of(policy(), None);
    let response = all.ask(&request);
    let added = names(&response, "responseHeadersToAdd");
    for name in
        ["x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit", "ratelimit-policy", "tollgate-decision"]
    {
        assert!(added.iter().any(|it| it == name), "{name} in {added:?}");
    }
    assert_eq!(response["requestHeadersToAdd"], json!([{"key": "tollgate-soft", "value": "api"}]));
    let refused = all.ask(&request);
    let added = names(&refused, "responseHeadersToAdd");
    for name in ["retry-after", "x-ratelimit-remaining", "content-type", "cache-control"] {
        assert!(added.iter().any(|it| it == name), "{name} in {added:?}");
    }
    assert!(refused["rawBody"].is_string());

    let bare = of(policy(), Some(Headers::Refusals));
    assert_eq!(bare.ask(&request).get("responseHeadersToAdd"), None);
    let added = names(&bare.ask(&request), "responseHeadersToAdd");
    assert!(added.iter().any(|it| it == "retry-after"), "{added:?}");
    assert!(!added.iter().any(|it| it.contains("ratelimit")), "{added:?}");
}

#[test]
fn a_deny_list_reports_over_limit() {
    let service = of_policy("deny: [{ip: 203.0.113.0/24}]\nlimits: [{by: ip, bucket: 1/minute}]");
    let entries = json!([{"key": "ip", "value": "203.0.113.9"}]);
    let codes = service.codes(&json!({"domain": "tollgate", "descriptors": [{"entries": entries}]}));
    assert_eq!(codes, "OVER_LIMIT: OVER_LIMIT");
}
