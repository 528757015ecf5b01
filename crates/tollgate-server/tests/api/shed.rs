//! The shedder of the node: its decisions, its view, its metrics and its switch.

use serde_json::{Value, json};
use tollgate::{Call, Limiter, Measurement, NodeShedder, RequestOutcome, SharedLimiter, Span};
use tollgate_server::{Access, Api, Status};

use crate::support::{Subject, subject, watched};

const POLICY: &str = "
limits: [{name: api, by: ip, bucket: 100/minute}]
shed: {node: {inflight: 10, cpu: 80%}}
";

/// Replaces the shedder of a subject by one on its clock, and overloads it: 30 requests in flight.
fn overloaded((subject, watcher): (Subject, tollgate_telemetry::Watcher)) -> Subject {
    let shedder = NodeShedder::with_clock(subject.clock.clone());
    let limiter = Limiter::clone(&subject.limiter.load()).with_node_shedder(shedder.clone());
    let limiter = SharedLimiter::from(limiter);
    let status = std::sync::Arc::new(Status::new());
    let api = Api::new(limiter.clone(), std::sync::Arc::clone(&status), Access::open())
        .with_clock(subject.clock.clone())
        .with_watcher(watcher);
    let subject = Subject { api, limiter, status, clock: subject.clock };
    shedder.report(Measurement::InFlight(30));
    pass(&subject, 5);
    subject
}

fn pass(subject: &Subject, seconds: u64) {
    for _ in 0..seconds * 10 {
        subject.advance(Span::from_millis(100));
        subject.limiter.load().sample_load();
    }
}

fn check(subject: &Subject) -> Value {
    subject.ask("/v1/check", r#"{"path":"/","ip":"203.0.113.9"}"#)
}

#[test]
fn a_shed_check_names_the_shedder_and_its_explanation_has_the_signals() {
    let subject = overloaded(watched(POLICY, Access::open()));
    let answer = check(&subject);
    assert_eq!((&answer["allowed"], &answer["limit"]), (&json!(false), &json!("shed.node")), "{answer}");
    assert!(answer["retry_after_ms"].as_u64().is_some_and(|it| it >= 1_000), "{answer}");
    let explained = subject.get(&format!("/v1/decisions/{}", answer["id"].as_str().unwrap())).json();
    assert_eq!(explained["fate"], "shed");
    let summary = explained["summary"].as_str().unwrap();
    assert!(
        summary.contains("sheds 100 % of all requests (level 1.00; inflight 30, target 10)"),
        "{summary}"
    );
    assert_eq!(
        explained["shed"],
        json!({
            "level_percent": 100,
            "share_percent": 100,
            "signals": [{"name": "inflight", "unit": "requests", "value": 30, "target": 10}],
        })
    );
    let auth = subject.send(
        http::Request::get("/v1/auth/original")
            .header("x-original-uri", "/")
            .body(http_body_util::Full::default())
            .unwrap(),
    );
    assert_eq!(auth.status, 503);
    let named = subject.ask("/v1/limits/api/check", r#"{"key":["203.0.113.9"]}"#);
    assert_eq!(named["allowed"], true, "a limit by name is about a key: {named}");
}

#[test]
fn the_overview_and_the_metrics_show_the_level_the_signals_and_the_classes() {
    let subject = overloaded(watched(POLICY, Access::open()));
    check(&subject);
    let node = subject.get("/v1/overview").json()["shed"]["node"].clone();
    assert_eq!(
        node,
        json!({
            "mode": "enforce",
            "policy_mode": "enforce",
            "switch": "policy",
            "level_percent": 100,
            "max_level_percent": 100,
            "in_flight": 30,
            "signals": [{"name": "inflight", "unit": "requests", "value": 30, "target": 10}],
            "classes": [{"name": null, "share_percent": 100, "shed": 1, "shadow_shed": 0}],
        })
    );
    let metrics = subject.get("/metrics");
    for line in [
        "tollgate_shed_level_thousandths 1000",
        "tollgate_shed_frozen 0",
        "tollgate_requests_in_flight 30",
        "tollgate_shed_requests_total{priority=\"\",mode=\"enforce\"} 1",
        "tollgate_load_signal{signal=\"inflight\"} 30",
        "tollgate_load_target{signal=\"inflight\"} 10",
    ] {
        assert!(metrics.text().lines().any(|it| it == line), "{line}: {}", metrics.text());
    }
    let without = self::subject("limits: [{name: api, by: ip, bucket: 1/s}]");
    assert_eq!(
        without.get("/v1/overview").json()["shed"],
        json!({"node": null, "fleet": null, "throttle": null})
    );
    assert!(!without.get("/metrics").text().contains("tollgate_shed_level"));
}

#[test]
fn an_operator_freezes_the_level_switches_the_shedder_off_and_back() {
    let subject = overloaded(watched(POLICY, Access::open()));
    let switch = |mode: &str| {
        let body = json!({"mode": mode, "reason": "drill", "by": "ann"}).to_string();
        let answer = subject.put("/v1/limits/shed.node/mode", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["mode"].as_str().unwrap().to_owned()
    };
    assert_eq!(switch("frozen"), "enforce");
    subject.limiter.load().node_shedder().report(Measurement::InFlight(0));
    pass(&subject, 60);
    assert_eq!(check(&subject)["allowed"], false, "the level stays");
    assert_eq!(
        subject.get("/v1/mode").json()["shedders"],
        json!([{"name": "shed.node", "mode": "enforce", "policy_mode": "enforce", "switch": "frozen"}])
    );
    assert_eq!(subject.get("/v1/overview").json()["shed"]["node"]["switch"], "frozen");
    for mode in ["off", "shadow"] {
        assert_eq!(switch(mode), mode);
        assert_eq!(check(&subject)["allowed"], true);
    }
    assert_eq!(switch("policy"), "enforce");
    subject.limiter.load().node_shedder().report(Measurement::InFlight(30));
    pass(&subject, 5);
    assert_eq!(check(&subject)["allowed"], false);
    // The mode of everything weakens a shedder, too.
    subject.put("/v1/mode", r#"{"mode":"shadow"}"#);
    assert_eq!(check(&subject)["allowed"], true);
    let changes = subject.get("/v1/changes").json();
    let changes: Vec<_> = changes["changes"].as_array().unwrap().iter().map(|it| &it["to"]).collect();
    assert_eq!(changes, ["shadow", "policy", "shadow", "off", "frozen"]);
}

#[test]
fn the_fleet_shedder_and_the_throttle_are_shown_and_switched() {
    let policy = "
priorities: [{name: critical, endpoint: /pay}, {name: bulk}]
shed: {fleet: {slots: 10, reserve: {critical: 20%}}}
limits: []
";
    let subject = subject(policy);
    let file = subject.limiter.load().policy().clone().with_throttle_mode(tollgate::Mode::Enforce);
    subject.limiter.replace(file);
    let shed = subject.get("/v1/overview").json()["shed"].clone();
    assert_eq!(shed["node"], Value::Null);
    let classes = json!([{"name": "critical", "max": 10}, {"name": "bulk", "max": 8}]);
    assert_eq!((&shed["fleet"]["amount"], &shed["fleet"]["classes"]), (&json!(10), &classes), "{shed}");
    assert_eq!(
        (&shed["throttle"]["mode"], &shed["throttle"]["switch"]),
        (&json!("enforce"), &json!("policy"))
    );
    let switch = |name: &str, mode: &str| {
        subject.put(&format!("/v1/limits/{name}/mode"), &json!({"mode": mode}).to_string()).status.as_u16()
    };
    for mode in ["shadow", "off"] {
        assert_eq!((switch("shed.throttle", mode), switch("shed.fleet", mode)), (200, 200));
        let shed = subject.get("/v1/overview").json()["shed"].clone();
        for shedder in ["fleet", "throttle"] {
            let shown =
                ["mode", "policy_mode", "switch"].map(|it| shed[shedder][it].as_str().unwrap().to_owned());
            assert_eq!(shown, [mode, "enforce", mode], "{shedder}");
        }
    }
    assert_eq!(subject.limiter.load().policy().throttle_mode(), Some(tollgate::Mode::Off));
    assert_eq!(switch("shed.throttle", "policy"), 200);
    assert_eq!(subject.limiter.load().policy().throttle_mode(), Some(tollgate::Mode::Enforce));
    assert_eq!((switch("shed.throttle", "frozen"), switch("shed.fleet", "frozen")), (200, 409));
    assert!(subject.limiter.load().policy().is_throttle_frozen());
    assert_eq!(subject.get("/v1/overview").json()["shed"]["throttle"]["switch"], "frozen");
    assert!(subject.get("/metrics").text().contains("tollgate_frozen{limit=\"shed.throttle\"} 1"));
    assert_eq!(switch("shed.throttle", "policy"), 200);
    assert!(!subject.limiter.load().policy().is_throttle_frozen());
    assert_eq!(
        subject.get("/v1/mode").json()["shedders"],
        json!([{"name": "shed.throttle", "mode": "enforce", "policy_mode": "enforce", "switch": "policy"}])
    );
    // Everything at once.
    assert_eq!(subject.put("/v1/mode", r#"{"mode":"off"}"#).status, 200);
    assert_eq!(subject.limiter.load().policy().throttle_mode(), Some(tollgate::Mode::Off));
}

#[test]
fn only_a_shedder_that_learns_can_be_frozen_and_only_if_the_policy_has_it() {
    let policy = "shed: {fleet: {slots: 10}}\nlimits: [{name: api, by: ip, bucket: 1/s}]";
    let subject = subject(policy);
    let put = |name: &str| subject.put(&format!("/v1/limits/{name}/mode"), r#"{"mode":"frozen"}"#);
    for (name, reason) in
        [("api", "its numbers are those of the policy file"), ("shed.fleet", "has no level that changes")]
    {
        let answer = put(name);
        assert_eq!(answer.status, 409, "{}", answer.text());
        assert!(answer.text().contains(&format!("`{name}` cannot be frozen")), "{}", answer.text());
        assert!(answer.text().contains(reason), "{}", answer.text());
    }
    assert_eq!((put("shed.node").status.as_u16(), put("shed.throttle").status.as_u16()), (404, 404));
}

/// Admits as many requests as there is room for, and lets all of them fail.
fn fail(subject: &Subject) {
    let limiter = subject.limiter.load();
    let requests: Vec<_> = (0..40).map_while(|_| limiter.acquire_now(&Call::new("GET", "/")).ok()).collect();
    for request in &requests {
        request.complete(RequestOutcome::Failed);
    }
}

#[test]
fn a_frozen_learned_limit_keeps_its_number_until_it_is_switched_back() {
    let subject = subject("limits: [{name: up, by: global, slots: adaptive}]");
    let put = |mode: &str| {
        let answer = subject.put("/v1/limits/up/mode", &json!({"mode": mode}).to_string());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let slots = || subject.get("/v1/overview").json()["adaptive"][0]["slots"].as_u64().unwrap();
    fail(&subject);
    let before = slots();
    let answer = put("frozen");
    assert_eq!((&answer["mode"], &answer["persisted"]), (&json!("enforce"), &Value::Null));
    assert!(answer["warning"].as_str().unwrap().contains("until this server restarts"), "{answer}");
    for _ in 0..10 {
        fail(&subject);
    }
    assert_eq!(slots(), before, "it is frozen");
    let shown = subject.get("/v1/overview").json()["adaptive"][0].clone();
    assert_eq!((&shown["mode"], &shown["switch"]), (&json!("enforce"), &json!("frozen")));
    assert!(subject.get("/metrics").text().contains("tollgate_frozen{limit=\"up\"} 1"));
    put("policy");
    for _ in 0..10 {
        fail(&subject);
    }
    assert!(slots() < before, "it learns again: {}", slots());
    put("off");
    assert_eq!(check(&subject)["allowed"], true);
}
