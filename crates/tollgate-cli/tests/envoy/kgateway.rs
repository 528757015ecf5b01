//! The configuration that kgateway makes for Envoy, with the files in `integrations/kgateway`.

use std::fs;
use std::path::Path;

use super::app::App;
use super::proxy::{Between, Envoy, replaced};
use super::{ask, statuses, tollgate};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/kgateway");
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn a_route_with_a_policy_is_limited_and_others_are_not() {
    let app = App::start();
    let (_tollgate, rls) = tollgate(&replaced(&file("policy.yaml"), "5/minute", "1/day, burst 5"));
    // A long timeout, so that a busy machine does not affect the result.
    let config = replaced(&file("envoy.yaml"), " timeout: 0.25s", " timeout: 30s");
    let envoy = Envoy::start(&config, Between { rls, app: app.address });
    for left in (0..5).rev() {
        let admitted = ask(&envoy, "GET /", "");
        assert_eq!(admitted.status(), 200, "{admitted:?}");
        assert_eq!(admitted.header("x-ratelimit-remaining"), Some(left.to_string().as_str()), "{admitted:?}");
    }
    let refused = ask(&envoy, "GET /other", "");
    assert_eq!(refused.status(), 429, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(statuses(&envoy, "GET /open/page", "", 3), [200; 3]);
    assert_eq!(app.seen(), 8);
    assert_eq!(envoy.counted("cluster.kube_default_app_80.ratelimit.error"), 0);
}
