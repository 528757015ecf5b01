//! Authorization of callers.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tollgate_server::Access;

use crate::support::with_access;

const POLICY: &str = "limits: [{by: ip, bucket: 5/minute}]";
const SECRET: &str = "correct horse";

#[track_caller]
fn check(path: &str, headers: &[(&str, &str)], status: u16) {
    let subject = with_access(POLICY, Access::token(SECRET));
    let method = if path.starts_with("/v1/check") { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(path).header("x-original-uri", "/");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = subject.send(request.body(Full::<Bytes>::from(r#"{"path":"/"}"#)).unwrap());
    assert_eq!(answer.status, status, "{path} {headers:?}: {}", answer.text());
    if status == 401 {
        answer.problem();
        assert!(answer.header("www-authenticate").is_some());
        assert!(!answer.text().contains(SECRET));
    }
}

#[test]
fn a_caller_with_the_token_is_accepted() {
    check("/v1/check", &[("authorization", "Bearer correct horse")], 200);
    check("/v1/check", &[("authorization", "bearer correct horse")], 200);
    check("/v1/check", &[("tollgate-token", SECRET)], 200);
    check("/v1/check", &[("tollgate-token", SECRET), ("authorization", "Basic eDp5")], 200);
}

#[test]
fn a_caller_without_the_token_is_refused() {
    for path in ["/v1/check", "/v1/check/batch", "/v1/limits", "/openapi.json", "/nowhere", "/v1/auth"] {
        check(path, &[], 401);
        check(path, &[("tollgate-token", "")], 401);
        check(path, &[("tollgate-token", "correct hors")], 401);
        check(path, &[("tollgate-token", "correct horse2")], 401);
        check(path, &[("authorization", SECRET)], 401);
        check(path, &[("authorization", "Basic correct horse")], 401);
    }
}

#[test]
fn forward_auth_ignores_the_authorization_of_the_client() {
    check("/v1/auth", &[("authorization", "Bearer correct horse")], 401);
    check("/v1/auth/original/403", &[("authorization", "Bearer correct horse")], 401);
    check("/v1/auth", &[("tollgate-token", SECRET), ("authorization", "Bearer other")], 200);
}

#[test]
fn liveness_needs_no_token() {
    check("/healthz", &[], 200);
    check("/readyz", &[], 503);
}

/// Returns the response to a request of a web page with these headers.
fn from_page(path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let subject = with_access(POLICY, Access::open());
    let request = Request::post(path).header("host", "localhost:7070").header("x-original-uri", "/");
    let request = request.header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = subject.send(request.body(Full::<Bytes>::from(r#"{"path":"/"}"#)).unwrap());
    let detail = if answer.status == 403 { answer.problem() } else { String::new() };
    (answer.status.as_u16(), detail)
}

#[test]
fn a_page_of_another_site_is_refused() {
    let every = [
        "/v1/check",
        "/throttle",
        "/json",
        "/v1/check/batch",
        "/v1/settle",
        "/v1/release",
        "/v1/renew",
        "/v1/limits/x/reset",
    ];
    for origin in ["https://evil.test", "null", "http://localhost:7071", "http://localhost", ""] {
        for path in every {
            let (status, detail) = from_page(path, &[("origin", origin)]);
            assert_eq!(status, 403, "{path} asked by a page of {origin:?}");
            assert!(detail.contains("the `Origin` is not this host"), "{detail}");
        }
    }
    for site in ["cross-site", "Cross-Site", "same-site", "none, cross-site", ""] {
        for path in every {
            let (status, detail) = from_page(path, &[("sec-fetch-site", site)]);
            assert_eq!(status, 403, "{path} asked by a page without an origin that is {site}");
            assert!(detail.contains("`Sec-Fetch-Site` is not `same-origin`"), "{detail}");
        }
    }
    let view =
        from_page("/v1/check", &[("origin", "http://localhost:7070"), ("sec-fetch-site", "cross-site")]);
    assert_eq!(view.0, 403, "one of the two headers is enough");
}

#[test]
fn the_own_page_and_a_typed_address_are_accepted() {
    for headers in [
        &[("origin", "http://localhost:7070")][..],
        &[("origin", "http://LOCALHOST:7070"), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none")],
        &[],
    ] {
        assert_eq!(from_page("/v1/check", headers).0, 200, "{headers:?}");
    }
}

#[test]
fn a_browser_must_send_json() {
    // Types that a form can send without a preflight.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        for browser in [("origin", "http://localhost:7070"), ("sec-fetch-site", "same-origin")] {
            let subject = with_access(POLICY, Access::open());
            let request =
                Request::post("/v1/check").header("host", "localhost:7070").header("content-type", kind);
            let request = request.header(browser.0, browser.1);
            let answer = subject.send(request.body(Full::<Bytes>::from(r#"{"path":"/"}"#)).unwrap());
            assert_eq!(answer.status, 415, "{kind} {browser:?}");
            assert!(answer.problem().contains("`Content-Type: application/json`"));
        }
    }
}

#[test]
fn a_page_of_another_site_cannot_change_modes() {
    for (name, value) in [
        ("origin", "https://evil.test"),
        ("origin", "http://localhost:3000"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let subject = with_access(POLICY, Access::open());
        let request = Request::put("/v1/mode").header("host", "localhost:7070").header(name, value);
        let request = request.header("content-type", "application/json");
        let answer = subject.send(request.body(Full::<Bytes>::from(r#"{"mode":"off"}"#)).unwrap());
        assert_eq!(answer.status, 403, "{name}: {value}");
        assert_eq!(subject.get("/v1/mode").json()["mode"], "enforce");
        // A preflight is not granted either.
        let ask = Request::options("/v1/mode").header("host", "localhost:7070").header(name, value);
        let answer = subject.send(ask.body(Full::default()).unwrap());
        assert_eq!(answer.status, 403);
        assert!(answer.header("access-control-allow-origin").is_none());
    }
}

#[test]
fn any_site_may_link_to_the_dashboard_but_not_embed_its_files() {
    for (path, status) in [("/", 200), ("/page/index.html", 403), ("/v1/limits", 403)] {
        let request =
            Request::get(path).header("host", "localhost:7070").header("sec-fetch-site", "cross-site");
        let answer = with_access(POLICY, Access::open()).send(request.body(Full::default()).unwrap());
        assert_eq!(answer.status, status, "{path}");
    }
}

#[test]
fn over_http2_the_host_is_in_the_request_target() {
    let subject = with_access(POLICY, Access::open());
    let post = |origin: &str| {
        let request = Request::post("http://localhost:7070/v1/check").header("origin", origin);
        let request = request.header("content-type", "application/json");
        subject.send(request.body(Full::<Bytes>::from(r#"{"path":"/"}"#)).unwrap()).status.as_u16()
    };
    assert_eq!((post("http://localhost:7070"), post("https://evil.test")), (200, 403));
}

#[test]
fn forward_auth_ignores_the_origin_of_the_client() {
    for header in [("origin", "https://shop.test"), ("sec-fetch-site", "cross-site")] {
        assert_eq!(from_page("/v1/auth", &[header]).0, 200, "{header:?}");
    }
}

#[test]
fn without_a_token_only_addresses_and_localhost_are_accepted_as_hosts() {
    let open = |path: &str, host: &str| {
        let request = Request::post(path).header("host", host).header("x-original-uri", "/");
        with_access(POLICY, Access::open())
            .send(request.body(Full::<Bytes>::from(r#"{"path":"/"}"#)).unwrap())
    };
    for path in
        ["/v1/check", "/v1/settle", "/v1/limits/x/reset", "/v1/mode", "/", "/page/index.html", "/nowhere"]
    {
        let answer = open(path, "rebound.evil.test:7070");
        assert_eq!(answer.status, 403, "{path}");
        let said = answer.problem();
        assert!(said.contains("127.0.0.1") && said.contains("configure a token"), "{said}");
    }
    for host in ["127.0.0.1:7070", "[::1]:7070", "localhost", "tollgate.localhost:80"] {
        assert_eq!(open("/v1/check", host).status, 200, "{host}");
    }
    assert_eq!(open("/v1/auth", "shop.test").status, 200, "the host of a proxy's client");
    let http2 = Request::post("http://evil.test:7070/v1/check").body(Full::default()).unwrap();
    assert_eq!(with_access(POLICY, Access::open()).send(http2).status, 403);
    check("/v1/check", &[("host", "tollgate.internal"), ("tollgate-token", SECRET)], 200);
    for path in ["/healthz", "/readyz"] {
        let request = Request::get(path).header("host", "evil.test").body(Full::default()).unwrap();
        assert_ne!(with_access(POLICY, Access::open()).send(request).status, 403, "{path}");
    }
}
