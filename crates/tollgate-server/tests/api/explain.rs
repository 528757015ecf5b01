//! Explanations of past and hypothetical decisions.

use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tollgate::Span;
use tollgate_server::Access;

use crate::support::{Subject, watched};

const POLICY: &str = "
deny: [{ip: 192.0.2.66}]
limits:
  - {name: search, endpoint: /search, by: api_key, bucket: 10/minute}
  - {name: pool, by: global, bucket: 1000/minute}
  - {name: closed, endpoint: /closed, by: user, missing: refuse, bucket: 9/s}
";
const CHECK_BODY: &str =
    r#"{"path":"/search?q=secret","api_key":"sk-live-51HzQ","ip":"203.0.113.9","host":"api.test"}"#;

/// Sends a request several times, and returns the last response.
fn last(subject: &Subject, body: &str, times: usize) -> Value {
    (0..times).fold(Value::Null, |_, _| subject.ask("/v1/check", body))
}

fn explained(subject: &Subject, decision: &Value) -> Value {
    let answer = subject.get(&format!("/v1/decisions/{}", decision["id"].as_str().unwrap()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn a_refusal_is_explained_by_its_id_with_the_arithmetic() {
    let (subject, _) = watched(POLICY, Access::open());
    let refused = last(&subject, CHECK_BODY, 11);
    let view = explained(&subject, &refused);
    assert_eq!((&view["id"], &view["hypothetical"]), (&refused["id"], &json!(false)));
    assert_eq!(
        (&view["allowed"], &view["fate"], &view["limit"]),
        (&json!(false), &json!("refused"), &json!("search"))
    );
    assert_eq!(view["retry_after_ms"], refused["retry_after_ms"]);
    assert!(view["summary"].as_str().unwrap().starts_with("Refused by `search`"), "{}", view["summary"]);
    assert_eq!(
        view["request"],
        json!({"method": "GET", "path": "/search", "host": "api.test", "client": "203.0.113.9"}),
        "without the query"
    );
    let limits = view["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 2);
    let search = &limits[0];
    for (member, value) in [
        ("name", json!("search")),
        ("window", json!(null)),
        ("key", json!("sk-l…")),
        ("algorithm", json!("token-bucket")),
        ("mode", json!("enforce")),
        ("candidate", json!(false)),
        ("decided", json!(true)),
        ("allowed", json!(false)),
        ("cost", json!(1)),
        ("limit", json!(10)),
        ("remaining", json!(0)),
        ("retry_after_ms", json!(6000)),
    ] {
        assert_eq!(search[member], value, "{member}: {search}");
    }
    assert!(search["arithmetic"].as_array().unwrap().len() >= 3, "{search}");
    assert_eq!(search["spenders"][0]["path"], "/search");
    assert!(!view.to_string().contains("51HzQ"), "a key is never shown whole");
    assert_eq!((&limits[1]["decided"], &limits[1]["allowed"]), (&json!(false), &json!(true)));
    assert_eq!((&view["policy_version"], &view["policy_is_current"]), (&json!(1), &json!(true)));
    subject.put("/v1/limits/search/mode", r#"{"mode":"off"}"#);
    assert_eq!(explained(&subject, &refused)["policy_is_current"], false);
}

#[test]
fn an_uncounted_decision_is_explained() {
    let (subject, _) = watched(POLICY, Access::open());
    for (body, fate, limit) in [
        (r#"{"path":"/","ip":"192.0.2.66"}"#, "deny_listed", json!(null)),
        (r#"{"path":"/closed","ip":"203.0.113.9"}"#, "blocked", json!("closed")),
    ] {
        let view = explained(&subject, &last(&subject, body, 1));
        assert_eq!((&view["fate"], &view["limit"]), (&json!(fate), &limit), "{view}");
        assert!(view["reason"].is_string() && !view["summary"].as_str().unwrap().is_empty(), "{view}");
    }
}

#[test]
fn a_hypothetical_request_is_explained_and_charges_nothing() {
    let (subject, watcher) = watched(POLICY, Access::open());
    last(&subject, CHECK_BODY, 9);
    let before = (watcher.totals(), watcher.kept().last);
    for _ in 0..50 {
        let view = subject.ask("/v1/explain", CHECK_BODY);
        assert_eq!(
            (&view["id"], &view["hypothetical"], &view["allowed"]),
            (&json!(null), &json!(true), &json!(true))
        );
    }
    assert_eq!((watcher.totals(), watcher.kept().last), before, "it is not counted");
    assert_eq!(last(&subject, CHECK_BODY, 1)["limits"][0]["remaining"], 0, "the tenth of ten");
    let view = subject.ask("/v1/explain", CHECK_BODY);
    assert_eq!((&view["allowed"], &view["retry_after_ms"]), (&json!(false), &json!(6000)));
    let refused = last(&subject, CHECK_BODY, 1);
    assert_eq!(
        explained(&subject, &refused)["summary"],
        view["summary"],
        "a hypothetical explanation has the same wording"
    );
    subject.advance(Span::from_secs(6));
    assert_eq!(subject.ask("/v1/explain", CHECK_BODY)["allowed"], true);
}

#[test]
fn a_hypothetical_request_is_parsed_as_strictly_as_a_real_one() {
    let (subject, _) = watched(POLICY, Access::open());
    for (body, status, detail) in [
        ("", 400, "the body is empty; send a JSON object with `method`, `path`"),
        (r#"{"pth":"/"}"#, 400, "did you mean `path`?"),
        (r#"{"path":"x"}"#, 422, "`path` must begin with `/`"),
        (r#"{"path":"/","ip":"x"}"#, 422, "`ip` is not an address"),
    ] {
        let answer = subject.post("/v1/explain", body);
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.problem().contains(detail), "{body}: {}", answer.text());
    }
    assert_eq!(subject.post("/v1/explain", vec![b' '; 65_537]).status, 413);
}

#[test]
fn an_unknown_id_gets_the_range_of_stored_records() {
    let (subject, _) = watched(POLICY, Access::open());
    let said = subject.get("/v1/decisions/0123456789abcdef").problem();
    assert!(said.contains("no refusal is remembered yet"), "{said}");
    let first = last(&subject, r#"{"path":"/","ip":"192.0.2.66"}"#, 1);
    last(&subject, r#"{"path":"/","ip":"192.0.2.66"}"#, 600);
    let answer = subject.get("/v1/decisions/0123456789abcdef");
    let said = answer.problem();
    assert_eq!(answer.status, 404);
    let parts =
        ["201 refusals are", "since 2026-03-01T12:00:00Z", "`observe.records` is 200:", "only a sample"];
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
    drop(first);
    for id in ["xyz", "0123456789abcdeg", "0123456789abcdef0", "%00"] {
        let answer = subject.get(&format!("/v1/decisions/{id}"));
        assert_eq!(answer.status, 422, "{id}");
        assert!(answer.problem().contains("sixteen hexadecimal digits"));
    }
}

#[test]
fn text_from_callers_is_escaped_in_json() {
    let (subject, _) = watched(
        "limits: [{name: api, by: [user, 'header:x-k'], missing: shared, bucket: 1/hour}]",
        Access::open(),
    );
    for nasty in [
        "</script><img src=x onerror=alert(1)>",
        "\u{1b}[2J\r\n\0",
        "\u{202e}\u{feff}\"\\",
        &"ü".repeat(5_000),
    ] {
        let body =
            json!({"path": format!("/{nasty}"), "user": nasty, "host": nasty, "headers": {"x-k": nasty}})
                .to_string();
        let refused = last(&subject, &body, 2);
        assert_eq!(refused["allowed"], false);
        let view = explained(&subject, &refused);
        assert!(view.to_string().len() < 8_000, "{}", view.to_string().len());
        for path in ["/v1/decisions", "/v1/top", "/v1/overview", "/v1/stats"] {
            let answer = subject.get(path);
            assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
            let raw = answer.text();
            assert!(!raw.bytes().any(|byte| byte < 0x20), "{path}: control characters are escaped");
            drop(answer.json());
        }
    }
}

#[test]
fn hashed_keys_are_the_same_in_all_responses() {
    let policy = "privacy: {keys: hashed}\nlimits: [{name: api, by: user, bucket: 1/hour}]";
    let (subject, _) = watched(policy, Access::open());
    let refused = last(&subject, r#"{"path":"/","user":"annabel"}"#, 2);
    let key = refused["limits"][0]["key"].as_str().unwrap();
    assert!(key.starts_with("hash:"), "{key}");
    assert_eq!(explained(&subject, &refused)["limits"][0]["key"], key);
    assert_eq!(subject.get("/v1/top").json()["keys"][0]["key"], key);
    assert_eq!(subject.get("/v1/decisions?refused=true").json()["decisions"][0]["key"], key);
    assert_eq!(subject.ask("/v1/limits/api/peek", r#"{"key":"annabel"}"#)["limits"][0]["key"], key);
    assert_eq!(subject.get("/v1/overview").json()["policy"]["privacy"], "hashed");
}

#[test]
fn a_reader_cannot_map_hashes_to_keys() {
    let policy = "
privacy: {keys: hashed}
limits: [{name: api, by: ip, bucket: 1/hour}, {name: who, by: user, missing: skip, bucket: 9/hour}]";
    let (admin, reader) = ("correct horse", "battery staple");
    let (subject, _) = watched(policy, Access::token(admin).with_reader(reader));
    let post = |token: &str, path: &str, body: &str| {
        let request = Request::post(path).header("tollgate-token", token);
        subject.send(request.body(Full::from(body.to_owned())).unwrap()).json()
    };
    let question = r#"{"path":"/","ip":"203.0.113.9","user":"ann"}"#;
    let hash = post(admin, "/v1/check", question)["limits"][0]["key"].clone();
    let hash = hash.as_str().unwrap();
    for (path, body) in [("/v1/explain", question), ("/v1/limits/api/peek", r#"{"key":"203.0.113.9"}"#)] {
        let view = post(admin, path, body);
        assert_eq!(view["limits"][0]["key"], hash, "{path}");
        let view = post(reader, path, body);
        assert_eq!(view["limits"][0]["key"], "hash:hidden", "{path}");
        assert!(!view.to_string().replace("hash:hidden", "").contains("hash:"), "{path}: {view}");
    }
    let view = post(reader, "/v1/explain", question);
    assert_eq!(
        (&view["request"]["client"], &view["limits"][1]["key"]),
        (&json!("hash:hidden"), &json!("hash:hidden"))
    );
    for (privacy, key, tagged) in [("plain", "203.0.113.9", true), ("truncated", "203.…", false)] {
        let policy = format!("privacy: {{keys: {privacy}}}\nlimits: [{{name: api, by: ip, bucket: 1/hour}}]");
        let (subject, _) = watched(&policy, Access::guarded().with_reader(reader));
        let request = Request::post("/v1/explain").header("tollgate-token", reader);
        let view = subject.send(request.body(Full::from(question)).unwrap()).json();
        assert_eq!(
            (&view["limits"][0]["key"], view["limits"][0]["tag"].is_string()),
            (&json!(key), tagged),
            "{view}"
        );
    }
}

#[test]
fn sums_use_final_costs() {
    let (subject, _) = watched("limits: [{name: tokens, by: user, bucket: 1000/hour}]", Access::open());
    for (ip, reserve, cost) in [("203.0.113.1", Some(400), 37), ("203.0.113.2", None, 120)] {
        let mut question = json!({"path": "/chat", "user": "ann", "ip": ip});
        if let Some(reserve) = reserve {
            question["cost"] = json!(reserve);
        }
        let id = subject.ask("/v1/check", &question.to_string())["id"].clone();
        subject.ask("/v1/settle", &json!({"id": id, "cost": cost}).to_string());
    }
    let view = subject.ask("/v1/explain", r#"{"path":"/chat","user":"ann"}"#);
    let spenders = view["limits"][0]["spenders"].as_array().unwrap();
    let sums: Vec<_> = spenders.iter().map(|it| (it["client"].as_str(), it["units"].as_u64())).collect();
    assert_eq!(sums, [(Some("203.0.113.2"), Some(120)), (Some("203.0.113.1"), Some(37))]);
}

#[test]
fn the_plan_or_override_that_set_the_quota_is_named() {
    let policy = "
limits:
  - {name: api, by: user, bucket: 1/hour, plans: {pro: 6/hour}, overrides: {ann: 9/hour}}";
    let (subject, _) = watched(policy, Access::open());
    for (question, granted_by) in [
        (r#"{"path":"/","user":"bob"}"#, json!(null)),
        (r#"{"path":"/","user":"bob","plan":"pro"}"#, json!("plan pro")),
        (r#"{"path":"/","user":"ann","plan":"pro"}"#, json!("override")),
    ] {
        let view = subject.ask("/v1/explain", question);
        assert_eq!(view["limits"][0]["granted_by"], granted_by, "{view}");
    }
}
