//! The operator API: overview, stats, top, decisions, policy.

use serde_json::{Value, json};
use tollgate::{Policy, Span, Timestamp};
use tollgate_server::{Access, Gauges};
use tollgate_telemetry::MAX_NAMED_LIMITS;

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
fn the_overview_summarizes_the_server() {
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
    let response = subject.get("/v1/overview").json();
    assert_eq!(
        (&response["now"], &response["started_at"]),
        (&json!("2026-03-01T12:01:30Z"), &json!("2026-03-01T12:00:00Z"))
    );
    assert_eq!(
        (&response["role"], &response["observing"], &response["mode"]),
        (&json!("admin"), &json!(true), &json!("enforce"))
    );
    assert_eq!(
        response["policy"],
        json!({"version": 1, "loaded_at": "2026-03-01T12:00:00Z", "reload_error": null, "limits": 3, "switched": 0,
               "privacy": "plain"})
    );
    assert_eq!(
        response["store"],
        json!({"kind": "memory", "address": null, "state": "ok", "breaker": "closed", "since": null, "error": null,
               "failures": 0, "degraded_decisions": 0, "nodes": 1, "ledger_keys": 0, "keys": 7, "evictions": 0,
               "outages": []})
    );
    assert_eq!(
        response["totals"],
        json!({"allowed": 2, "unlimited": 0, "limited": 1, "blocked": 1, "uncountable": 0, "shadow_limited": 0,
               "degraded": 0, "shed": 0})
    );
    let series = &response["series"];
    assert_eq!((&series["step_s"], &series["until"]), (&json!(1), &json!(1_772_366_490)));
    assert_eq!(series["allowed"].as_array().unwrap().len(), 300);
    assert_eq!((&series["allowed"][299], &series["refused"][299]), (&json!(2), &json!(2)));
    assert_eq!(response["tarpit"], json!({"waiting": 3, "most": 1000}));
    assert_eq!(response["log"], json!({"suppressed": 12}));
    assert!(response["latency_us"]["p99"].is_u64(), "{response}");
}

#[test]
fn a_key_that_is_exhausted_for_long_is_an_alert() {
    let (subject, _) = watched(POLICY, Access::open());
    for _ in 0..40 {
        ask(&subject, "/", "203.0.113.9");
        subject.advance(Span::from_secs(10));
    }
    let response = subject.get("/v1/overview").json();
    let alert = &response["alerts"][0];
    assert_eq!(
        (&alert["limit"], &alert["key"]),
        (&json!("api"), &json!("203.0.113.9")),
        "{}",
        response["alerts"]
    );
    assert_eq!(response["at_zero_for_s"], 300);
    assert!(alert["for_s"].as_u64().unwrap() >= 300 && alert["refused"].as_u64().unwrap() > 10, "{alert}");
}

#[test]
fn stats_list_every_limit_and_the_requested_series() {
    let (subject, watcher) = watched(POLICY, Access::open());
    for ip in ["203.0.113.9", "203.0.113.10", "203.0.113.11"] {
        ask(&subject, "/pool", ip);
    }
    for _ in 0..3 {
        ask(&subject, "/", "203.0.113.9");
    }
    subject.advance(Span::from_secs(5));
    watcher.tick(Timestamp::from_secs(1_772_366_405));
    let response = subject.get("/v1/stats?limit=api").json();
    assert_eq!(
        (&response["window_s"], &response["step_s"], &response["until"]),
        (&json!(300), &json!(5), &json!(1_772_366_405))
    );
    let limits = response["limits"].as_array().unwrap();
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
        json!({"since": "2026-03-01T12:00:00Z", "both_allow": 1, "only_candidate_allows": 0, "only_live_allows": 2,
               "both_refuse": 0})
    );
    assert_eq!(candidate["counted"], true);
    assert_eq!((&candidate["series"], &limits[1]["series"]), (&json!(null), &json!(null)), "not asked for");
}

#[test]
fn soft_thresholds_are_in_the_response_and_in_the_headers() {
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
fn the_most_refused_keys_come_first() {
    let (subject, _) = watched(POLICY, Access::open());
    for (ip, times) in [("203.0.113.1", 3), ("203.0.113.2", 12), ("203.0.113.3", 7)] {
        for _ in 0..times {
            ask(&subject, "/a?secret=1", ip);
        }
    }
    let mut top = subject.get("/v1/top?most=2").json();
    let tags: Vec<_> = (0..2).map(|at| top["keys"][at].as_object_mut().unwrap().remove("tag")).collect();
    assert!(tags[0].is_some() && tags[0] != tags[1], "{tags:?}");
    assert_eq!(
        top["keys"],
        json!([
            {"limit": "api", "key": "203.0.113.2", "refused": 10, "refused_at_least": 10, "share": 0.625},
            {"limit": "api", "key": "203.0.113.3", "refused": 5, "refused_at_least": 5, "share": 0.3125},
        ])
    );
    assert_eq!(
        top["routes"],
        json!([{"method": "GET", "path": "/a", "requests": 22, "requests_at_least": 22, "refused": 16}])
    );
    assert_eq!((&top["error_at_most"], &top["routes_error_at_most"]), (&json!(0), &json!(0)));
}

#[test]
fn at_most_a_hundred_series_are_returned() {
    let (subject, _) = watched(POLICY, Access::open());
    for (path, names, status) in [("api", 100, 200), ("api", 101, 422), ("gone", 101, 422)] {
        let names = vec![format!("limit={path}"); names].join("&");
        assert_eq!(subject.get(&format!("/v1/stats?{names}")).status, status, "{names}");
    }
}

#[test]
fn a_frequent_route_among_thousands_comes_first() {
    let (subject, _) =
        watched("limits: [{name: api, endpoint: /none, by: ip, bucket: 2/minute}]", Access::open());
    for at in 0..3_000 {
        if at % 300 == 0 {
            subject.advance(Span::from_secs(1));
        }
        ask(&subject, &format!("/once/{at}"), "203.0.113.9");
        if at % 15 == 0 {
            ask(&subject, "/checkout", "203.0.113.9");
        }
    }
    let top = subject.get("/v1/top?most=2").json();
    let (first, second) = (&top["routes"][0], &top["routes"][1]);
    assert_eq!(first["path"], "/checkout", "{top}");
    let number = |of: &Value, member: &str| of[member].as_u64().unwrap();
    assert!(number(first, "requests_at_least") <= 200 && number(first, "requests") >= 200, "{top}");
    assert!(number(second, "requests_at_least") <= 1 && number(second, "requests") > 1, "{top}");
    let offload = number(second, "requests") - number(second, "requests_at_least");
    assert!(number(&top, "routes_error_at_most") >= offload, "{top}");
}

#[test]
fn agreement_starts_over_with_new_rules() {
    let (subject, _) = watched(POLICY, Access::open());
    let agreement = || subject.get("/v1/stats").json()["limits"][2]["agreement"].clone();
    assert_eq!(agreement()["since"], json!(null));
    ask(&subject, "/pool", "203.0.113.9");
    assert_eq!(agreement()["since"], "2026-03-01T12:00:00Z");
    subject.advance(Span::from_secs(60));
    let changed = POLICY.replace("candidate: {bucket: 1/minute}", "candidate: {bucket: 3/minute}");
    subject.limiter.replace(Policy::parse(&changed).unwrap());
    ask(&subject, "/pool", "203.0.113.9");
    let agreement = agreement();
    assert_eq!((&agreement["since"], &agreement["both_allow"]), (&json!("2026-03-01T12:01:00Z"), &json!(1)));
}

#[test]
fn limits_that_are_not_counted_separately_have_no_numbers() {
    let limits: Vec<_> =
        (0..=MAX_NAMED_LIMITS).map(|at| format!("{{name: n{at}, by: ip, bucket: 9/s}}")).collect();
    let (subject, _) = watched(&format!("limits: [{}]", limits.join(",")), Access::open());
    ask(&subject, "/", "203.0.113.9");
    let response = subject.get("/v1/stats").json();
    let (first, last) = (&response["limits"][0], &response["limits"][MAX_NAMED_LIMITS]);
    assert_eq!((&first["counted"], &first["allowed"]), (&json!(true), &json!(1)));
    assert_eq!(last["counted"], false);
    for unknown in
        ["allowed", "limited", "shadow_limited", "blocked", "exhausted", "soft", "degraded", "total"]
    {
        assert_eq!(last[unknown], json!(null), "{unknown}");
    }
    let metrics = subject.get("/metrics");
    assert!(metrics.text().contains("tollgate_limit_mode{limit=\"n1999\",mode=\"enforce\"} 1\n"));
    assert!(!metrics.text().contains("n2000"));
}

#[test]
fn a_grant_ends_an_alert() {
    for (operation, body) in [
        ("reset", r#"{"key":"203.0.113.9"}"#),
        ("grant", r#"{"key":"203.0.113.9"}"#),
        ("refund", r#"{"key":"203.0.113.9"}"#),
    ] {
        let (subject, _) = watched(POLICY, Access::open());
        for _ in 0..40 {
            ask(&subject, "/", "203.0.113.9");
            subject.advance(Span::from_secs(10));
        }
        let alerts = || subject.get("/v1/overview").json()["alerts"].as_array().unwrap().len();
        subject.ask("/v1/limits/api/peek", body);
        assert_eq!(alerts(), 1, "a peek changes nothing");
        subject.ask("/v1/limits/api/reset", r#"{"key":"203.0.113.10"}"#);
        assert_eq!(alerts(), 1, "a grant to another key");
        subject.ask(&format!("/v1/limits/api/{operation}"), body);
        assert_eq!(alerts(), 0, "{operation}");
    }
}

#[test]
fn polling_returns_each_decision_once() {
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
    assert_eq!(nothing, json!({"next": next, "missed": 0, "earlier": null, "decisions": []}));
    refuse(5);
    let some = subject.get(&format!("/v1/decisions?after={next}&most=2")).json();
    assert_eq!((some["decisions"].as_array().unwrap().len(), &some["next"]), (2, &json!(next + 2)));
    refuse(400);
    let late = subject.get(&format!("/v1/decisions?after={next}&most=1000")).json();
    let response = late["decisions"].as_array().unwrap().len() as u64;
    assert!(late["missed"].as_u64().unwrap() > 0);
    assert_eq!(
        response + late["missed"].as_u64().unwrap(),
        405,
        "each decision is returned or counted as missed"
    );
    let other_life = subject.get("/v1/decisions?after=99999999&most=1").json();
    assert_eq!(other_life["decisions"].as_array().unwrap().len(), 1, "a number of an earlier process");
}

#[test]
fn the_policy_is_returned_as_parsed() {
    let (subject, _) = watched(POLICY, Access::open());
    assert_eq!(
        subject.get("/v1/policy").json(),
        json!({"version": 1, "loaded_at": null, "limits": 3, "allow": 1, "deny": 2, "priorities": [],
               "client": {"trusted_proxies": ["10.0.0.0/8", "2001:db8::/32"], "header": "x-forwarded-for",
                          "ipv4_prefix": 32, "ipv6_prefix": 64},
               "identify": {"user": ["header:x-user-id"], "api_key": ["header:x-api-key", "bearer"],
                            "tenant": ["header:x-tenant-id"], "ambiguous": "address"},
               "headers": {"x_ratelimit": "epoch", "ietf": "draft-11", "retry_after_jitter": 0, "dialects": [], "describe": []},
               "privacy": "plain", "max_keys": 1_000_000})
    );
}

#[test]
fn unknown_parameters_are_rejected() {
    let (subject, _) = watched(POLICY, Access::open());
    for (path, status, detail) in [
        ("/v1/overview?x=1", 400, "unknown parameter `x`; there are none here"),
        ("/v1/policy?version=1", 400, "there are none here"),
        ("/v1/stats?limits=api", 400, "did you mean `limit`? there is `limit`"),
        ("/v1/top?most=0", 400, "`most` must be a whole number from 1 to 500, such as `most=20`, not `0`"),
        ("/v1/top?most=501", 400, "from 1 to 500"),
        ("/v1/top?most=-1", 400, "not `-1`"),
        ("/v1/top?most=+1", 400, "not ` 1`"),
        ("/v1/top?most=1&most=2", 400, "`most` is given twice"),
        ("/v1/top?most", 400, "not ``"),
        ("/v1/decisions?after=x", 400, "`after` must be a whole number"),
        ("/v1/decisions?after=18446744073709551616", 400, "`after` must be a whole number"),
        ("/v1/decisions?refused=yes", 400, "`refused` must be `true` or `false`, not `yes`"),
        ("/v1/decisions?befor=1", 400, "did you mean `before`?"),
        ("/v1/decisions?before=1", 400, "`before` must be the `earlier` of a response"),
        ("/v1/decisions?before=1-2", 409, "there is none (`records: {dir: …}`)"),
        ("/v1/decisions?since=soon", 400, "`since` must say how long ago, such as `since=2h`"),
        ("/v1/decisions?since=1h&after=1", 409, "`after` is for polling"),
        ("/v1/history", 409, "it is kept with `records: {dir: …}`"),
        ("/v1/history?steps=361", 400, "from 1 to 360"),
        ("/v1/changes?most=1", 400, "there are none here"),
    ] {
        let answer = subject.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.problem().contains(detail), "{path}: {}", answer.text());
    }
    let many: Vec<_> = (0..101).map(|at| format!("limit=l{at}")).collect();
    assert_eq!(subject.get(&format!("/v1/stats?{}", many.join("&"))).status, 422);
    assert_eq!(subject.get("/v1/stats?limit=%61pi&limit=api").status, 200, "the same limit twice");
}

#[test]
fn a_removed_limit_does_not_hide_the_others() {
    let (subject, _) = watched(POLICY, Access::open());
    let response = subject.get("/v1/stats?limit=api&limit=gone").json();
    assert_eq!(response["limits"].as_array().unwrap().len(), 3);
    assert!(response["limits"][0]["series"].is_object(), "{response}");
}

#[test]
fn keys_with_the_same_display_have_different_tags() {
    let policy = "
privacy: {keys: truncated}
limits: [{name: api, by: api_key, windows: [1/minute, 1000/hour]}]
";
    let (subject, _) = watched(policy, Access::open());
    let keys = ["sk-live-one", "sk-live-two"];
    for _ in 0..40 {
        for key in keys {
            subject.ask("/v1/check", &json!({"path": "/", "api_key": key}).to_string());
        }
        subject.advance(Span::from_secs(10));
    }
    let tags = |of: &Value| -> Vec<String> {
        let all = of.as_array().unwrap();
        assert!(all.iter().all(|it| it["key"] == all[0]["key"]), "{of}");
        let mut tags: Vec<_> = all.iter().map(|it| it["tag"].as_str().unwrap().to_owned()).collect();
        tags.sort_unstable();
        tags.dedup();
        tags
    };
    let top = tags(&subject.get("/v1/top").json()["keys"]);
    assert_eq!(top.len(), 2, "{top:?}");
    assert!(top.iter().all(|tag| tag.len() == 16 && tag.bytes().all(|it| it.is_ascii_hexdigit())), "{top:?}");
    assert_eq!(tags(&subject.get("/v1/overview").json()["alerts"]), top);
    let decisions = subject.get("/v1/decisions?refused=true").json()["decisions"].clone();
    assert_eq!(tags(&decisions), top);
    let first = &decisions[0];
    let why = subject.get(&format!("/v1/decisions/{}", first["id"].as_str().unwrap())).json();
    assert_eq!(
        tags(&why["limits"]),
        [first["tag"].as_str().unwrap()],
        "all windows of a limit have the same tag"
    );
}

#[test]
fn a_tag_is_the_same_under_every_limit_and_does_not_reveal_the_key() {
    let policy = "
limits:
  - {name: short, by: api_key, bucket: 1/minute}
  - {name: long, endpoint: /long, by: api_key, algorithm: fixed-window, rate: 1/day}
  - {name: pair, endpoint: /pair, by: [ip, api_key], bucket: 1/hour}
";
    let (subject, _) = watched(policy, Access::open());
    let mut tags = Vec::new();
    for path in ["/", "/long", "/pair"] {
        for _ in 0..2 {
            let query = json!({"path": path, "api_key": "sk-live-51HzQ", "ip": "203.0.113.9"}).to_string();
            let response = subject.ask("/v1/check", &query);
            tags.extend(response["limits"].as_array().unwrap().iter().map(|it| it["tag"].clone()));
            subject.advance(Span::from_secs(60));
        }
    }
    let peeked = subject.ask("/v1/limits/long/peek", r#"{"key":"sk-live-51HzQ"}"#);
    tags.push(peeked["limits"][0]["tag"].clone());
    for (path, list) in [("/v1/top", "keys"), ("/v1/decisions", "decisions")] {
        let response = subject.get(path).json();
        tags.extend(response[list].as_array().unwrap().iter().map(|it| it["tag"].clone()));
    }
    assert!(tags.len() > 12 && tags.iter().all(|tag| *tag == tags[0] && tag.is_string()), "{tags:?}");
    let other = subject.ask("/v1/limits/long/peek", r#"{"key":"sk-live-51HzR"}"#);
    assert_ne!(other["limits"][0]["tag"], tags[0]);
}

#[test]
fn all_sums_use_the_same_window_and_include_the_current_second() {
    let (subject, _) = watched(POLICY, Access::open());
    for _ in 0..5 {
        ask(&subject, "/", "203.0.113.9");
    }
    let (overview, stats) = (subject.get("/v1/overview").json(), subject.get("/v1/stats").json());
    let top = subject.get("/v1/top").json();
    assert_eq!((&overview["window"]["allowed"], &overview["window"]["refused"]), (&json!(2), &json!(3)));
    assert_eq!(stats["limits"][0]["limited"], 3);
    assert_eq!(top["keys"][0]["refused"], 3);
    assert_eq!(overview["window"]["until"], overview["series"]["until"]);
    for response in [&stats, &top] {
        assert_eq!(response["from"], overview["window"]["from"]);
    }
}

#[test]
fn a_client_refused_without_counting_has_the_same_tag() {
    let policy = "limits: [{name: api, by: user, bucket: 9/minute, missing: refuse}]";
    let (subject, _) = watched(policy, Access::open());
    ask(&subject, "/", "203.0.113.9");
    let (top, decisions) = (subject.get("/v1/top").json(), subject.get("/v1/decisions").json());
    assert_eq!(decisions["decisions"][0]["fate"], "blocked", "{decisions}");
    assert!(top["keys"][0]["tag"].is_string(), "{top}");
    assert_eq!(top["keys"][0]["tag"], decisions["decisions"][0]["tag"]);
}

#[test]
fn disabled_observation_is_reported() {
    let subject = subject(POLICY);
    for path in ["/v1/stats", "/v1/top", "/v1/decisions", "/v1/decisions/0123456789abcdef"] {
        let answer = subject.get(path);
        assert_eq!(answer.status, 409, "{path}");
        assert!(answer.problem().contains("`observe: off`"), "{path}");
    }
    assert_eq!(subject.post("/v1/explain", r#"{"path":"/"}"#).status, 409);
    let response = subject.get("/v1/overview").json();
    assert_eq!((&response["observing"], &response["series"]["allowed"]), (&json!(false), &json!([])));
    assert_eq!(
        subject.put("/v1/mode", r#"{"mode":"shadow"}"#).status,
        200,
        "modes can be changed without observation"
    );
}

#[test]
fn responses_are_bounded_for_many_limits_and_keys() {
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
    let response = stats.json();
    assert_eq!(response["limits"].as_array().unwrap().len(), 1_000);
    assert!(response["limits"].as_array().unwrap().iter().all(|limit| limit["total"]["limited"] == 10));
    assert_eq!(
        response["limits"].as_array().unwrap().iter().filter(|limit| !limit["series"].is_null()).count(),
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

#[test]
fn recent_decisions_are_searched_in_memory_without_a_decision_log() {
    let (subject, _) = watched(POLICY, Access::open());
    for _ in 0..12 {
        ask(&subject, "/", "203.0.113.9");
    }
    let found = |query: &str| -> usize {
        subject.get(&format!("/v1/decisions?{query}")).json()["decisions"].as_array().map_or(0, Vec::len)
    };
    let all = found("refused=true");
    assert!(all > 0, "the policy refuses some of them");
    assert_eq!((found("since=1h&refused=true"), found("since=1h&most=1")), (all, 1));
    assert_eq!(found("since=1h&limit=nothing"), 0);
    subject.advance(Span::from_hours(2));
    assert_eq!((found("since=1h"), found("until=1h&refused=true")), (0, all));
}
