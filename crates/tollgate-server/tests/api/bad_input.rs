//! Invalid requests, and their error messages.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;

use crate::support::subject;

const POLICY: &str = "limits: [{name: api, by: ip, bucket: 5/minute}]";

#[track_caller]
fn check(path: &str, body: impl Into<Bytes>, status: u16, detail: &str) {
    let body = body.into();
    let answer = subject(POLICY).post(path, body.clone());
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    assert_eq!(answer.status, status, "{path} {shown}: {}", answer.text());
    assert!(answer.problem().contains(detail), "{path} {shown}: {}", answer.text());
    assert!(answer.body.len() < 1_000, "a problem does not repeat the request");
}

#[test]
fn invalid_bodies_get_a_helpful_error() {
    let check = |body: &str, status, detail| check("/v1/check", body.to_owned(), status, detail);
    check("", 400, "the body is empty; send a JSON object with `method`, `path`");
    check("  \n", 400, "the body is empty");
    check("{", 400, "line 1, column 1: this is not JSON: EOF");
    check("{\n  \"path\": /\n}", 400, "line 2, column 11: this is not JSON");
    check("hello", 400, "this is not JSON");
    check("nope", 400, "this is not JSON");
    check("[]", 400, "the body must be a JSON object");
    check("\"/\"", 400, "the body must be a JSON object");
    check("null", 400, "the body must be a JSON object");
    check(
        r#"["GET","/",null,null,null,null,null,null,null,null,null]"#,
        400,
        "the body must be a JSON object",
    );
    check("{}", 400, "missing field `path`");
    check(r#"{"path":"/"} x"#, 400, "trailing characters");
    check(r#"{"path":"/","path":"/"}"#, 400, "duplicate field `path`");
    check(
        r#"{"path":"/","pth":1}"#,
        400,
        "unknown field `pth`; did you mean `path`? the fields are `method`, `path`",
    );
    check(r#"{"path":"/","API-Key":"x"}"#, 400, "did you mean `api_key`?");
    check(&format!(r#"{{"{}":1}}"#, "x".repeat(500)), 400, "xxx...`; the fields are");
    check(r#"{"path":"/","a`, expected `b":1}"#, 400, "unknown field `a`, expected `b`");
    check(r#"{"path":7}"#, 400, "expected a string");
    check(r#"{"path":"/","headers":[]}"#, 400, "expected an object of strings");
    check(r#"{"path":"/","headers":{"a":1}}"#, 400, "expected a string or a list of strings");
    check(r#"{"path":"/","headers":{"a":["b",1]}}"#, 400, "expected a string");
    check(r#"{"path":"/","api_key":"a","api_key":"b"}"#, 400, "duplicate field `api_key`");
    check(r#"{"path":"/","cost":"1"}"#, 400, "expected a whole number");
    check(r#"{"path":"/","cost":-1}"#, 400, "expected a whole number from 0 to 9007199254740991");
    check(r#"{"path":"/","cost":1.5}"#, 400, "expected a whole number");
    check(r#"{"path":"/","cost":1e400}"#, 400, "number out of range");
    check(r#"{"path":"/","cost":18446744073709551615}"#, 422, "`cost` is too large");
    check(r#"{"path":"/","cost":9007199254740992}"#, 422, "at most 9007199254740991");
    check(r#"{"path":""}"#, 422, "`path` must begin with `/`");
    check(r#"{"path":"http://x/"}"#, 422, "`path` must begin with `/`");
    check(r#"{"path":"/","method":""}"#, 422, "`method` is not a valid method");
    check(r#"{"path":"/","method":"GET /"}"#, 422, "`method` is not a valid method");
    check(r#"{"path":"/","ip":"localhost"}"#, 422, "`ip` is not an address: `localhost`");
    check(r#"{"path":"/","ip":"203.0.113.9:80"}"#, 422, "`ip` is not an address");
    check(r#"{"path":"\ud800"}"#, 400, "this is not JSON");
    check(&"[".repeat(60_000), 400, "this is not JSON");
    check(&format!(r#"{{"path":{}"#, "[".repeat(60_000)), 400, "expected a string");
}

#[test]
fn invalid_utf8_is_not_json() {
    check("/v1/check", &b"\xff\xfe{}"[..], 400, "this is not JSON");
    check("/v1/check", &b"{\"path\":\"/\xff\"}"[..], 400, "this is not JSON");
}

#[test]
fn bodies_are_bounded() {
    let long = |length: usize| format!("{{\"path\":\"/{}\"}}", "x".repeat(length - 12));
    let subject = subject(POLICY);
    assert_eq!(subject.post("/v1/check", long(65_536)).status, 200);
    check("/v1/check", long(65_537), 413, "at most 65536 bytes");
    check("/v1/limits/api/peek", vec![b' '; 65_537], 413, "at most 65536 bytes");
    check("/v1/check/batch", vec![b' '; 1_048_577], 413, "at most 1048576 bytes");
    check("/v1/check/batch", vec![b' '; 1_048_576], 400, "the body is empty");
}

#[test]
fn batches_and_settlements_are_parsed_as_strictly() {
    check("/v1/check/batch", r#"{"path":"/"}"#, 400, "unknown field `path`; the fields are `requests`");
    check("/v1/check/batch", r#"{"request":[]}"#, 400, "did you mean `requests`?");
    check("/v1/check/batch", r#"{"requests":[{"pth":"/"}]}"#, 400, "did you mean `path`?");
    check("/v1/check/batch", r#"{"requests":[["GET","/"]]}"#, 400, "expected an object");
    check("/v1/settle", r#"{"id":"0123456789abcdef"}"#, 400, "missing field `cost`");
    check("/v1/settle", r#"{"cost":1}"#, 400, "missing field `id`");
    check("/v1/settle", r#"{"id":"xyz","cost":1}"#, 422, "sixteen hexadecimal digits");
    check("/v1/release", r#"["0123456789abcdef"]"#, 400, "must be a JSON object with `id`");
    check("/v1/renew", r#"{"id":"xyz"}"#, 422, "sixteen hexadecimal digits");
}

#[test]
fn other_content_types_are_rejected_except_defaults_of_tools() {
    let subject = subject(POLICY);
    let post = |kind: &str| {
        let request = Request::post("/v1/check").header("content-type", kind);
        subject.send(request.body(Full::from(r#"{"path":"/"}"#)).unwrap())
    };
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "application/vnd.x+json",
        "application/x-www-form-urlencoded",
        "text/plain;charset=UTF-8",
    ] {
        assert_eq!(post(kind).status, 200, "{kind}");
    }
    for kind in ["text/html", "multipart/form-data; boundary=x", "", "application/xml"] {
        let answer = post(kind);
        assert_eq!(answer.status, 415, "{kind}");
        assert!(answer.problem().contains("`Content-Type: application/json`"));
    }
}

#[test]
fn a_compressed_body_is_rejected_with_the_accepted_encoding() {
    let post = |encoding: &str| {
        let request = Request::post("/v1/check").header("content-encoding", encoding);
        subject(POLICY).send(request.body(Full::<Bytes>::from(r#"{"path":"/"}"#)).unwrap())
    };
    for encoding in ["gzip", "br", "identity, gzip"] {
        let answer = post(encoding);
        assert_eq!((answer.status.as_u16(), answer.header("accept-encoding")), (415, Some("identity")));
        assert!(answer.problem().contains("`Content-Encoding`"), "{encoding}");
    }
    assert_eq!(post("identity").status, 200);
}

#[test]
fn wrong_methods_get_the_allowed_ones() {
    let subject = subject(POLICY);
    for (path, allowed) in [
        ("/", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/health", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
        ("/v1/limits", "GET, HEAD"),
        ("/v1/overview", "GET, HEAD"),
        ("/v1/stats", "GET, HEAD"),
        ("/v1/top", "GET, HEAD"),
        ("/v1/decisions", "GET, HEAD"),
        ("/v1/decisions/0123456789abcdef", "GET, HEAD"),
        ("/v1/history", "GET, HEAD"),
        ("/v1/policy", "GET, HEAD"),
        ("/v1/changes", "GET, HEAD"),
        ("/page/index.html", "GET, HEAD"),
        ("/book/guide.html", "GET, HEAD"),
        ("/v1/mode", "GET, HEAD, PUT"),
        ("/v1/limits/api/mode", "PUT"),
        ("/v1/explain", "POST"),
        ("/v1/check", "POST"),
        ("/v1/check/batch", "POST"),
        ("/v1/settle", "POST"),
        ("/v1/release", "POST"),
        ("/v1/renew", "POST"),
        ("/v1/limits/api/peek", "POST"),
    ] {
        let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"];
        for method in all.into_iter().filter(|it| !allowed.split(", ").any(|known| known == *it)) {
            let request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
            let answer = subject.send(request.body(Full::default()).unwrap());
            assert_eq!(
                (answer.status.as_u16(), answer.header("allow")),
                (405, Some(allowed)),
                "{method} {path}"
            );
        }
    }
}

#[test]
fn unknown_paths_get_a_pointer_to_the_index() {
    for path in [
        "/v2/check",
        "/v1/check/",
        "/v1",
        "//",
        "/v1/limits/",
        "/v1/limits/a/b/peek",
        "/v1/limits//x",
        "/%2f",
        "/page/",
        "/page/a/b",
        "/book",
        "/book/a/b",
        "/v1/decisions/",
        "/v1/decisions/a/b",
        "/v1/limits/mode",
    ] {
        check(path, "{}", 404, "`GET /` says what is where");
    }
}
