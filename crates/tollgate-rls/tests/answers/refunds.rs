//! Refunds on a port without authentication.

use serde_json::{Value, json};
use tollgate::Policy;
use tollgate_rls::{Headers, RlsSettings};

use crate::support::{SHOULD_RATE_LIMIT, Service, applied_to, encode, with_settings};

const POLICY: &str = "limits:
  - {name: edge, descriptor: [user], domain: edge, bucket: 2/hour}
  - {name: login, endpoint: /login, by: ip, bucket: 2/hour}";
const FILE: &str =
    "domain: files\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}\n";

fn guarded() -> Service {
    let policy = applied_to(Policy::parse(POLICY).unwrap(), FILE);
    with_settings(
        policy,
        RlsSettings { headers: Some(Headers::Off), refuse_refunds: true, ..RlsSettings::default() },
    )
}

/// One descriptor for each kind of domain.
fn descriptors() -> [(&'static str, Value); 4] {
    let user = json!({"entries": [{"key": "user", "value": "ann"}]});
    let login =
        json!({"entries": [{"key": "path", "value": "/login"}, {"key": "ip", "value": "203.0.113.9"}]});
    let mut own = user.clone();
    own["limit"] = json!({"requestsPerUnit": 2, "unit": "HOUR"});
    [("edge", user.clone()), ("tollgate", login), ("files", user), ("edge", own)]
}

fn call(service: &Service, domain: &str, descriptors: &[&Value]) -> String {
    let request = json!({"domain": domain, "descriptors": descriptors});
    service.call(SHOULD_RATE_LIMIT, &encode("envoy.service.ratelimit.v3.RateLimitRequest", &request)).0
}

#[test]
fn unauthenticated_callers_cannot_refund() {
    for (domain, spent) in descriptors() {
        let service = guarded();
        let codes = |it: &Value| service.codes(&json!({"domain": domain, "descriptors": [it]}));
        assert_eq!((codes(&spent), codes(&spent)), ("OK: OK".into(), "OK: OK".into()), "{domain}");
        assert_eq!(codes(&spent), "OVER_LIMIT: OVER_LIMIT", "{domain}");
        let mut back = spent.clone();
        (back["hitsAddend"], back["isNegativeHits"]) = (2.into(), true.into());
        assert_eq!(call(&service, domain, &[&back]), "7", "PERMISSION_DENIED in {domain}");
        assert_eq!(codes(&spent), "OVER_LIMIT: OVER_LIMIT", "{domain}");
        // With other descriptors the call is answered, and nothing is refunded.
        let mut other = spent.clone();
        other["entries"][0]["value"] = if domain == "tollgate" { "/other" } else { "bob" }.into();
        assert_eq!(call(&service, domain, &[&other, &back]), "0", "{domain}");
        assert_eq!(codes(&spent), "OVER_LIMIT: OVER_LIMIT", "{domain}");
    }
}

#[test]
fn the_json_endpoint_refunds_because_the_api_authenticates() {
    let service = guarded();
    let spent = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}], "hitsAddend": 2}]});
    assert_eq!(service.codes(&spent), "OK: OK");
    assert_eq!(service.codes(&spent), "OVER_LIMIT: OVER_LIMIT");
    let mut back = spent.clone();
    back["descriptors"][0]["isNegativeHits"] = true.into();
    let (status, _) = pollster::block_on(service.rls.json(back.to_string().as_bytes()));
    assert_eq!(status, 200);
    assert_eq!(service.codes(&spent), "OK: OK");
}
