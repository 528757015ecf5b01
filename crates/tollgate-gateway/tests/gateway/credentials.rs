//! Requests with several different credentials.

use crate::support::{Behind, Upstream, http2, wait_for};

fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n")
}

/// Counts how many of twenty requests pass a limit of five; `request` returns the headers of each.
#[track_caller]
fn check_admitted(limit: &str, request: impl Fn(usize) -> String, expected: usize) {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited(&format!("limits: [{{{limit}, bucket: 5/hour}}]")).serve();
    let mut client = gateway.connect();
    let admitted = (0..20).filter(|turn| client.ask(request(*turn)).status() == 200).count();
    assert_eq!((admitted, upstream.seen().len()), (expected, expected), "{limit}: {}", request(1));
}

#[test]
fn a_second_credential_does_not_create_a_new_caller() {
    let keys = |turn| format!("x-api-key: own\r\nx-api-key: {turn}\r\nauthorization: Bearer {turn}\r\n");
    check_admitted("by: api_key", |turn| get(&keys(turn)), 5);
    check_admitted("by: api_key, missing: skip", |turn| get(&keys(turn)), 5);
    check_admitted("by: 'header:x-api-key'", |turn| get(&keys(turn)), 5);
    let tokens = |turn| format!("authorization: Basic x\r\nauthorization: Bearer {turn}\r\n");
    check_admitted("by: api_key", |turn| get(&tokens(turn)), 5);
    check_admitted("by: 'cookie:sid'", |turn| get(&format!("cookie: sid={turn}; sid=own\r\n")), 5);
    check_admitted("by: 'cookie:sid'", |turn| get(&format!("cookie: sid={turn}\r\ncookie: sid=own\r\n")), 5);
    let target = |query: String| format!("GET /?{query} HTTP/1.1\r\nhost: a\r\n\r\n");
    check_admitted("by: 'query:user'", |turn| target(format!("user=r{turn}&user=ann")), 5);
    check_admitted("by: 'query:user'", |turn| target(format!("user=r{turn}&us%65r=ann")), 5);
    check_admitted("by: 'query:user'", |turn| target(format!("user=r{turn};user=ann")), 5);
    check_admitted("by: 'query:user'", |turn| target(format!("user=&user=r{turn}")), 5);
    let kinds = "x-kind: light\r\nx-kind: heavy\r\n";
    check_admitted("headers: {x-kind: heavy}, by: ip", |_| get(kinds), 5);
}

#[test]
fn every_caller_with_one_credential_has_an_allowance_of_its_own() {
    check_admitted("by: api_key", |turn| get(&format!("x-api-key: {turn}\r\nx-api-key: {turn}\r\n")), 20);
    check_admitted("by: 'cookie:sid'", |turn| get(&format!("cookie: a=1; sid={turn}\r\n")), 20);
}

#[test]
fn ambiguous_credentials_are_refused_before_the_upstream() {
    let upstream = Upstream::ok();
    let policy = "identify: {ambiguous: refuse}\nlimits: [{name: keys, by: api_key, bucket: 5/hour}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let answer = gateway.connect().ask(get("x-api-key: a\r\nx-api-key: b\r\n"));
    answer.assert_problem(400);
    assert!(answer.text().contains("several different values for `api_key`"), "{answer:?}");
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.connect().ask(get("x-api-key: a\r\nx-api-key: a\r\n")).status(), 200);
}

#[test]
fn a_denied_credential_is_found_in_any_line() {
    let upstream = Upstream::ok();
    let policy = "deny: [{api_key: stolen}, {'cookie:sid': stolen}]\nlimits: []";
    let gateway = Behind::new(&upstream).with("caps: {headers: 200}").limited(policy).serve();
    let many = "cookie: a=1\r\n".repeat(90);
    for lines in [
        "x-api-key: a\r\nx-api-key: stolen\r\n".to_owned(),
        "x-api-key: a\r\nauthorization: Bearer stolen\r\n".to_owned(),
        "cookie: sid=x; sid=stolen\r\n".to_owned(),
        format!("{many}cookie: sid=stolen\r\n"),
    ] {
        gateway.connect().ask(get(&lines)).assert_problem(403);
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn several_cookie_lines_reach_the_upstream_as_one() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    assert_eq!(gateway.connect().ask(get("cookie: a=1\r\ncookie: sid=x\r\n")).status(), 200);
    let seen = upstream.seen().pop().unwrap();
    let cookies: Vec<_> = seen.headers.iter().filter(|it| it.0 == "cookie").map(|it| &*it.1).collect();
    assert_eq!(cookies, ["a=1; sid=x"]);
}

#[test]
fn a_header_that_servers_take_for_a_credential_is_not_forwarded() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited("limits: [{by: api_key, bucket: 9/hour}]").serve();
    let lines = "x_api_key: real\r\nx-api-key: own\r\nx_other: kept\r\n";
    assert_eq!(gateway.connect().ask(get(lines)).status(), 200);
    let seen = upstream.seen().pop().unwrap();
    assert_eq!((seen.find("x_api_key"), seen.find("x-api-key")), (None, Some("own")));
    assert_eq!(seen.find("x_other"), Some("kept"));
}

#[test]
fn several_cookie_lines_over_http_2_are_one_request_with_several_cookies() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).limited("limits: [{by: 'cookie:sid', bucket: 1/hour}]").serve();
    wait_for(async {
        let mut client = http2(gateway.address).await;
        for (first, second, status) in [
            ("sid=ann", "a=1", 200),
            ("a=1", "sid=ann", 429),
            ("a=1", "sid=bob", 200),
            ("sid=x", "sid=y", 200),
            ("sid=z", "sid=y", 429),
        ] {
            let mut request = crate::http2::get("/");
            request.headers_mut().append("cookie", first.parse().unwrap());
            request.headers_mut().append("cookie", second.parse().unwrap());
            let answer = client.requests.send_request(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{first} {second}");
        }
    });
}
