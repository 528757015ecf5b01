//! Every request gets a valid response or a problem document.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use tollgate_server::Access;

use crate::support::{Answer, watched};

const SEED: u64 = 0x0073_6572_7665_7201;
const POLICY: &str = "
limits:
  - {name: a, by: ip, bucket: 5/minute}
  - {name: b, endpoint: '/x/{id}', by: [user, 'path:id'], windows: [2/s, 9/h], mode: shadow}
  - {name: c, by: global, slots: 2}
";

/// Fails unless the response is a documented one.
fn is_promised(answer: &Answer, is_head: bool) -> Result<(), TestCaseError> {
    let kind = answer.header("content-type");
    match answer.status.as_u16() {
        _ if is_head => prop_assert!(answer.body.is_empty()),
        200 | 503 if kind == Some("application/json") => drop(answer.json()),
        200 => prop_assert!(
            answer.body.is_empty()
                || matches!(kind, Some("text/plain; charset=utf-8" | "text/html; charset=utf-8"))
        ),
        304 => prop_assert!(answer.body.is_empty()),
        400..=499 | 503 if kind == Some("application/problem+json") => drop(answer.problem()),
        // Forward auth responds in the format that the caller prefers.
        400..=499 => {
            prop_assert!(matches!(kind, Some("application/json" | "text/plain; charset=utf-8")), "{kind:?}");
        }
        status => prop_assert!(false, "{status}"),
    }
    Ok(())
}

fn paths() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "/v1/check",
        "/v1/check/batch",
        "/v1/settle",
        "/v1/release",
        "/v1/auth",
        "/v1/limits",
        "/v1/limits/a/check",
        "/v1/limits/b/peek",
        "/v1/limits/c/refund",
        "/v1/limits/a/grant",
        "/v1/limits/b/reset",
        "/",
        "/readyz",
        "/openapi.json",
        "/v1/overview",
        "/v1/stats",
        "/v1/top",
        "/v1/decisions",
        "/v1/decisions/0123456789abcdef",
        "/v1/history",
        "/v1/explain",
        "/v1/policy",
        "/v1/mode",
        "/v1/limits/a/mode",
        "/v1/changes",
        "/page/index.html",
    ]);
    let query = "(\\?[ -~&&[^ \"#<>`{}|\\\\^]]{0,30})?";
    prop_oneof![
        4 => (known, query).prop_map(|(path, query)| format!("{path}{query}")),
        1 => "/[!-~]{0,40}",
    ]
}

/// Nearly valid bodies, which reach the code behind the parser.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let field = prop::sample::select(vec![
        "method", "path", "ip", "user", "api_key", "plan", "host", "headers", "claims", "cost", "key", "id",
        "mode", "reason", "by", "requests", "nonsense",
    ]);
    let value = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|it| it.to_string()),
        any::<f64>().prop_map(|it| format!("{it:e}")),
        any::<String>().prop_map(|it| serde_json::to_string(&it).unwrap()),
        Just("\"/x/7\"".to_owned()),
        Just("\"203.0.113.9\"".to_owned()),
        Just("[\"ann\",\"7\"]".to_owned()),
        Just("{\"a\":\"b\"}".to_owned()),
        Just("[{\"path\":\"/\"}]".to_owned()),
        Just("\"shadow\"".to_owned()),
        Just("\"off\"".to_owned()),
    ];
    let object = prop::collection::vec((field, value), 0..5).prop_map(|fields| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(",")).into_bytes()
    });
    prop_oneof![3 => object, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let name = prop::sample::select(vec![
        "x-original-uri",
        "x-original-url",
        "x-original-method",
        "x-original-host",
        "x-forwarded-uri",
        "x-forwarded-method",
        "x-forwarded-host",
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "host",
        "origin",
        "accept",
        "cookie",
        "authorization",
        "tollgate-token",
        "x-user-id",
    ]);
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(b"/x/7?q=1".to_vec()),
        Just(b"http://a.test/x/7".to_vec()),
        Just(b"GET".to_vec()),
        Just(b"203.0.113.9, 10.0.0.1".to_vec()),
    ];
    prop::collection::vec((name, value), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, rng_seed: RngSeed::Fixed(SEED), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_request_breaks_the_api(
        method in prop::sample::select(vec!["GET", "GET", "HEAD", "POST", "POST", "POST", "PUT", "BREW"]),
        path in paths(), body in bodies(), headers in headers(),
    ) {
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = uri;
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                request.headers_mut().append(HeaderName::from_static(name), value);
            }
        }
        is_promised(&watched(POLICY, Access::open()).0.send(request), method == "HEAD")?;
    }
}
