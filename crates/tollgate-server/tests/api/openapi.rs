//! The OpenAPI description matches the API.

use http::Request;
use http_body_util::Full;
use serde_json::Value;

use tollgate_server::Access;

use crate::support::{Subject, subject, watched};

const POLICY: &str = "limits: [{name: api, by: global, bucket: 5/minute}]";

fn description() -> Value {
    subject(POLICY).get("/openapi.json").json()
}

/// A book with one page, which is empty.
fn empty_book(name: &str) -> Option<&'static [u8]> {
    (name == "readme.html").then_some(&b""[..])
}

/// Returns a server that has refused a request, and the id of the decision.
fn with_a_refusal() -> (Subject, String) {
    let (subject, _) = watched(POLICY, Access::open());
    let _same = subject.api.clone().with_book(empty_book);
    let body = r#"{"path":"/","ip":"203.0.113.9"}"#;
    let last = (0..6).fold(Value::Null, |_, _| subject.ask("/v1/check", body));
    assert_eq!(last["allowed"], false);
    (subject, last["id"].as_str().unwrap().to_owned())
}

/// Collects every reference in a part of the description.
fn references<'d>(part: &'d Value, found: &mut Vec<&'d str>) {
    match part {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_path_accepts_exactly_its_described_methods() {
    let description = description();
    for (path, item) in description["paths"].as_object().unwrap() {
        let (subject, id) = with_a_refusal();
        let name = match path.as_str() {
            "/page/{name}" => "index.html",
            "/book/{name}" => "readme.html",
            _ => "api",
        };
        let uri = path.replace("{name}", name).replace("{id}", &id).replace("{status}", "403");
        for method in ["get", "head", "post", "put", "patch", "delete", "options", "trace"] {
            let request = Request::builder().method(&*method.to_ascii_uppercase()).uri(&uri);
            let answer = subject.send(request.body(Full::default()).unwrap());
            assert_ne!(answer.status, 404, "{method} {path}");
            assert_eq!(answer.status != 405, item.get(method).is_some(), "{method} {path}");
            if let Some(operation) = item.get(method) {
                let status = answer.status.as_u16().to_string();
                assert!(operation["responses"].get(&status).is_some(), "{method} {path} answers {status}");
            }
        }
    }
}

#[test]
fn references_resolve_and_operation_ids_are_unique() {
    let description = description();
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        assert!(description.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    let operations = description["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap().values());
    let mut ids: Vec<_> = operations.filter_map(|operation| operation.get("operationId")?.as_str()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

/// Fails unless the members of a response are those of its schema.
#[track_caller]
fn check_members(description: &Value, schema: &str, view: &Value) {
    let schema = &description["components"]["schemas"][schema];
    let known = schema["properties"].as_object().unwrap();
    for member in view.as_object().unwrap().keys() {
        assert!(known.contains_key(member), "{member} is not described");
    }
    for member in schema["required"].as_array().unwrap() {
        assert!(view.get(member.as_str().unwrap()).is_some(), "{member} is missing in {view}");
    }
}

#[test]
fn responses_have_the_described_members() {
    let (description, subject) = (description(), subject(POLICY));
    let decision = subject.ask("/v1/check", r#"{"path":"/"}"#);
    check_members(&description, "Decision", &decision);
    check_members(&description, "LimitOutcome", &decision["limits"][0]);
    check_members(&description, "Decision", &subject.ask("/v1/limits/api/peek", "{}"));
    check_members(&description, "BatchDecision", &subject.ask("/v1/check/batch", r#"{"requests":[]}"#));
    let id = decision["id"].as_str().unwrap();
    check_members(
        &description,
        "Settled",
        &subject.ask("/v1/settle", &format!(r#"{{"id":"{id}","cost":1}}"#)),
    );
    check_members(&description, "Renewed", &subject.ask("/v1/renew", &format!(r#"{{"id":"{id}"}}"#)));
    check_members(&description, "Released", &subject.ask("/v1/release", &format!(r#"{{"id":"{id}"}}"#)));
    let throttle = r#"{"key":"a","max_burst":1,"count_per_period":1,"period":1}"#;
    check_members(&description, "Throttled", &subject.ask("/throttle", throttle));
    let ready = subject.get("/readyz").json();
    check_members(&description, "Readiness", &ready);
    check_members(&description, "StoreHealth", &ready["store"]);
    let limits = subject.get("/v1/limits").json();
    check_members(&description, "Limits", &limits);
    check_members(&description, "Limit", &limits["limits"][0]);
    check_members(&description, "Problem", &subject.get("/nowhere").json());
}

#[test]
fn responses_for_operators_have_the_described_members() {
    let (description, (subject, id)) = (description(), with_a_refusal());
    let overview = subject.get("/v1/overview").json();
    for (schema, view) in [
        ("Overview", &overview),
        ("PolicyInForce", &overview["policy"]),
        ("StoreInFull", &overview["store"]),
        ("Totals", &overview["totals"]),
        ("Series", &overview["series"]),
        ("Latency", &overview["latency_us"]),
    ] {
        check_members(&description, schema, view);
    }
    check_members(&description, "Leases", &overview["leases"]);
    let fleet = subject.get("/v1/fleet").json();
    for (schema, view) in [
        ("Fleet", &fleet),
        ("FleetNode", &fleet["nodes"][0]),
        ("FleetTotals", &fleet["totals"]),
        ("NodeCounts", &fleet["totals"]["window"]),
        ("NodeLeases", &fleet["nodes"][0]["leases"]),
    ] {
        check_members(&description, schema, view);
    }
    let stats = subject.get("/v1/stats?limit=api").json();
    check_members(&description, "Stats", &stats);
    check_members(&description, "LimitStats", &stats["limits"][0]);
    check_members(&description, "LimitSeries", &stats["limits"][0]["series"]);
    let top = subject.get("/v1/top").json();
    check_members(&description, "Top", &top);
    check_members(&description, "TopKey", &top["keys"][0]);
    check_members(&description, "HotRoute", &top["routes"][0]);
    let decisions = subject.get("/v1/decisions").json();
    check_members(&description, "Decisions", &decisions);
    check_members(&description, "DecisionLine", &decisions["decisions"][0]);
    let explanation = subject.get(&format!("/v1/decisions/{id}")).json();
    check_members(&description, "Explanation", &explanation);
    check_members(&description, "ExplainedLimit", &explanation["limits"][0]);
    check_members(&description, "Spender", &explanation["limits"][0]["spenders"][0]);
    check_members(&description, "Policy", &subject.get("/v1/policy").json());
    check_members(
        &description,
        "SwitchedLimit",
        &subject.put("/v1/limits/api/mode", r#"{"mode":"off"}"#).json(),
    );
    check_members(&description, "Switched", &subject.put("/v1/mode", r#"{"mode":"off"}"#).json());
    let modes = subject.get("/v1/mode").json();
    check_members(&description, "Modes", &modes);
    check_members(&description, "LimitSwitch", &modes["limits"][0]);
    let simulated = subject.ask("/v1/lab/simulate", "{}");
    check_members(&description, "Simulated", &simulated);
    check_members(&description, "SimulatedTraffic", &simulated["traffic"]);
    check_members(&description, "SimulatedAlgorithm", &simulated["algorithms"][0]);
    check_members(&description, "Disagreement", &simulated["algorithms"][0]["closed_loop"]);
    let overload =
        subject.ask("/v1/lab/overload", r#"{"workers":4,"duration":"10s","overload":"slow-dependency"}"#);
    check_members(&description, "SimulatedOverload", &overload);
    check_members(&description, "SimulatedProtection", &overload["protections"][0]);
    let changes = subject.get("/v1/changes").json();
    check_members(&description, "Changes", &changes);
    check_members(&description, "Change", &changes["changes"][0]);
    let bound = &description["components"]["schemas"]["Changes"]["properties"]["changes"]["maxItems"];
    assert_eq!(bound, tollgate_server::MAX_CHANGES);
}
