//! A store that does not answer in time: Tollgate answers Envoy before Envoy gives up.
//!
//! Envoy's default timeout is 20 ms, and Tollgate leaves 8 ms of it for its own answer. A busy machine takes
//! longer than that to run either process, so the timeout is 2 s here; the part that the store gets is the same.

use std::time::Duration;

use super::app::App;
use super::proxy::{Between, Envoy, copied, replaced};
use super::{serving, statuses};
use tollgate_testkit::{Redis, SlowLink};

/// The timeout of the rate limit filter in these tests.
const ENVOY_TIMEOUT: &str = "2s";

/// Returns the copied configuration with this timeout of the rate limit filter, which lets requests pass
/// without an answer.
fn with_timeout(timeout: &str) -> String {
    let (after, filter) = ("\n                      # Without an answer", "                      timeout: ");
    let config = replaced(&copied(), &format!("{filter}30s{after}"), &format!("{filter}{timeout}{after}"));
    assert!(config.contains("failure_mode_deny: false"), "{config}");
    config
}

/// Starts Envoy and Tollgate with a store, makes the store useless, and checks that the local share of the
/// limit decides.
#[track_caller]
fn check(store: &str, hinder: impl FnOnce(), restore: impl FnOnce()) {
    let app = App::start();
    // The store alone would be waited for beyond the timeout of Envoy.
    let policy = format!(
        "store: {{url: \"{store}\", deadline: 10s}}\nlimits:\n- {{name: addresses, domain: edge, \
         descriptor: [remote_address], bucket: \"1/day, burst 20\"}}\n"
    );
    let (_tollgate, rls) = serving(&policy, &["--listen-rls=127.0.0.1:0"]);
    let envoy = Envoy::start(&with_timeout(ENVOY_TIMEOUT), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /", "", 1), [200]);
    hinder();
    let answered = statuses(&envoy, "GET /", "", 6);
    restore();
    assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0, "{answered:?}");
    assert_eq!(envoy.counted("cluster.app.ratelimit.failure_mode_allowed"), 0, "{answered:?}");
    assert!(answered.contains(&200) && answered.ends_with(&[429]), "the share counts: {answered:?}");
}

#[test]
fn a_stopped_redis_is_answered_for_by_the_local_share_before_envoy_gives_up() {
    let redis = Redis::start();
    check(&redis.url(), || redis.pause(), || redis.resume());
}

#[test]
fn a_slow_redis_is_answered_for_by_the_local_share_before_envoy_gives_up() {
    let redis = Redis::start();
    let link = SlowLink::to(&redis);
    let url = format!("redis://{}", link.address());
    check(&url, || link.delay(Duration::from_secs(60)), || link.delay(Duration::ZERO));
}
