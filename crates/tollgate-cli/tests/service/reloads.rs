//! Twenty reloads while requests are served.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use tollgate_testkit::Tollgate;

use super::client::{get, get_json, post_json};
use super::tools::{BOTH, Protocol, Statuses, h2load};
use super::upstream::Upstream;
use super::{BINARY, alone};

const RELOADS: u64 = 20;
const CONCURRENT_REQUESTS: usize = 500;

/// A policy that can be distinguished from the others, with one limit that all of them share.
fn policy(version: u64) -> String {
    format!(
        "limits:
  - {{name: roomy, by: ip, bucket: {}/second}}
  - {{name: version-{version}, by: ip, bucket: 100000000/second}}
  - {{name: kept, endpoint: /kept, by: global, bucket: 100/day}}
",
        100_000_000 + version
    )
}

/// Sends requests until told to stop; returns their number, and the responses that were not 200.
fn load(protocol: Protocol, gateway: SocketAddr, stop: &AtomicBool) -> (usize, Statuses) {
    let (mut sent, mut wrong) = (0, Statuses::new());
    while !stop.load(Ordering::Relaxed) {
        for (status, count) in h2load(protocol, &format!("http://{gateway}/"), CONCURRENT_REQUESTS, &[]) {
            sent += count;
            if status != 200 {
                *wrong.entry(status).or_default() += count;
            }
        }
    }
    (sent, wrong)
}

fn has_limit(api: SocketAddr, name: &str) -> bool {
    let limits = get_json(api, "/v1/limits");
    limits["limits"].as_array().unwrap().iter().any(|limit| limit["name"] == name)
}

fn policy_version(api: SocketAddr) -> u64 {
    get_json(api, "/readyz")["policy_version"].as_u64().unwrap()
}

/// Spends one unit of the shared limit; returns the rest.
fn spend(api: SocketAddr) -> Option<u64> {
    post_json(api, "/v1/limits/kept/check", "{}")["limits"][0]["remaining"].as_u64()
}

/// Loads one policy after the other, with an invalid and a deleted file among them.
fn reload_often(tollgate: &mut Tollgate) {
    let api = tollgate.api;
    for version in 1..=RELOADS {
        let before = policy_version(api);
        if version == RELOADS / 2 {
            stays_on_the_old_policy(tollgate, before, version - 1);
        }
        tollgate.files.write("tollgate.yaml", &policy(version));
        // Every other change is left to polling.
        if version % 2 == 0 {
            tollgate.program.signal("HUP");
        }
        let name = format!("version-{version}");
        tollgate.program.wait_until(&name, || has_limit(api, &name));
        tollgate.program.wait_until("new policy version", || policy_version(api) > before);
        let old = format!("version-{}", version - 1);
        assert!(!has_limit(api, &old), "{old} is no longer in force once {name} is");
        assert_eq!(spend(api), Some(99 - version), "usage before {name} still counts");
    }
}

/// Checks that an invalid or missing file changes only `/readyz`.
fn stays_on_the_old_policy(tollgate: &mut Tollgate, version: u64, in_force: u64) {
    let api = tollgate.api;
    let error = || get_json(api, "/readyz")["reload_error"].clone();
    let expect = |tollgate: &mut Tollgate, text: &str| {
        let said = || error().as_str().is_some_and(|error| error.contains(text));
        tollgate.program.wait_until(text, said);
        assert_eq!(policy_version(api), version, "no version was loaded: {text}");
        let name = format!("version-{in_force}");
        assert!(has_limit(api, &name), "{name} stays in force: {text}");
    };
    tollgate.files.write("tollgate.yaml", "limits:\n  - {name: roomy, by: ip, bucket: 1/minuet}\n");
    tollgate.program.signal("HUP");
    expect(tollgate, "did you mean `minute`?");
    fs::remove_file(tollgate.files.path().join("tollgate.yaml")).unwrap();
    expect(tollgate, "there is no such file");
}

#[test]
fn twenty_reloads_under_load_fail_no_request_and_keep_the_counts() {
    let _alone = alone();
    let upstream = Upstream::start();
    // The upstream is set by a flag, because it is not reloaded.
    let set = format!("gateway.upstream=http://{}", upstream.address);
    let mut tollgate = Tollgate::start_with(BINARY, &policy(0), &["--set", &set]);
    let (gateway, stop) = (tollgate.gateway, AtomicBool::new(false));
    assert_eq!(get(gateway, "/").status, 200);
    assert_eq!(spend(tollgate.api), Some(99));
    let loads: Vec<_> = thread::scope(|scope| {
        let stop = &stop;
        let loads = BOTH.map(|protocol| scope.spawn(move || load(protocol, gateway, stop)));
        // Stops the load also on failure; otherwise the test would never end.
        let reloading =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reload_often(&mut tollgate)));
        stop.store(true, Ordering::Relaxed);
        let loads = loads.into_iter().map(|load| load.join().unwrap()).collect();
        reloading.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
        loads
    });
    for ((sent, wrong), protocol) in loads.into_iter().zip(BOTH) {
        println!("{protocol:?}: {sent} requests during {RELOADS} reloads");
        assert!(sent > 0, "there was load over {protocol:?}");
        assert!(wrong.is_empty(), "of {sent} requests over {protocol:?} none fails: {wrong:?}");
    }
    assert_eq!(get_json(tollgate.api, "/readyz")["reload_error"], Value::Null, "all is well in the end");
}
