//! Every role against every route.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tollgate::Timestamp;
use tollgate::store::ManualClock;
use tollgate_server::{Access, Caller};

use crate::outage::UnreachableStore;
use crate::support::{Answer, PEER, on_store, watched};

const POLICY: &str = "limits: [{name: api, by: ip, bucket: 500/minute}]";
const ADMIN: &str = "correct horse";
const READER: &str = "battery staple";

/// The role that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Reader,
    Admin,
}

use Takes::{Admin, Nothing, Reader};

/// Each route with each of its methods, and the role that it needs.
const ROUTES: &[(&str, &str, Takes)] = &[
    ("GET", "/", Nothing),
    ("GET", "/page/index.html", Nothing),
    ("GET", "/healthz", Nothing),
    ("GET", "/health", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", Reader),
    ("GET", "/openapi.json", Reader),
    ("GET", "/v1/limits", Reader),
    ("GET", "/v1/overview", Reader),
    ("HEAD", "/v1/overview", Reader),
    ("GET", "/v1/fleet", Reader),
    ("GET", "/v1/stats", Reader),
    ("GET", "/v1/top", Reader),
    ("GET", "/v1/decisions", Reader),
    ("GET", "/v1/decisions/0123456789abcdef", Reader),
    ("GET", "/v1/policy", Reader),
    ("GET", "/v1/mode", Reader),
    ("GET", "/v1/changes", Reader),
    ("GET", "/nowhere", Reader),
    ("POST", "/v1/explain", Reader),
    ("POST", "/v1/lab/simulate", Reader),
    ("POST", "/v1/lab/overload", Reader),
    ("POST", "/v1/limits/api/peek", Reader),
    ("POST", "/v1/limits/api/check", Admin),
    ("POST", "/v1/limits/api/grant", Admin),
    ("POST", "/v1/limits/api/reset", Admin),
    ("POST", "/v1/limits/api/refund", Admin),
    ("POST", "/v1/check", Admin),
    ("POST", "/v1/check/batch", Admin),
    ("POST", "/v1/settle", Admin),
    ("POST", "/v1/release", Admin),
    ("POST", "/v1/renew", Admin),
    ("POST", "/throttle", Admin),
    ("POST", "/json", Admin),
    ("PUT", "/v1/mode", Admin),
    ("PUT", "/v1/limits/api/mode", Admin),
    ("GET", "/v1/auth", Admin),
    ("POST", "/v1/auth", Admin),
    ("GET", "/v1/auth/original", Admin),
    ("POST", "/v1/auth/forwarded/404", Admin),
];

fn ask(access: Access, method: &str, path: &str, token: Option<&str>, certified: bool) -> Answer {
    let (subject, _) = watched(POLICY, access);
    let request = Request::builder().method(method).uri(path).header("x-original-uri", "/");
    let request = token.into_iter().fold(request, |request, token| request.header("tollgate-token", token));
    let request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
    pollster::block_on(async {
        let answer = subject.api.answer(request, Caller { certified, ..Caller::from(PEER) }).await;
        let (parts, body) = answer.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    })
}

/// Whether the caller was authorized.
fn passes(answer: &Answer) -> bool {
    !matches!(answer.status.as_u16(), 401 | 403)
}

#[test]
fn every_route_needs_its_role() {
    let both = || Access::token(ADMIN).with_reader(READER);
    for &(method, path, takes) in ROUTES {
        for (token, may) in
            [(None, Nothing), (Some("wrong"), Nothing), (Some(READER), Reader), (Some(ADMIN), Admin)]
        {
            let answer = ask(both(), method, path, token, false);
            let enough = takes == Nothing || takes == may || may == Admin;
            assert_eq!(passes(&answer), enough, "{method} {path} by {may:?}: {}", answer.text());
            if enough {
                continue;
            }
            let wanted = if may == Reader { 403 } else { 401 };
            assert_eq!(answer.status, wanted, "{method} {path} by {may:?}");
            assert!(!answer.text().contains(ADMIN) && !answer.text().contains(READER));
            if may == Reader {
                assert!(answer.problem().contains("admin token"), "{}", answer.text());
            }
        }
    }
}

#[test]
fn a_certificate_grants_the_admin_role() {
    for &(method, path, takes) in ROUTES {
        for access in [Access::guarded(), Access::token(ADMIN), Access::open()] {
            assert!(passes(&ask(access, method, path, None, true)), "{method} {path}");
        }
        assert_eq!(
            passes(&ask(Access::guarded(), method, path, None, false)),
            takes == Nothing,
            "{method} {path}"
        );
    }
}

#[test]
fn on_loopback_without_tokens_every_caller_is_an_admin() {
    for &(method, path, _) in ROUTES {
        assert!(passes(&ask(Access::open(), method, path, None, false)), "{method} {path}");
    }
}

#[test]
fn an_empty_token_grants_nothing() {
    for access in [Access::token(""), Access::guarded().with_reader(""), Access::token("").with_reader("")] {
        for token in [None, Some("")] {
            assert_eq!(ask(access.clone(), "GET", "/v1/overview", token, false).status, 401);
        }
    }
}

#[test]
fn with_only_a_read_token_changes_need_a_certificate() {
    let access = || Access::guarded().with_reader(READER);
    assert_eq!(ask(access(), "GET", "/v1/overview", Some(READER), false).json()["role"], "reader");
    assert_eq!(ask(access(), "PUT", "/v1/mode", Some(READER), false).status, 403);
    assert_eq!(ask(access(), "GET", "/v1/overview", None, true).json()["role"], "admin");
}

#[test]
fn a_token_for_both_roles_grants_the_admin_role() {
    let access = Access::token(ADMIN).with_reader(ADMIN);
    assert_eq!(ask(access, "GET", "/v1/overview", Some(ADMIN), false).json()["role"], "admin");
}

#[test]
fn a_wrong_method_is_reported_to_a_reader() {
    let access = Access::token(ADMIN).with_reader(READER);
    assert_eq!(ask(access, "DELETE", "/v1/mode", Some(READER), false).status, 405);
}

#[test]
fn readiness_is_public_and_errors_need_the_reader_role() {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let both = Access::token(ADMIN).with_reader(READER);
    let subject = on_store(POLICY, both, UnreachableStore, clock);
    subject.status.loaded(Timestamp::from_secs(1_772_366_400));
    subject.status.stored_at("redis://10.0.0.7:6379");
    subject.status.reload_failed("secret.yaml:3: unknown key");
    let send = |request: http::request::Builder, token: Option<&str>, body: &'static str| {
        let request = token.into_iter().fold(request, |it, token| it.header("tollgate-token", token));
        subject.send(request.body(Full::from(body)).unwrap()).json()
    };
    send(Request::post("/v1/check"), Some(ADMIN), r#"{"path":"/","ip":"203.0.113.9"}"#);
    let query = |token| send(Request::get("/readyz"), token, "");
    for token in [ADMIN, READER] {
        let response = query(Some(token));
        assert_eq!(response["store"]["address"], "redis://10.0.0.7:6379");
        assert_eq!(response["reload_error"], "secret.yaml:3: unknown key");
        assert!(response["store"]["error"].as_str().unwrap().contains("gone"), "{response}");
    }
    for token in [None, Some("wrong")] {
        let response = query(token);
        assert_eq!(
            (&response["ready"], &response["store"]["state"]),
            (&json!(true), &json!("degraded")),
            "{response}"
        );
        assert_eq!(response["store"]["address"], json!(null));
        assert!(
            response["reload_error"].is_string() && response["store"]["error"].is_string(),
            "that it did: {response}"
        );
        for hidden in ["10.0.0.7", "secret.yaml", "gone"] {
            assert!(!response.to_string().contains(hidden), "{hidden}: {response}");
        }
    }
}

#[test]
fn responses_forbid_caching_and_sniffing() {
    for &(method, path, _) in ROUTES {
        for token in [None, Some(ADMIN)] {
            let answer = ask(Access::token(ADMIN), method, path, token, false);
            let is_page = path == "/page/index.html";
            let kept = if is_page { "no-cache" } else { "no-store" };
            assert_eq!(answer.header("cache-control"), Some(kept), "{method} {path}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
        }
    }
}
