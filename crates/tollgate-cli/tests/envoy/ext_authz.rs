//! External authorization of a real Envoy, with the files in `integrations/envoy-ext-authz`.

use std::fs;
use std::path::Path;

use super::app::App;
use super::proxy::{Between, Envoy, replaced};
use super::{ask, statuses, statuses_of, tollgate};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/envoy-ext-authz");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The copied configuration with long timeouts, so that a busy machine does not affect the result.
fn config() -> String {
    file("envoy.yaml").replace("timeout: 0.25s", "timeout: 30s").replace("timeout: 1s", "timeout: 30s")
}

/// The copied limits without the address of the service.
fn policy() -> String {
    replaced(&file("policy.yaml"), "listen: {rls: 127.0.0.1:8081}\n", "")
}

#[test]
fn limits_on_paths_decide_about_requests_of_envoy() {
    let app = App::start();
    let (_tollgate, rls) = tollgate(&replaced(&policy(), "5/minute", "\"1/day, burst 5\""));
    let envoy = Envoy::start(&config(), Between { rls, app: app.address });
    for left in (0..5).rev() {
        let admitted = ask(&envoy, "POST /login", "");
        assert_eq!((admitted.status(), admitted.body.as_slice()), (200, &b"hello"[..]), "{admitted:?}");
        assert_eq!(admitted.header("x-ratelimit-remaining"), Some(left.to_string().as_str()), "{admitted:?}");
        assert!(admitted.header("tollgate-decision").is_some(), "{admitted:?}");
    }
    let refused = ask(&envoy, "POST /login?again=yes", "");
    assert_eq!(refused.status(), 429, "{refused:?}");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["status"], 429, "{refused:?}");
    assert_eq!(statuses(&envoy, "POST //login", "", 1), [429], "another spelling of the path");
    assert_eq!(statuses(&envoy, "GET /login", "", 1), [200]);
    assert_eq!(app.seen(), 6);
    assert_eq!(envoy.counted("http.front.ext_authz.error"), 0);
}

#[test]
fn no_header_of_a_client_bypasses_its_limits() {
    let app = App::start();
    let policy = "limits: [{name: keys, endpoint: /**, by: api_key, bucket: \"1/day, burst 2\"}]\n";
    let (_tollgate, rls) = tollgate(policy);
    let envoy = Envoy::start(&config(), Between { rls, app: app.address });
    for header in [
        format!("X-Api-Key: {}\r\n", "a".repeat(9_000)).into_bytes(),
        b"X-Api-Key: \xff\xfe\r\n".to_vec(),
        b"X-Api-Key: ann\r\nTollgate-Decision: forged\r\nTollgate-Priority: critical\r\n".to_vec(),
    ] {
        assert_eq!(statuses_of(&envoy, "GET /", &header), [200, 200, 429, 429], "{}", header.len());
    }
    assert_eq!(envoy.counted("http.front.ext_authz.error"), 0);
}

#[test]
fn a_forwarding_header_counts_only_from_a_trusted_proxy() {
    let app = App::start();
    let limit = "limits: [{name: addresses, endpoint: /**, by: ip, bucket: \"1/day, burst 2\"}]\n";
    let (_plain, rls) = tollgate(limit);
    let envoy = Envoy::start(&config(), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /", "X-Forwarded-For: 203.0.113.1\r\n", 2), [200, 200]);
    assert_eq!(statuses(&envoy, "GET /", "X-Forwarded-For: 203.0.113.2\r\n", 1), [429]);
}
