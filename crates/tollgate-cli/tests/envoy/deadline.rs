//! A store that does not answer: Tollgate answers Envoy before Envoy gives up.

use super::app::App;
use super::proxy::{Between, Envoy, copied, replaced};
use super::{serving, statuses};
use tollgate_testkit::Redis;

/// Returns the copied configuration with this timeout of the rate limit filter.
fn with_timeout(timeout: &str) -> String {
    let (after, filter) = ("\n                      # Without an answer", "                      timeout: ");
    replaced(&copied(), &format!("{filter}30s{after}"), &format!("{filter}{timeout}{after}"))
}

#[test]
fn a_stopped_redis_is_answered_for_by_the_local_share_before_envoy_gives_up() {
    let (app, redis) = (App::start(), Redis::start());
    // Redis alone would be waited for beyond the timeout of Envoy.
    let policy = format!(
        "store: {{url: {}, deadline: 10s}}\nlimits:\n- {{name: addresses, domain: edge, \
         descriptor: [remote_address], bucket: \"1/day, burst 20\"}}\n",
        redis.url()
    );
    let (_tollgate, rls) = serving(&policy, &["--listen-rls=127.0.0.1:0"]);
    let envoy = Envoy::start(&with_timeout("2s"), Between { rls, app: app.address });
    assert_eq!(statuses(&envoy, "GET /", "", 1), [200]);
    redis.pause();
    let answered = statuses(&envoy, "GET /", "", 6);
    redis.resume();
    assert_eq!(envoy.counted("cluster.app.ratelimit.error"), 0, "{answered:?}");
    assert_eq!(envoy.counted("cluster.app.ratelimit.failure_mode_allowed"), 0, "{answered:?}");
    assert!(answered.contains(&200) && answered.ends_with(&[429]), "the share counts: {answered:?}");
}
