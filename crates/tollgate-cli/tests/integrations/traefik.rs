//! Traefik, which is not in Debian: the test reads its file and sends the requests that it would send.
//!
//! These are the requests of its `ForwardAuth` middleware with `trustForwardHeader: false`: a GET
//! without body to `address`, with all headers of the client except `X-Forwarded-*`, which it sets
//! itself. Any status other than 2xx is sent to the client with headers and body.

use std::fs;

use tollgate_document::Document;
use tollgate_testkit::Tollgate;

use super::message::{Ask, Message};
use super::proxy::integration;

const POLICY: &str = "
limits:
  - {name: search, endpoint: /search, by: ip, bucket: 2/hour}
  - {name: posts, endpoint: /posts, method: POST, host: shop.example, by: ip, bucket: 1/hour}
";

/// Returns the `address` of the middleware, without the host.
fn target() -> String {
    let text = fs::read_to_string(integration("traefik/tollgate.yaml")).unwrap();
    let document = Document::parse(&text).unwrap();
    let http = document.root().get("http").unwrap();
    let middleware = http.get("middlewares").unwrap().get("tollgate").unwrap().get("forwardAuth").unwrap();
    assert_eq!(middleware.get("trustForwardHeader").unwrap().text(), Some("false"));
    let named = http.get("routers").unwrap().get("app").unwrap().get("middlewares").unwrap();
    assert_eq!(named.items()[0].text(), Some("tollgate"));
    let address = middleware.get("address").unwrap().text().unwrap();
    address.strip_prefix("http://127.0.0.1:7070").unwrap().to_owned()
}

/// The headers of Traefik's client.
struct Client<'a> {
    address: &'a str,
    method: &'a str,
    uri: &'a str,
    headers: &'a str,
}

impl Client<'_> {
    fn ask(&self, tollgate: &Tollgate) -> Message {
        let Self { address, method, uri, headers } = self;
        let headers = format!(
            "{headers}X-Forwarded-Method: {method}\r\nX-Forwarded-Proto: https\r\n\
             X-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Server: edge\r\n\
             X-Forwarded-Uri: {uri}\r\nX-Forwarded-For: {address}\r\nAccept-Encoding: gzip\r\n"
        );
        Ask { headers: &headers, ..Ask::new(&format!("GET {}", target())) }.send(tollgate.api)
    }
}

const SEARCH: Client<'static> =
    Client { address: "203.0.113.9", method: "GET", uri: "/search?q=x", headers: "" };

#[test]
fn traefik_forwards_admissions_and_relays_refusals() {
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), POLICY);
    assert_eq!(SEARCH.ask(&tollgate).status(), 200);
    assert_eq!(SEARCH.ask(&tollgate).status(), 200);
    let refused = SEARCH.ask(&tollgate);
    assert_eq!(refused.status(), 429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["search"]));
    assert_eq!(Client { address: "203.0.113.10", ..SEARCH }.ask(&tollgate).status(), 200);
}

#[test]
fn traefik_asks_about_the_method_path_and_host_of_the_client() {
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), POLICY);
    let post = Client { method: "POST", uri: "/posts", ..SEARCH };
    assert_eq!(post.ask(&tollgate).status(), 200);
    assert_eq!(post.ask(&tollgate).status(), 429);
    assert_eq!(Client { method: "GET", ..post }.ask(&tollgate).status(), 200);
    assert_eq!(SEARCH.ask(&tollgate).header("x-ratelimit-remaining"), Some("1"));
}

#[test]
fn headers_that_traefik_forwards_from_clients_bypass_nothing() {
    let tollgate = Tollgate::start(env!("CARGO_BIN_EXE_tollgate"), POLICY);
    for _ in 0..2 {
        assert_eq!(SEARCH.ask(&tollgate).status(), 200);
    }
    for forged in
        ["X-Original-URI: /free", "X-Original-Method: PUT", "X-Real-IP: 1.2.3.4", "Forwarded: for=1.2.3.4"]
    {
        let headers = format!("{forged}\r\n");
        let answer = Client { headers: &headers, ..SEARCH }.ask(&tollgate);
        assert_eq!(answer.status(), 429, "{forged}: {answer:?}");
    }
}
