//! Limits hold however a path is spelled.

use http::Request;

use crate::support::{Behind, Feed, Upstream, http2, wait_for};

const ADMIN: &str = "limits: [{name: admin, endpoint: /admin/**, by: global, bucket: 3/hour}]";

const SPELLINGS: [&str; 22] = [
    "/admin/x",
    "/admin%2fx",
    "/admin%2Fx",
    "/%2fadmin",
    "/x%2f..%2fadmin",
    "/admin%2f",
    "/admin;x",
    "/admin;a=1/x",
    "/x/..;/admin",
    "/x/..;a/admin",
    "/admin%3bx",
    "/admin\\x",
    "/x\\..\\admin",
    "/admin%5cx",
    "//admin/x",
    "//x/admin",
    "/a%2fb/../admin%2fx",
    "/x/%2e%2e/admin",
    "/admin%00",
    "/admin%3f",
    "/admin.",
    "/%c0%afadmin",
];

#[test]
fn no_spelling_passes_a_limit_on_a_path() {
    for spelling in SPELLINGS {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).limited(ADMIN).serve();
        for target in [spelling.to_owned(), format!("http://a.test{spelling}")] {
            let ask =
                || gateway.connect().ask(format!("GET {target} HTTP/1.1\r\nhost: a.test\r\n\r\n")).status();
            let statuses: Vec<_> = (0..2).map(|_| ask()).collect();
            let expected = if target == spelling { [200, 200] } else { [200, 429] };
            assert_eq!(statuses, expected, "{target}");
        }
        assert_eq!(upstream.seen().len(), 3, "{spelling}");
    }
}

#[test]
fn an_escape_is_decoded_once() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(ADMIN).serve();
    for _ in 0..5 {
        assert_eq!(gateway.get("/admin%252fx").status(), 200);
    }
    assert_eq!(upstream.seen().pop().unwrap().start, "GET /admin%252fx HTTP/1.1", "and sent on as it came");
}

#[test]
fn ambiguous_paths_get_a_400_if_the_policy_refuses_them() {
    let upstream = Upstream::ok();
    let policy = format!("paths: refuse\n{ADMIN}");
    let gateway = Behind::new(&upstream).limited(&policy).with("paths: refuse").serve();
    for spelling in &SPELLINGS[1..14] {
        gateway.get(spelling).assert_problem(400);
    }
    // Services that decode twice would see `/a/b`.
    gateway.get("/a%252fb").assert_problem(400);
    assert_eq!(upstream.connections(), 0);
    for path in ["/a", "/a/", "/a%20b", "/a%25b"] {
        assert_eq!(gateway.get(path).status(), 200, "{path}");
    }
}

#[test]
fn exceptions_hold_under_every_reading_or_not_at_all() {
    let upstream = Upstream::ok();
    let policy = "allow: [{endpoint: /healthz}]\n\
                  limits: [{name: site, endpoint: /**, except: [/metrics/**], by: global, bucket: 1/hour}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    for path in ["/healthz", "/healthz", "/metrics", "/metrics/cpu", "/metrics/a%2fb"] {
        assert_eq!(gateway.get(path).status(), 200, "{path}");
    }
    assert_eq!(gateway.get("/").status(), 200);
    for path in [
        "/metrics/..%2flogin",
        "/metrics/..;/login",
        "/login%2f..%2fhealthz",
        "/healthz;/../login",
        "//healthz/login",
    ] {
        assert_eq!(gateway.get(path).status(), 429, "{path}");
    }
}

#[test]
fn no_spelling_passes_a_limit_over_http2() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(ADMIN).serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        let mut statuses = Vec::new();
        for path in ["/admin/x", "/admin%2fx", "/x/..;/admin", "/x\\..\\admin", "//x/admin"] {
            let request = Request::get(format!("http://a.test{path}")).body(Feed::nothing()).unwrap();
            statuses.push(client.requests.send_request(request).await.unwrap().status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 429, 429]);
    });
}
