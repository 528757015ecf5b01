//! `state: {folder: …, usage: …}`: the usage of a store in memory outlives the process.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate_testkit::{Scratch, Tollgate, wait_until};

use super::client::post_json;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

fn policy(units: u32, folder: &Path, every: &str) -> String {
    format!(
        "gateway: {{workers: 1}}\nstate: {{folder: {}, usage: {every}}}\n\
         limits:\n  - {{name: api, by: ip, bucket: {units}/day}}\n  - {{name: daily, by: ip, algorithm: fixed-window, rate: {}/day, align: first-request}}\n",
        folder.display(),
        2 * units,
    )
}

fn check(tollgate: &Tollgate, cost: u32) -> Value {
    post_json(tollgate.api, "/v1/check", &format!(r#"{{"path":"/","ip":"203.0.113.9","cost":{cost}}}"#))
}

fn remaining(tollgate: &Tollgate) -> [Option<u64>; 2] {
    let answer = check(tollgate, 0);
    [0, 1].map(|at| answer["limits"][at]["remaining"].as_u64())
}

fn stop(mut tollgate: Tollgate) {
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0), "{}", tollgate.log());
}

fn kill(mut tollgate: Tollgate) {
    tollgate.program.signal("KILL");
    tollgate.program.wait();
}

#[test]
fn usage_survives_a_restart_also_with_changed_numbers() {
    let files = Scratch::new();
    let folder = files.path().join("state");
    // The interval is longer than the test: only the end saves.
    let first = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert_eq!(check(&first, 4)["allowed"], true);
    stop(first);
    let second = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert!(second.log().contains("continuing with the saved usage"), "{}", second.log());
    assert_eq!(remaining(&second), [Some(6), Some(16)], "{}", second.log());
    stop(second);
    let raised = Tollgate::start(BINARY, &policy(20, &folder, "1h"));
    assert_eq!(remaining(&raised), [Some(16), Some(36)], "{}", raised.log());
    assert_eq!(check(&raised, 16)["allowed"], true);
    stop(raised);
    let lowered = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert_eq!(check(&lowered, 1)["allowed"], false, "{}", lowered.log());
}

#[test]
fn a_crash_forgets_only_usage_since_the_last_snapshot() {
    let files = Scratch::new();
    let folder = files.path().join("state");
    let first = Tollgate::start(BINARY, &policy(10, &folder, "1s"));
    assert_eq!(check(&first, 4)["allowed"], true);
    let saved = || fs::metadata(folder.join("usage")).and_then(|it| it.modified()).ok();
    // The second snapshot from now on began after the check.
    for round in 0..2 {
        let before = saved();
        wait_until(&format!("snapshot {round}"), || saved() != before);
    }
    kill(first);
    let second = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert_eq!(remaining(&second), [Some(6), Some(16)], "{}", second.log());
    assert_eq!(check(&second, 2)["allowed"], true);
    kill(second);
    let third = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert_eq!(remaining(&third), [Some(6), Some(16)], "two units are forgotten\n{}", third.log());
}

#[test]
fn a_damaged_snapshot_is_reported_and_replaced() {
    let files = Scratch::new();
    let folder = files.path().join("state");
    let first = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert_eq!(check(&first, 4)["allowed"], true);
    stop(first);
    let bytes = fs::read(folder.join("usage")).unwrap();
    fs::write(folder.join("usage"), &bytes[..bytes.len() - 3]).unwrap();
    let second = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    let log = second.log();
    assert!(log.contains("is not used: it is damaged") && log.contains("full allowance"), "{log}");
    assert_eq!(check(&second, 1)["allowed"], true);
    stop(second);
    let third = Tollgate::start(BINARY, &policy(10, &folder, "1h"));
    assert_eq!(remaining(&third), [Some(9), Some(19)], "{}", third.log());
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_once_and_requests_are_served() {
    let files = Scratch::new();
    let folder = files.path().join("state");
    let mut tollgate = Tollgate::start(BINARY, &policy(10, &folder, "1s"));
    // Not by permissions: tests may run as root.
    fs::remove_dir_all(&folder).unwrap();
    let mut log = String::new();
    tollgate.program.wait_until("error in the log", || {
        log = fs::read_to_string(tollgate.files.path().join("stderr.log")).unwrap_or_default();
        log.contains("usage cannot be saved")
    });
    assert!(log.contains("there is no such directory"), "{log}");
    assert_eq!(check(&tollgate, 1)["allowed"], true);
    fs::create_dir(&folder).unwrap();
    tollgate.program.wait_until("a snapshot", || folder.join("usage").exists());
    stop(tollgate);
}
