//! Kuadrant's service: checks, reports, reservations and commits.

use serde_json::{Value, json};
use tollgate::{DecisionId, Policy};
use tollgate_rls::{Headers, RlsSettings};

use crate::support::{Service, applied_to, decode, encode, of_file, of_policy, with_settings};

const SERVICE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService";

const POLICY: &str = "limits: [{name: tokens, domain: llm, descriptor: [user], by: \"descriptor:user\", \
    algorithm: fixed-window, align: first-request, rate: 100/minute}]";

const LATE: &str = "limits: [{name: tokens, domain: llm, descriptor: [user], by: \"descriptor:user\", \
    rate: 100/minute, charge: afterwards}]";

const FILE: &str = "domain: llm
descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 100}}]";

fn call(service: &Service, method: &str, [request, response]: [&str; 2], message: &Value) -> Value {
    let (status, reply) = service.call(&format!("{SERVICE}/{method}"), &encode(request, message));
    assert_eq!(status, "0", "{method}: {message}");
    decode(response, &reply.expect("there is a message"))
}

const RLS: [&str; 2] =
    ["envoy.service.ratelimit.v3.RateLimitRequest", "envoy.service.ratelimit.v3.RateLimitResponse"];

fn user(name: &str) -> Value {
    json!([{"entries": [{"key": "user", "value": name}]}])
}

fn check(service: &Service, name: &str) -> String {
    let response = call(service, "CheckRateLimit", RLS, &json!({"domain": "llm", "descriptors": user(name)}));
    assert_eq!(response["overallCode"], response["statuses"][0]["code"]);
    response["overallCode"].as_str().unwrap().to_owned()
}

/// Reports hits, and returns the remaining ones.
fn report(service: &Service, name: &str, hits: u32) -> u64 {
    let request = json!({"domain": "llm", "descriptors": user(name), "hitsAddend": hits});
    let response = call(service, "Report", RLS, &request);
    assert_eq!((&response["overallCode"], &response["statuses"][0]["code"]), (&json!("OK"), &json!("OK")));
    response["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
}

/// Reserves an amount, and returns the id of the reservation, or nothing if it is over the limit.
fn reserve(service: &Service, name: &str, amount: u64, ttl: Option<&str>) -> Option<String> {
    let mut request = json!({"domain": "llm", "descriptors": user(name), "amount": amount});
    if let Some(ttl) = ttl {
        request["ttl"] = ttl.into();
    }
    let names =
        ["kuadrant.service.ratelimit.v1.ReserveRequest", "kuadrant.service.ratelimit.v1.ReserveResponse"];
    let response = call(service, "Reserve", names, &request);
    let id = response["reservationId"].as_str().map(str::to_owned);
    assert_eq!(response["code"], if id.is_some() { "OK" } else { "OVER_LIMIT" });
    id
}

/// Commits an amount, and returns whether the reservation was known.
fn commit(service: &Service, name: &str, id: &str, amount: u64) -> bool {
    let request =
        json!({"domain": "llm", "descriptors": user(name), "reservationId": id, "actualAmount": amount});
    let names =
        ["kuadrant.service.ratelimit.v1.CommitRequest", "kuadrant.service.ratelimit.v1.CommitResponse"];
    call(service, "Commit", names, &request)["reservationReleased"] == true
}

/// Services whose limit is 100 a minute: a policy, a policy that is charged afterwards, and a file of Envoy.
fn services() -> [(&'static str, Service); 3] {
    [("policy", of_policy(POLICY)), ("late", of_policy(LATE)), ("file", of_file(FILE))]
}

#[test]
fn a_check_charges_nothing_and_is_refused_when_one_hit_would_be() {
    for (name, service) in services() {
        for _ in 0..150 {
            assert_eq!(check(&service, "ann"), "OK", "{name}");
        }
        assert_eq!(report(&service, "ann", 99), 1, "{name}");
        assert_eq!(check(&service, "ann"), "OK", "{name}");
        assert_eq!(report(&service, "ann", 1), 0, "{name}");
        assert_eq!(check(&service, "ann"), "OVER_LIMIT", "{name}");
        assert_eq!(check(&service, "bob"), "OK", "{name}");
    }
}

#[test]
fn a_report_is_charged_in_full_and_never_refused() {
    for (name, service) in services() {
        assert_eq!(report(&service, "ann", 0), 99, "{name}: zero hits are one");
        assert_eq!(report(&service, "ann", 500), 0, "{name}");
        assert_eq!(report(&service, "ann", u32::MAX), 0, "{name}");
        assert_eq!(check(&service, "ann"), "OVER_LIMIT", "{name}");
        // At most one allowance of debt is repaid by a limit of the policy.
        service.pass(125);
        assert_eq!(check(&service, "ann"), "OK", "{name}");
    }
}

#[test]
fn the_hits_of_a_check_have_no_effect() {
    for (name, service) in services() {
        let request = json!({"domain": "llm", "descriptors": user("ann"), "hitsAddend": 1_000});
        assert_eq!(call(&service, "CheckRateLimit", RLS, &request)["overallCode"], "OK", "{name}");
        assert_eq!(report(&service, "ann", 1), 99, "{name}");
    }
}

#[test]
fn answers_are_those_of_limitador_for_calls_without_a_domain_or_descriptors() {
    for (name, service) in services() {
        for method in ["CheckRateLimit", "Report"] {
            let unknown = call(&service, method, RLS, &json!({"descriptors": user("ann")}));
            assert_eq!(unknown, json!({}), "{name}: UNKNOWN");
            for descriptors in [json!([]), json!([{}]), json!([{"entries": [{"key": "plan", "value": "x"}]}])]
            {
                let request = json!({"domain": "llm", "descriptors": descriptors});
                assert_eq!(call(&service, method, RLS, &request)["overallCode"], "OK", "{name}: {request}");
            }
            let other = json!({"domain": "other", "descriptors": user("ann")});
            assert_eq!(call(&service, method, RLS, &other)["overallCode"], "OK", "{name}");
        }
        assert_eq!(report(&service, "ann", 1), 99, "{name}: nothing was charged");
    }
}

#[test]
fn reservations_do_not_pass_a_limit_together() {
    for (name, service) in services() {
        let one = reserve(&service, "ann", 60, None).unwrap();
        assert!(reserve(&service, "ann", 60, None).is_none(), "{name}");
        let two = reserve(&service, "ann", 40, None).unwrap();
        assert_eq!(check(&service, "ann"), "OVER_LIMIT", "{name}");
        assert!(commit(&service, "ann", &one, 10), "{name}");
        assert!(commit(&service, "ann", &two, 45), "{name}: more than was reserved");
        assert!(!commit(&service, "ann", &two, 1), "{name}: a repeated commit is a report");
        assert_eq!(report(&service, "ann", 1), 100 - 10 - 45 - 1 - 1, "{name}");
    }
}

#[test]
fn a_refused_reservation_is_not_counted() {
    for (name, service) in services() {
        for _ in 0..5 {
            assert!(reserve(&service, "ann", 101, None).is_none(), "{name}");
        }
        assert_eq!(report(&service, "ann", 1), 99, "{name}");
    }
}

#[test]
fn an_ended_reservation_is_refunded_and_its_commit_is_a_report() {
    for (name, service) in services() {
        let id = reserve(&service, "ann", 80, Some("0.000000001s")).unwrap();
        let kept = reserve(&service, "ann", 20, Some("3600s")).unwrap();
        assert_eq!(check(&service, "ann"), "OVER_LIMIT", "{name}");
        // The end is measured by the clock of the process; it is passed.
        std::thread::yield_now();
        pollster::block_on(service.rls.refund_ended_reservations());
        let mut metrics = String::new();
        service.rls.metrics(&mut metrics);
        for line in ["tollgate_rls_reservations 1", "tollgate_rls_reservations_total{result=\"expired\"} 1"] {
            assert!(metrics.lines().any(|it| it == line), "{name}: {line} in\n{metrics}");
        }
        assert_eq!(check(&service, "ann"), "OK", "{name}");
        assert!(!commit(&service, "ann", &id, 5), "{name}");
        assert!(commit(&service, "ann", &kept, 5), "{name}");
        assert_eq!(report(&service, "ann", 1), 89, "{name}");
    }
}

#[test]
fn a_reservation_of_nothing_is_a_check() {
    for (name, service) in services() {
        let id = reserve(&service, "ann", 0, None).unwrap();
        assert!(!commit(&service, "ann", &id, 100), "{name}");
        assert!(reserve(&service, "ann", 0, None).is_none(), "{name}");
        assert!(!commit(&service, "ann", "", 0), "{name}");
        assert_eq!(report(&service, "bob", 1), 99, "{name}");
    }
}

#[test]
fn a_reservation_of_a_past_window_returns_nothing_to_the_next_one() {
    for (name, service) in [("policy", of_policy(POLICY)), ("file", of_file(FILE))] {
        let id = reserve(&service, "ann", 80, None).unwrap();
        service.pass(60);
        assert_eq!(report(&service, "ann", 50), 50, "{name}");
        assert!(commit(&service, "ann", &id, 0), "{name}");
        assert_eq!(report(&service, "ann", 1), 49, "{name}");
    }
}

#[test]
fn unknown_and_foreign_reservation_ids_are_reports() {
    for (name, service) in services() {
        reserve(&service, "ann", 10, None).unwrap();
        let unknown = DecisionId(7).to_string();
        for id in ["x", "", unknown.as_str(), &"9".repeat(10_000)] {
            assert!(!commit(&service, "ann", id, 1), "{name}");
        }
        assert_eq!(report(&service, "ann", 1), 100 - 10 - 4 - 1, "{name}");
    }
}

#[test]
fn huge_amounts_and_times_are_bounded() {
    for (name, service) in services() {
        assert!(reserve(&service, "ann", u64::MAX, Some("315576000000s")).is_none(), "{name}");
        let id = reserve(&service, "ann", 1, Some("-5s")).unwrap();
        assert!(commit(&service, "ann", &id, u64::MAX), "{name}");
        assert_eq!(check(&service, "ann"), "OVER_LIMIT", "{name}");
    }
}

#[test]
fn limits_that_refuse_only_together_are_charged_by_the_commit() {
    let quota = "domain: llm
descriptors:
  - {key: user, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: team, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: all, rate_limit: {unit: day, requests_per_unit: 100}}";
    let service = of_file(quota);
    let entry = |key: &str| json!({"entries": [{"key": key, "value": "a"}]});
    let all = json!([entry("user"), entry("team"), entry("all")]);
    let codes =
        |service: &Service| service.codes(&json!({"domain": "llm", "descriptors": all, "hitsAddend": 1}));
    let mut request = json!({"domain": "llm", "descriptors": all, "amount": 15});
    let reserve_names =
        ["kuadrant.service.ratelimit.v1.ReserveRequest", "kuadrant.service.ratelimit.v1.ReserveResponse"];
    let id = call(&service, "Reserve", reserve_names, &request)["reservationId"].clone();
    request = json!({"domain": "llm", "descriptors": all, "reservationId": id, "actualAmount": 15});
    let names =
        ["kuadrant.service.ratelimit.v1.CommitRequest", "kuadrant.service.ratelimit.v1.CommitResponse"];
    assert_eq!(call(&service, "Commit", names, &request), json!({"reservationReleased": true}));
    assert_eq!(codes(&service), "OK: OVER_LIMIT OK OK", "the user has spent 15 of 10");
    let check = json!({"domain": "llm", "descriptors": all});
    assert_eq!(call(&service, "CheckRateLimit", RLS, &check)["overallCode"], "OK");
    let report = json!({"domain": "llm", "descriptors": [entry("team")], "hitsAddend": 9});
    assert_eq!(call(&service, "Report", RLS, &report)["overallCode"], "OK");
    assert_eq!(call(&service, "CheckRateLimit", RLS, &check)["overallCode"], "OVER_LIMIT");
}

#[test]
fn slots_and_blocked_callers_are_looked_at_and_not_charged() {
    let text = "deny: [{descriptor:user: eve}]
limits:
  - {name: streams, domain: llm, descriptor: [user], slots: 1, expect: slots-without-owner}
  - {name: tokens, domain: llm, descriptor: [user], by: descriptor:user, bucket: 100/minute}";
    let service = of_policy(text);
    assert_eq!(report(&service, "ann", 1), 99);
    reserve(&service, "ann", 1, None).unwrap();
    assert_eq!(check(&service, "ann"), "OK");
    assert_eq!(check(&service, "eve"), "OVER_LIMIT");
    assert!(reserve(&service, "eve", 1, None).is_none());
    report(&service, "eve", 5);
}

#[test]
fn headers_are_added_only_if_the_settings_say_so() {
    let policy =
        || Policy::parse("limits: [{name: t, domain: llm, descriptor: [user], bucket: 1/minute}]").unwrap();
    let of =
        |headers: Option<Headers>| with_settings(policy(), RlsSettings { headers, ..RlsSettings::default() });
    let request = json!({"domain": "llm", "descriptors": user("ann")});
    for (headers, expected) in [(None, false), (Some(Headers::Off), false), (Some(Headers::All), true)] {
        let service = of(headers);
        report(&service, "ann", 1);
        let response = call(&service, "CheckRateLimit", RLS, &request);
        assert_eq!(response["overallCode"], "OVER_LIMIT");
        assert_eq!(response.get("responseHeadersToAdd").is_some(), expected, "{headers:?}");
    }
}

#[test]
fn negative_hits_and_other_messages_are_refused() {
    let service = of_policy(POLICY);
    let mut back = user("ann");
    back[0]["isNegativeHits"] = true.into();
    let message = encode(RLS[0], &json!({"domain": "llm", "descriptors": back}));
    for method in ["CheckRateLimit", "Report", "Reserve", "Commit"] {
        assert_eq!(service.call(&format!("{SERVICE}/{method}"), &message).0, "3", "{method}");
        assert_eq!(service.call(&format!("{SERVICE}/{method}"), b"\xff\xff").0, "3", "{method}");
    }
    assert_eq!(service.call(&format!("{SERVICE}/Other"), &message).0, "12");
}

#[test]
fn a_value_that_is_not_text_is_counted() {
    for (name, service) in services() {
        let mut message =
            encode(RLS[0], &json!({"domain": "llm", "descriptors": user("XX"), "hitsAddend": 200}));
        let at = message.windows(2).position(|it| it == b"XX").unwrap();
        message[at] = 0xff;
        assert_eq!(service.call(&format!("{SERVICE}/Report"), &message).0, "0", "{name}");
        let (_, reply) = service.call(&format!("{SERVICE}/CheckRateLimit"), &message);
        assert_eq!(decode(RLS[1], &reply.unwrap())["overallCode"], "OVER_LIMIT", "{name}");
    }
}

#[test]
fn a_reservation_outlives_a_changed_policy() {
    let service = of_policy(POLICY);
    let id = reserve(&service, "ann", 80, None).unwrap();
    let changed = Policy::parse(&POLICY.replace("100/minute", "200/minute")).unwrap();
    service.rls.limiter().replace(applied_to(changed, "domain: x\ndescriptors: []"));
    assert!(commit(&service, "ann", &id, 30));
    assert_eq!(report(&service, "ann", 1), 169);
}

#[test]
fn a_commit_that_cannot_be_read_leaves_its_reservation() {
    let service = of_policy("limits: [{name: path, by: user, bucket: 100/minute}]");
    let described =
        |key: &str| json!([{"entries": [{"key": "path", "value": "/"}, {"key": key, "value": "ann"}]}]);
    let names =
        ["kuadrant.service.ratelimit.v1.ReserveRequest", "kuadrant.service.ratelimit.v1.ReserveResponse"];
    let request = json!({"domain": "tollgate", "descriptors": described("user"), "amount": 60});
    let id = call(&service, "Reserve", names, &request)["reservationId"].clone();
    let commit = |key: &str| {
        let request = json!({"domain": "tollgate", "descriptors": described(key), "reservationId": id});
        let message = encode("kuadrant.service.ratelimit.v1.CommitRequest", &request);
        let (status, reply) = service.call(&format!("{SERVICE}/Commit"), &message);
        (status, reply.map(|it| decode("kuadrant.service.ratelimit.v1.CommitResponse", &it)))
    };
    assert_eq!(commit("nonsense"), ("3".to_owned(), None));
    assert_eq!(commit("user"), ("0".to_owned(), Some(json!({"reservationReleased": true}))));
}
