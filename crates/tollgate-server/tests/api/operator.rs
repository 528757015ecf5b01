//! What an operator sees: overview, stats, top, decisions, policy.

use serde_json::{Value, json};
use tollgate::{Span, Timestamp};
use tollgate_server::{Access, Gauges};

use crate::support::{Subject, subject, watched};

const POLICY: &str = "
client: {trusted_proxies: [10.0.0.0/8, '2001:db8::/32']}
allow: [{ip: 192.0.2.1}]
deny: [{ip: 192.0.2.66}, {ip: 192.0.2.67}]
limits:
  - {name: api, by: ip, bucket: 2/minute, soft: 50%}
  - {name: pool, endpoint: /pool, by: global, bucket: 4/minute, candidate: {bucket: 1/minute}}
";

fn ask(subject: &Subject, path: &str, ip: &str) -> Value {
    subject.ask("/v1/check", &json!({"path": path, "ip": ip}).to_string())
}

#[test]
fn one_look_tells_how_everything_is() {
    let (subject, watcher) = watched(POLICY, Access::open());
    subject.status.loaded(Timestamp::from_secs(1_772_366_400));
    let api = subject.api.clone().with_gauges(|| Gauges {
        keys: Some(7),
        evictions: Some(0),
        tarpit_waiting: 3,
        tarpit_most: 1_000,
        log_suppressed: 12,
        ..Gauges::default()
    });
    drop(api);
    for _ in 0..3 {
        ask(&subject, "/", "203.0.113.9");
    }
    ask(&subject, "/", "192.0.2.66");
    subject.advance(Span::from_secs(90));
    watcher.tick(Timestamp::from_secs(1_772_366_490));
    let told = subject.get("/v1/overview").json();
    assert_eq!(
        (&told["now"], &told["started_at"]),
        (&json!("2026-03-01T12:01:30Z"), &json!("2026-03-01T12:00:00Z"))
    );
    assert_eq!(
        (&told["role"], &told["observing"], &told["mode"]),
        (&json!("admin"), &json!(true), &json!("enforce"))
    );
    assert_eq!(
        told["policy"],
        json!({"version": 1, "loaded_at": "2026-03-01T12:00:00Z", "reload_error": null, "limits": 3, "switched": 0,
               "privacy": "plain"})
    );
    assert_eq!(
        told["store"],
        json!({"kind": "memory", "address": null, "state": "ok", "breaker": "closed", "since": null, "error": null,
               "failures": 0, "degraded_decisions": 0, "nodes": 1, "ledger_keys": 0, "keys": 7, "evictions": 0,
               "outages": []})
    );
    assert_eq!(
        told["totals"],
        json!({"allowed": 2, "unlimited": 0, "limited": 1, "blocked": 1, "uncountable": 0, "shadow_limited": 0,
               "degraded": 0})
    );
    let series = &told["series"];
    assert_eq!((&series["step_s"], &series["until"]), (&json!(1), &json!(1_772_366_490)));
    assert_eq!(series["allowed"].as_array().unwrap().len(), 300);
    assert_eq!((&series["allowed"][299], &series["refused"][299]), (&json!(2), &json!(2)));
    assert_eq!(told["tarpit"], json!({"waiting": 3, "most": 1000}));
    assert_eq!(told["log"], json!({"suppressed": 12}));
    assert!(told["latency_us"]["p99"].is_u64(), "{told}");
}

#[test]
fn a_key_at_zero_for_long_is_an_alert() {
    let (subject, _) = watched(POLICY, Access::open());
    for _ in 0..40 {
        ask(&subject, "/", "203.0.113.9");
        subject.advance(Span::from_secs(10));
    }
    let told = subject.get("/v1/overview").json();
    let alert = &told["alerts"][0];
    assert_eq!(
        (&alert["limit"], &alert["key"]),
        (&json!("api"), &json!("203.0.113.9")),
        "{}",
        told["alerts"]
    );
    assert!(alert["for_s"].as_u64().unwrap() >= 300 && alert["refused"].as_u64().unwrap() > 10, "{alert}");
}

#[test]
fn each_limit_is_told_of_and_those_asked_for_step_by_step() {
    let (subject, watcher) = watched(POLICY, Access::open());
    for ip in ["203.0.113.9", "203.0.113.10", "203.0.113.11"] {
        ask(&subject, "/pool", ip);
    }
    for _ in 0..3 {
        ask(&subject, "/", "203.0.113.9");
    }
    subject.advance(Span::from_secs(5));
    watcher.tick(Timestamp::from_secs(1_772_366_405));
    let told = subject.get("/v1/stats?limit=api").json();
    assert_eq!(
        (&told["window_s"], &told["step_s"], &told["until"]),
        (&json!(300), &json!(5), &json!(1_772_366_405))
    );
    let limits = told["limits"].as_array().unwrap();
    let names: Vec<_> = limits.iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["api", "pool", "pool.candidate"]);
    let api = &limits[0];
    assert_eq!(
        (&api["allowed"], &api["limited"], &api["remaining_min"]),
        (&json!(4), &json!(2), &json!(0.0)),
        "{api}"
    );
    assert_eq!(api["total"], json!({"allowed": 4, "limited": 2, "shadow_limited": 0}));
    assert_eq!(api["agreement"], json!(null));
    assert_eq!(api["series"]["allowed"].as_array().unwrap().len(), 60);
    assert_eq!((&api["series"]["allowed"][59], &api["series"]["remaining"][59]), (&json!(4), &json!(0.0)));
    let candidate = &limits[2];
    assert_eq!((&candidate["candidate_of"], &candidate["mode"]), (&json!("pool"), &json!("shadow")));
    assert_eq!(
        candidate["agreement"],
        json!({"both_allow": 1, "only_candidate_allows": 0, "only_live_allows": 2, "both_refuse": 0})
    );
    assert_eq!((&candidate["series"], &limits[1]["series"]), (&json!(null), &json!(null)), "not asked for");
}

#[test]
fn soft_thresholds_are_told_with_the_answer_and_to_the_proxy() {
    let (subject, _) = watched(POLICY, Access::open());
    assert_eq!(ask(&subject, "/", "203.0.113.9")["soft"], json!(["api"]), "half of two is spent");
    assert_eq!(ask(&subject, "/pool", "203.0.113.7")["soft"], json!(["api"]));
    let auth = |ip: &str| {
        let request =
            http::Request::get("/v1/auth").header("x-original-uri", "/").header("x-forwarded-for", ip);
        subject.send(request.body(http_body_util::Full::default()).unwrap())
    };
    let (soft, refused) = (auth("203.0.113.9"), auth("203.0.113.9"));
    assert_eq!((soft.status.as_u16(), soft.header("tollgate-soft")), (200, Some("api")));
    assert_eq!((refused.status.as_u16(), refused.header("tollgate-soft")), (429, None));
    assert_eq!(subject.ask("/v1/limits/api/peek", r#"{"key":"203.0.113.9"}"#)["soft"], json!([]));
}

#[test]
fn who_is_refused_most_comes_first() {
    let (subject, _) = watched(POLICY, Access::open());
    for (ip, times) in [("203.0.113.1", 3), ("203.0.113.2", 12), ("203.0.113.3", 7)] {
        for _ in 0..times {
            ask(&subject, "/a?secret=1", ip);
        }
    }
    let top = subject.get("/v1/top?most=2").json();
    assert_eq!(
        top["keys"],
        json!([
            {"limit": "api", "key": "203.0.113.2", "refused": 10, "refused_at_least": 10, "share": 0.625},
            {"limit": "api", "key": "203.0.113.3", "refused": 5, "refused_at_least": 5, "share": 0.3125},
        ])
    );
    assert_eq!(top["routes"], json!([{"method": "GET", "path": "/a", "requests": 22, "refused": 16}]));
}

#[test]
fn decisions_are_read_on_and_on_and_none_is_told_twice() {
    let (subject, _) = watched(POLICY, Access::open());
    let refuse = |times: usize| (0..times).for_each(|_| drop(ask(&subject, "/", "192.0.2.66")));
    refuse(3);
    let first = subject.get("/v1/decisions?refused=true").json();
    assert_eq!(first["decisions"].as_array().unwrap().len(), 3);
    let last = &first["decisions"][2];
    assert_eq!(
        (&last["fate"], &last["allowed"], &last["method"], &last["path"], &last["client"]),
        (&json!("deny_listed"), &json!(false), &json!("GET"), &json!("/"), &json!("192.0.2.66"))
    );
    let next = first["next"].as_u64().unwrap();
    let nothing = subject.get(&format!("/v1/decisions?after={next}")).json();
    assert_eq!(nothing, json!({"next": next, "missed": 0, "decisions": []}));
    refuse(5);
    let some = subject.get(&format!("/v1/decisions?after={next}&most=2")).json();
    assert_eq!((some["decisions"].as_array().unwrap().len(), &some["next"]), (2, &json!(next + 2)));
    refuse(400);
    let late = subject.get(&format!("/v1/decisions?after={next}&most=1000")).json();
    let told = late["decisions"].as_array().unwrap().len() as u64;
    assert!(late["missed"].as_u64().unwrap() > 0);
    assert_eq!(told + late["missed"].as_u64().unwrap(), 405, "nothing is lost without being told");
    let other_life = subject.get("/v1/decisions?after=99999999&most=1").json();
    assert_eq!(other_life["decisions"].as_array().unwrap().len(), 1, "a number of a server before this one");
}

#[test]
fn the_policy_is_told_as_it_was_understood() {
    let (subject, _) = watched(POLICY, Access::open());
    assert_eq!(
        subject.get("/v1/policy").json(),
        json!({"version": 1, "loaded_at": null, "limits": 3, "allow": 1, "deny": 2,
               "client": {"trusted_proxies": ["10.0.0.0/8", "2001:db8::/32"], "header": "x-forwarded-for",
                          "ipv4_prefix": 32, "ipv6_prefix": 64},
               "identify": {"user": ["header:x-user-id"], "api_key": ["header:x-api-key", "bearer"],
                            "tenant": ["header:x-tenant-id"]},
               "headers": {"x_ratelimit": "epoch", "ietf": "draft-11", "retry_after_jitter": 0, "dialects": []},
               "privacy": "plain", "max_keys": 1_000_000})
    );
}

#[test]
fn parameters_that_nobody_knows_are_a_mistake() {
    let (subject, _) = watched(POLICY, Access::open());
    for (path, status, detail) in [
        ("/v1/overview?x=1", 400, "unknown parameter `x`; there are none here"),
        ("/v1/policy?version=1", 400, "there are none here"),
        ("/v1/stats?limits=api", 400, "did you mean `limit`? there is `limit`"),
        ("/v1/stats?limit=apj", 404, "no limit is called `apj`; did you mean `api`?"),
        ("/v1/top?most=0", 400, "`most` must be a whole number from 1 to 500, such as `most=20`, not `0`"),
        ("/v1/top?most=501", 400, "from 1 to 500"),
        ("/v1/top?most=-1", 400, "not `-1`"),
        ("/v1/top?most=+1", 400, "not ` 1`"),
        ("/v1/top?most=1&most=2", 400, "`most` is given twice"),
        ("/v1/top?most", 400, "not ``"),
        ("/v1/decisions?after=x", 400, "`after` must be a whole number"),
        ("/v1/decisions?after=18446744073709551616", 400, "`after` must be a whole number"),
        ("/v1/decisions?refused=yes", 400, "`refused` must be `true` or `false`, not `yes`"),
        ("/v1/decisions?before=1", 400, "there are `after`, `most` and `refused`"),
        ("/v1/changes?most=1", 400, "there are none here"),
    ] {
        let answer = subject.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.problem().contains(detail), "{path}: {}", answer.text());
    }
    let many: Vec<_> = (0..101).map(|at| format!("limit=l{at}")).collect();
    assert_eq!(subject.get(&format!("/v1/stats?{}", many.join("&"))).status, 422);
    assert_eq!(subject.get("/v1/stats?limit=%61pi&limit=api").status, 200, "the same one, twice");
}

#[test]
fn where_nothing_is_observed_that_is_said() {
    let subject = subject(POLICY);
    for path in ["/v1/stats", "/v1/top", "/v1/decisions", "/v1/decisions/0123456789abcdef"] {
        let answer = subject.get(path);
        assert_eq!(answer.status, 409, "{path}");
        assert!(answer.problem().contains("`observe: off`"), "{path}");
    }
    assert_eq!(subject.post("/v1/explain", r#"{"path":"/"}"#).status, 409);
    let told = subject.get("/v1/overview").json();
    assert_eq!((&told["observing"], &told["series"]["allowed"]), (&json!(false), &json!([])));
    assert_eq!(subject.put("/v1/mode", r#"{"mode":"shadow"}"#).status, 200, "switches need no eyes");
}

#[test]
fn a_thousand_limits_and_ten_thousand_keys_are_told_in_bounded_answers() {
    use std::fmt::Write as _;
    let mut policy = "limits:\n".to_owned();
    for at in 0..1_000 {
        writeln!(policy, "  - {{name: limit-{at}, endpoint: /r{at}, by: user, bucket: 1/hour}}").unwrap();
    }
    let (subject, _) = watched(&policy, Access::open());
    for at in 0..10_000 {
        let body = json!({"path": format!("/r{}", at % 1_000), "user": format!("user-{at}")}).to_string();
        subject.ask("/v1/check", &body);
        subject.ask("/v1/check", &body);
    }
    let names: Vec<_> = (0..100).map(|at| format!("limit=limit-{at}")).collect();
    let stats = subject.get(&format!("/v1/stats?{}", names.join("&")));
    let told = stats.json();
    assert_eq!(told["limits"].as_array().unwrap().len(), 1_000);
    assert!(told["limits"].as_array().unwrap().iter().all(|limit| limit["total"]["limited"] == 10));
    assert_eq!(
        told["limits"].as_array().unwrap().iter().filter(|limit| !limit["series"].is_null()).count(),
        100
    );
    assert!(stats.body.len() < 600_000, "{}", stats.body.len());
    for (path, most) in
        [("/v1/top?most=500", 150_000), ("/v1/decisions?most=1000", 120_000), ("/v1/overview", 10_000)]
    {
        let answer = subject.get(path);
        assert!(answer.status == 200 && answer.body.len() < most, "{path}: {}", answer.body.len());
    }
}
