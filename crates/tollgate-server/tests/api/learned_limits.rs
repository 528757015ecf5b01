//! The limits with a learned number of slots in the overview.

use serde_json::json;
use tollgate::Call;
use tollgate_server::Access;

use crate::support::watched;

#[test]
fn the_overview_has_learned_limits_with_their_requests_in_flight() {
    let policy = "limits: [{name: upstream, by: global, slots: {adaptive: {min: 1, max: 1}}}]";
    let (subject, _) = watched(policy, Access::open());
    let limiter = subject.limiter.load();
    let held = limiter.acquire_now(&Call::new("GET", "/")).expect("one slot");
    assert!(limiter.acquire_now(&Call::new("GET", "/")).is_err(), "the slot is taken");
    let overview = subject.get("/v1/overview").json();
    let learned = json!({
        "limit": "upstream",
        "mode": "enforce",
        "switch": "policy",
        "keys": 1,
        "slots": 1,
        "in_flight": 1,
        "latency_us": null,
        "baseline_us": null,
        "exceeded": [{"priority": null, "requests": 1}],
    });
    assert_eq!(overview["adaptive"], json!([learned]));
    drop(held);
    assert_eq!(subject.get("/v1/overview").json()["adaptive"][0]["in_flight"], 0);
}
