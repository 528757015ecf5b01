//! Priority classes and the fleet shedder, as callers and operators see them.

use http::Request;
use http_body_util::Full;
use serde_json::json;
use tollgate::Timestamp;
use tollgate_server::Access;

use crate::support::{subject, watched};

const POLICY: &str = "
priorities:
  - {name: critical, endpoint: /pay}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
shed: {fleet: {slots: 4, reserve: {critical: 25%, normal: 1}}}
limits: [{name: api, by: ip, bucket: 100/minute}]
";

#[test]
fn a_check_has_the_class_of_the_request_which_a_header_can_only_lower() {
    let subject = subject(POLICY);
    for (question, class) in [
        (json!({"path": "/pay"}), json!("critical")),
        (json!({"path": "/"}), json!("normal")),
        (json!({"path": "/", "headers": {"x-priority": "critical"}}), json!("normal")),
        (json!({"path": "/", "headers": {"tollgate-priority": "critical"}}), json!("normal")),
        (json!({"path": "/", "headers": {"x-priority": "bulk"}}), json!("bulk")),
    ] {
        let answer = subject.ask("/v1/check", &question.to_string());
        assert_eq!(answer["priority"], class, "{question}");
        subject.ask("/v1/release", &json!({"id": answer["id"]}).to_string());
    }
    let plain = self::subject("limits: [{by: ip, bucket: 1/s}]");
    assert_eq!(plain.ask("/v1/check", r#"{"path":"/"}"#)["priority"], json!(null));
    let named = subject.ask("/v1/limits/api/check", r#"{"key":"192.0.2.1"}"#);
    assert_eq!(named["priority"], json!(null), "a limit by its name has no request");
}

#[test]
fn a_shed_check_names_the_shedder_and_its_class_and_can_be_explained() {
    let (subject, watcher) = watched(POLICY, Access::open());
    let bulk = json!({"path": "/", "headers": {"x-priority": "bulk"}}).to_string();
    let held: Vec<_> = (0..2).map(|_| subject.ask("/v1/check", &bulk)).collect();
    assert!(held.iter().all(|it| it["allowed"] == true));
    let refused = subject.ask("/v1/check", &bulk);
    assert_eq!(
        (&refused["allowed"], &refused["limit"], &refused["priority"], &refused["retry_after_ms"]),
        (&json!(false), &json!("shed.fleet"), &json!("bulk"), &json!(1000)),
        "{refused}"
    );
    assert_eq!(refused["reason"], "overload: priority `bulk` may use 2 of 4 slots, and 2 or more are in use");
    assert_eq!(subject.ask("/v1/check", r#"{"path":"/pay"}"#)["allowed"], true);

    let id = refused["id"].as_str().unwrap();
    let answer = subject.get(&format!("/v1/decisions/{id}")).json();
    assert_eq!((&answer["priority"], &answer["limit"]), (&json!("bulk"), &json!("shed.fleet")), "{answer}");
    let shedder = answer["limits"].as_array().unwrap().iter().find(|it| it["name"] == "shed.fleet").unwrap();
    assert_eq!(
        (&shedder["granted_by"], &shedder["limit"]),
        (&json!("priority bulk"), &json!(2)),
        "{shedder}"
    );
    assert!(shedder["quota"].as_str().unwrap().contains("for priority `bulk`"), "{shedder}");
    let line = subject.get("/v1/decisions?refused=true").json();
    assert_eq!(line["decisions"][0]["priority"], "bulk", "{line}");

    let totals = watcher.totals();
    assert_eq!((totals.shed, totals.limited, totals.refused()), (1, 0, 1));
    let classes: Vec<_> =
        watcher.classes().iter().map(|it| (it.name.to_string(), it.allowed, it.refused, it.shed)).collect();
    assert_eq!(
        classes,
        [("critical".to_owned(), 1, 0, 0), ("normal".to_owned(), 0, 0, 0), ("bulk".to_owned(), 2, 0, 1)]
    );
    let mut metrics = String::new();
    watcher.metrics(Timestamp::EPOCH, &mut metrics);
    for line in [
        r#"tollgate_priority_decisions_total{priority="bulk",outcome="shed"} 1"#,
        r#"tollgate_decisions_total{outcome="shed"} 1"#,
        r#"tollgate_limit_decisions_total{limit="shed.fleet",outcome="limited"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in:\n{metrics}");
    }
    // The switch of an operator.
    let switched = subject.put("/v1/limits/shed.fleet/mode", r#"{"mode":"off"}"#);
    assert_eq!(switched.status, 200, "{}", switched.text());
    assert_eq!(subject.ask("/v1/check", &bulk)["allowed"], true);
}

#[test]
fn operators_see_the_classes_and_the_maximum_of_each() {
    let subject = subject(POLICY);
    assert_eq!(subject.get("/v1/policy").json()["priorities"], json!(["critical", "normal", "bulk"]));
    let answer = subject.get("/v1/limits").json();
    let shedder = &answer["limits"][1];
    assert_eq!(
        (&shedder["name"], &shedder["class_quotas"]),
        (&json!("shed.fleet"), &json!(["4 at once", "3 at once", "2 at once"])),
        "{shedder}"
    );
    assert_eq!(answer["limits"][0]["class_quotas"], json!(null));
}

#[test]
fn a_hypothetical_request_has_a_class_and_takes_no_slot() {
    let (subject, _) = watched(POLICY, Access::open());
    for _ in 0..9 {
        let answer = subject.ask("/v1/explain", r#"{"path":"/pay"}"#);
        assert_eq!((&answer["priority"], &answer["allowed"]), (&json!("critical"), &json!(true)), "{answer}");
    }
}

#[test]
fn forward_auth_tells_the_proxy_the_class() {
    let subject = subject(POLICY);
    let request = Request::get("/v1/auth")
        .header("x-forwarded-uri", "/pay")
        .header("x-forwarded-method", "GET")
        .header("tollgate-priority", "forged");
    let answer = subject.send(request.body(Full::default()).unwrap());
    assert_eq!((answer.status.as_u16(), answer.header("tollgate-priority")), (200, Some("critical")));
}
