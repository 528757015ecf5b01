//! Single calls: the response to each kind of report.

use serde_json::{Value, json};
use tollgate::{Policy, Span};

use crate::fleet::{Connection, Received, Service};

const POLICY: &str =
    r#"limits: [{name: edge, rlqs: {domain: edge, bucket: {name: search, tenant: "*"}}, rate: 300/second}]"#;

fn usage(bucket: &Value, allowed: u64, denied: u64, elapsed: &str) -> Value {
    json!([{
        "bucketId": {"bucket": bucket}, "timeElapsed": elapsed,
        "numRequestsAllowed": allowed.to_string(), "numRequestsDenied": denied.to_string(),
    }])
}

fn acme() -> Value {
    json!({"name": "search", "tenant": "acme"})
}

/// Sends a report and returns the only action of the answer.
fn ask(service: &Service, connection: &mut Connection, usages: &Value) -> Value {
    connection.report(service, "edge", usages);
    match connection.receive(service) {
        Received::Actions(mut actions) => {
            assert_eq!(actions.as_array().unwrap().len(), 1, "{actions}");
            actions[0].take()
        }
        other => panic!("{other:?}"),
    }
}

fn strategy(action: &Value) -> &Value {
    &action["quotaAssignmentAction"]["rateLimitStrategy"]
}

#[test]
fn a_first_report_is_answered_with_a_token_bucket_that_envoy_applies_as_meant() {
    let service = Service::new(POLICY);
    let action = ask(&service, &mut service.connect(), &usage(&acme(), 1, 0, "0s"));
    assert_eq!(action["bucketId"]["bucket"], acme());
    assert_eq!(action["quotaAssignmentAction"]["assignmentTimeToLive"], "11s");
    let bucket = &strategy(&action)["tokenBucket"];
    assert_eq!(bucket["fillInterval"], "1s");
    let tokens = bucket["tokensPerFill"].as_u64().unwrap();
    assert!((285..=300).contains(&tokens), "{bucket}");
    assert!((1..=300).contains(&bucket["maxTokens"].as_u64().unwrap()), "{bucket}");
}

#[test]
fn every_bucket_id_has_a_budget_of_its_own() {
    let service = Service::new(POLICY);
    let mut connection = service.connect();
    for tenant in ["acme", "globex"] {
        let id = json!({"tenant": tenant, "name": "search"});
        let action = ask(&service, &mut connection, &usage(&id, 0, 0, "0s"));
        assert!(strategy(&action)["tokenBucket"]["tokensPerFill"].as_u64().unwrap() > 280, "{action}");
    }
}

#[test]
fn a_second_proxy_gets_a_share_at_once_and_the_sum_stays_within_the_limit() {
    let service = Service::new(POLICY);
    let (mut first, mut second) = (service.connect(), service.connect());
    let tokens = |action: &Value| strategy(action)["tokenBucket"]["tokensPerFill"].as_u64().unwrap_or(0);
    let one = tokens(&ask(&service, &mut first, &usage(&acme(), 1, 0, "0s")));
    let two = tokens(&ask(&service, &mut second, &usage(&acme(), 1, 0, "0s")));
    assert!(two > 0 && one + two <= 300, "{one} and {two}");
}

#[test]
fn buckets_without_a_limit_and_limits_that_do_not_enforce_allow_all() {
    let allowed = json!("ALLOW_ALL");
    let service = Service::new(POLICY);
    for id in [
        json!({"name": "other"}),
        json!({"name": "search"}),
        json!({"name": "search", "tenant": "a", "x": "y"}),
    ] {
        let action = ask(&service, &mut service.connect(), &usage(&id, 1, 0, "0s"));
        assert_eq!(strategy(&action)["blanketRule"], allowed, "{id}");
    }
    for mode in ["shadow", "off"] {
        let service = Service::new(&POLICY.replace("rate:", &format!("mode: {mode}, rate:")));
        let action = ask(&service, &mut service.connect(), &usage(&acme(), 1, 0, "0s"));
        assert_eq!(strategy(&action)["blanketRule"], allowed, "{mode}");
    }
    let mut metrics = String::new();
    service.quotas.metrics(&mut metrics);
    assert!(metrics.contains("tollgate_rlqs_events_total{event=\"unknown_bucket\"} 3"), "{metrics}");
}

#[test]
fn a_domain_may_be_repeated_or_left_out_but_not_changed() {
    let service = Service::new(POLICY);
    let mut connection = service.connect();
    for domain in ["edge", "edge", ""] {
        connection.report(&service, domain, &usage(&acme(), 1, 0, "0s"));
        assert!(matches!(connection.receive(&service), Received::Actions(_)), "{domain}");
    }
    connection.report(&service, "other", &usage(&acme(), 1, 0, "0s"));
    assert_eq!(connection.receive(&service), Received::Ended("3".to_owned()));
    let mut unnamed = service.connect();
    unnamed.report(&service, "", &usage(&acme(), 1, 0, "0s"));
    assert_eq!(unnamed.receive(&service), Received::Ended("3".to_owned()));
}

#[test]
fn empty_and_oversized_ids_are_ignored_and_huge_counts_are_harmless() {
    let service = Service::new(POLICY);
    let mut connection = service.connect();
    for id in [json!({}), json!({"name": "x".repeat(2_000)})] {
        connection.report(&service, "edge", &usage(&id, 1, 0, "0s"));
        assert_eq!(connection.receive(&service), Received::Nothing);
    }
    for elapsed in ["0s", "-5s", "315576000000s"] {
        ask(&service, &mut connection, &usage(&acme(), u64::MAX, u64::MAX, elapsed));
        service.clock.advance(Span::from_secs(5));
        service.quotas.tick();
    }
    let view = service.quotas.view();
    assert!(view.quotas[0].assigned <= 300.0, "{view:?}");
}

#[test]
fn a_message_that_is_not_protobuf_ends_the_stream() {
    let service = Service::new(POLICY);
    for garbage in [&b"\xff\xff\xff"[..], b"\x12\x7f", b"\x0a\x02\xff\xfe"] {
        let mut connection = service.connect();
        connection.pipe.send(garbage);
        assert_eq!(connection.receive(&service), Received::Ended("3".to_owned()), "{garbage:?}");
    }
}

#[test]
fn a_million_bucket_ids_do_not_grow_the_service() {
    let service = Service::new(POLICY);
    let mut connection = service.connect();
    for message in 0..12 {
        let id = |at: u64| json!({"name": "search", "tenant": format!("t{message}-{at}")});
        let usages: Vec<Value> = (0..1_000).map(|at| usage(&id(at), 1, 0, "0s")[0].take()).collect();
        connection.report(&service, "edge", &json!(usages));
        while let Received::Actions(actions) = connection.receive(&service) {
            let first = &actions[0];
            assert_eq!(first["abandonAction"].is_object(), message >= 10, "{first}");
        }
    }
    assert_eq!(service.quotas.view().buckets, 10_000);
}

#[test]
fn a_bucket_without_requests_is_abandoned_and_can_come_back() {
    let service = Service::new(POLICY);
    let mut connection = service.connect();
    ask(&service, &mut connection, &usage(&acme(), 1, 0, "0s"));
    let mut abandoned = false;
    for _ in 0..26 {
        connection.report(&service, "edge", &usage(&acme(), 0, 0, "5s"));
        assert!(matches!(connection.receive(&service), Received::Actions(_)));
        service.clock.advance(Span::from_secs(5));
        service.quotas.tick();
        while let Received::Actions(actions) = connection.receive(&service) {
            abandoned |= actions[0]["abandonAction"].is_object();
        }
        if abandoned {
            break;
        }
    }
    assert!(abandoned);
    service.clock.advance(Span::from_secs(12));
    service.quotas.tick();
    assert_eq!(service.quotas.view().buckets, 0);
    ask(&service, &mut connection, &usage(&acme(), 1, 0, "0s"));
}

#[test]
fn a_drain_sends_each_assignment_once_more_and_ends_the_streams() {
    let service = Service::new(POLICY);
    let mut connection = service.connect();
    ask(&service, &mut connection, &usage(&acme(), 1, 0, "0s"));
    service.quotas.drain();
    let Received::Actions(actions) = connection.receive(&service) else { panic!() };
    assert_eq!(actions[0]["quotaAssignmentAction"]["assignmentTimeToLive"], "11s");
    assert_eq!(connection.receive(&service), Received::Ended("14".to_owned()));
}

#[test]
fn a_change_of_the_fill_interval_alone_is_visible_to_envoy() {
    // Both limits have 1,020 tokens per fill interval, of a minute and of ten minutes.
    let policy = |rate: &str| POLICY.replace("rate: 300/second", &format!("bucket: '{rate}, burst 64'"));
    let service = Service::new(&policy("17/second"));
    let mut connection = service.connect();
    let before = ask(&service, &mut connection, &usage(&acme(), 1, 0, "0s"));
    service.quotas.tick();
    service.limiter.replace(Policy::parse(&policy("102/minute")).unwrap());
    service.quotas.tick();
    let Received::Actions(actions) = connection.receive(&service) else { panic!() };
    let (before, after) = (&strategy(&before)["tokenBucket"], &strategy(&actions[0])["tokenBucket"]);
    assert_eq!(
        (&before["maxTokens"], &before["tokensPerFill"]),
        (&after["maxTokens"], &after["tokensPerFill"])
    );
    assert_eq!((&before["fillInterval"], &after["fillInterval"]), (&json!("60s"), &json!("600.000000001s")));
}

#[test]
fn an_explanation_says_why_each_proxy_has_its_part() {
    let service = Service::new(POLICY);
    let explain = |domain: Option<&str>, bucket: &str| service.quotas.explain(domain, bucket);
    assert_eq!(explain(None, "name=search").unwrap_err(), "no proxy reports a bucket to this node");
    let (mut small, mut large) = (service.connect(), service.connect());
    for _ in 0..4 {
        for (connection, allowed, denied) in [(&mut small, 150, 0), (&mut large, 500, 2_500)] {
            connection.report(&service, "edge", &usage(&acme(), allowed, denied, "5s"));
            while let Received::Actions(_) = connection.receive(&service) {}
        }
        service.clock.advance(Span::from_secs(5));
        service.quotas.tick();
    }
    let explained = explain(None, "tenant=acme,name=search").unwrap();
    assert_eq!(explained, explain(Some("edge"), "name=search, tenant=acme").unwrap());
    assert_eq!((explained.mode.as_deref(), explained.rate), (Some("enforce"), 300.0));
    assert_eq!((explained.allowed, explained.denied), (4 * 650, 4 * 2_500));
    assert_eq!(explained.bucket.streams.len(), 2);
    let text = explained.arithmetic.join("\n");
    for part in [
        "limit `edge`: 300/s for this bucket",
        "2 Envoys requested",
        "divided max-min fair",
        "Envoy 1: assigned",
        "and has room for more; reported 600 allowed and 0 denied",
        "more than its fair share; reported 2000 allowed and 10000 denied",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let unknown = explain(Some("other"), "name=search, tenant=acme").unwrap_err();
    assert!(unknown.contains("`name=search, tenant=acme` in `edge`"), "{unknown}");
    // The same entries in two domains.
    let mut other = service.connect();
    other.report(&service, "other", &usage(&acme(), 1, 0, "0s"));
    assert!(matches!(other.receive(&service), Received::Actions(_)));
    assert!(explain(None, "name=search, tenant=acme").unwrap_err().contains("`edge`, `other`"));
    let uncovered = explain(Some("other"), "name=search, tenant=acme").unwrap();
    assert_eq!((uncovered.mode, uncovered.bucket.limit), (None, None));
    assert!(uncovered.arithmetic[0].contains("let all requests pass"), "{:?}", uncovered.arithmetic);
    // An Envoy that leaves may use its assignment until it ends.
    drop(large);
    service.quotas.tick();
    let text = explain(Some("edge"), "name=search, tenant=acme").unwrap().arithmetic.join("\n");
    assert!(text.contains("is held for Envoys whose streams have ended, for at most 6 s"), "{text}");
}
