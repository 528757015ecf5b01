//! Index, health, readiness, metrics and limits.

use http::Request;
use http_body_util::Full;
use serde_json::json;
use tollgate::Timestamp;

use crate::support::subject;

const POLICY: &str = "
limits:
  - {name: search, endpoint: [/search, '/find/{what}'], host: api.test, method: [GET, POST], by: [tenant, ip],
     windows: [2/second, 100/day], plans: {pro: [20/second, 1000/day]}, count_denied: true, on_outage: deny,
     cost: {reserve: 'header:x-cost', settle: 'time:10ms'}, soft: {at: 80%, tarpit: 250ms}}
  - {name: jobs, by: global, slots: 3, mode: shadow}
";

#[test]
fn limits_are_listed_with_their_quotas_in_words() {
    assert_eq!(
        subject(POLICY).get("/v1/limits").json(),
        json!({"limits": [
            {"name": "search", "endpoints": ["/search", "/find/{what}"], "except": [], "hosts": ["api.test"],
             "methods": ["GET", "POST"], "descriptor": [], "domains": [], "by": ["tenant", "ip"], "algorithm": "token-bucket",
             "quotas": ["2 per second", "100 per day"],
             "ids": ["bcf4725f58479075", "0116dc5fcda7031a"], "mode": "enforce", "policy_mode": "enforce",
             "switched": false, "candidate_of": null, "soft": {"at": 80, "tarpit_ms": 250}, "missing": "ip", "cost": "header:x-cost", "settle": "time:10ms", "count_denied": true,
             "on_outage": "deny", "plans": ["pro"],
                 "plan_quotas": [{"plan": "pro", "grants": "limited", "quotas": ["20 per second", "1000 per day"]}]},
            {"name": "jobs", "endpoints": ["/**"], "except": [], "hosts": [], "methods": [], "descriptor": [], "domains": [], "by": ["global"],
             "algorithm": "concurrency", "quotas": ["3 at once"], "ids": ["920281dd8af73c76"], "mode": "shadow", "policy_mode": "shadow",
             "switched": false, "candidate_of": null, "soft": null, "missing": "ip", "cost": "1", "settle": null, "count_denied": false,
             "on_outage": "local", "plans": [], "plan_quotas": []},
        ]})
    );
}

#[test]
fn a_limit_on_descriptors_is_listed_with_their_entries_and_domains() {
    let policy = "limits: [{descriptor: [plan=gold, 'path=/v1/*', user], domain: [edge, mesh], bucket: 1/s}]";
    let listed = subject(policy).get("/v1/limits").json();
    let limit = &listed["limits"][0];
    assert_eq!(limit["descriptor"], json!(["plan=gold", "path=/v1/*", "user"]));
    assert_eq!(limit["domains"], json!(["edge", "mesh"]));
    assert_eq!((&limit["endpoints"], &limit["by"]), (&json!([]), &json!(["descriptor"])));
}

#[test]
fn readiness_reports_the_policy_and_reload_errors() {
    let subject = subject(POLICY);
    let ready = || {
        let answer = subject.get("/readyz");
        (answer.status.as_u16(), answer.json())
    };
    let response = |ready: bool, draining: bool, version: u64, at: Option<&str>, error: Option<&str>| {
        json!({"ready": ready, "draining": draining, "policy_version": version,
               "policy_loaded_at": at, "reload_error": error,
               "store": {"address": null, "state": "ok", "since": null, "error": null, "failures": 0,
                         "degraded_decisions": 0, "ledger_keys": 0}})
    };
    assert_eq!(ready(), (503, response(false, false, 1, None, None)));
    subject.status.loaded(Timestamp::from_secs(1_772_366_400));
    let at = Some("2026-03-01T12:00:00Z");
    assert_eq!(ready(), (200, response(true, false, 1, at, None)));
    subject.status.reload_failed("error: a rate of zero\n  --> policy.yaml:3");
    assert_eq!(
        ready(),
        (200, response(true, false, 1, at, Some("error: a rate of zero\n  --> policy.yaml:3")))
    );
    subject.limiter.replace(tollgate::Policy::default());
    subject.status.loaded(Timestamp::from_secs(1_772_366_401));
    assert_eq!(ready(), (200, response(true, false, 2, Some("2026-03-01T12:00:01Z"), None)));
    subject.status.drain();
    assert_eq!(ready(), (503, response(false, true, 2, Some("2026-03-01T12:00:01Z"), None)));
    assert_eq!(subject.get("/healthz").status, 200, "still alive");
}

#[test]
fn metrics_are_valid_and_other_components_can_append_lines() {
    let subject = subject(POLICY);
    let api = subject.api.clone().with_metrics(|out| out.push_str("tollgate_other 7\n"));
    drop(api);
    let answer = subject.get("/metrics");
    let mut described = None;
    for line in answer.text().lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            described = rest.split(' ').next();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(Some(name) == described && ["gauge", "counter"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        } else if line != "tollgate_other 7" {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next(), described, "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(answer.text().contains("\ntollgate_store_up 1\n"));
    assert!(answer.text().ends_with("\ntollgate_other 7\n"));
}

#[test]
fn every_path_of_the_index_exists() {
    let index = subject(POLICY).get("/");
    assert_eq!(index.header("content-type"), Some("text/plain; charset=utf-8"));
    for path in [
        "/v1/check",
        "/v1/auth/original",
        "/v1/auth/forwarded",
        "/v1/settle",
        "/v1/release",
        "/v1/renew",
        "/v1/limits",
        "/v1/overview",
        "/v1/stats",
        "/v1/top",
        "/v1/decisions",
        "/v1/explain",
        "/v1/policy",
        "/v1/mode",
        "/v1/changes",
        "/readyz",
        "/metrics",
        "/openapi.json",
    ] {
        assert!(index.text().contains(path), "{path}");
        assert_ne!(subject(POLICY).get(path).status, 404, "{path}");
    }
}

#[test]
fn head_has_the_headers_of_get_without_the_body() {
    let subject = subject(POLICY);
    for path in [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/v1/limits",
        "/v1/overview",
        "/v1/mode",
        "/page/index.html",
    ] {
        let head = subject.send(Request::head(path).body(Full::default()).unwrap());
        let get = subject.get(path);
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.header("content-length"), Some(&*get.body.len().to_string()), "{path}");
    }
}
