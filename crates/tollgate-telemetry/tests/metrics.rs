//! Metrics are valid and bounded, and contain no text from callers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use tollgate::{Call, Limiter, Timestamp};
use tollgate_telemetry::{WatchSettings, Watcher};

const POLICY: &str = "
limits:
  - {name: search.v1, endpoint: /search, by: user, bucket: 2/hour, soft: 50%}
  - {name: All_of-it, by: global, bucket: 100/hour, mode: shadow}
";

fn metrics(watcher: &Watcher) -> String {
    let mut out = String::new();
    watcher.metrics(Timestamp::from_secs(1_700_000_000), &mut out);
    out
}

fn some_traffic() -> Watcher {
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter = Limiter::from_policy(POLICY).unwrap().with_observer(watcher.clone());
    for _ in 0..5 {
        drop(limiter.check(&Call::new("GET", "/search").user("ann\"} 1\nevil{x=\"")));
    }
    drop(limiter.check(&Call::new("GET", "/evil\n# HELP evil").user("evil")));
    watcher
}

/// Returns the output of `promtool check metrics`.
fn complaints(text: &str) -> String {
    let mut program = Command::new("promtool");
    program.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program =
        program.spawn().unwrap_or_else(|error| panic!("promtool: {error}. `make test` installs it"));
    program.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    format!("{}{}", if output.status.success() { "" } else { "failed: " }, String::from_utf8_lossy(&said))
}

#[test]
fn promtool_accepts_the_metrics() {
    for watcher in [Watcher::new(&WatchSettings::default()), some_traffic()] {
        let text = metrics(&watcher);
        assert_eq!(complaints(&text), "", "{text}");
    }
}

#[test]
fn metrics_show_the_decisions() {
    let text = metrics(&some_traffic());
    for line in [
        "tollgate_decisions_total{outcome=\"allowed\"} 3",
        "tollgate_decisions_total{outcome=\"limited\"} 3",
        "tollgate_limit_decisions_total{limit=\"search.v1\",outcome=\"allowed\"} 2",
        "tollgate_limit_decisions_total{limit=\"search.v1\",outcome=\"limited\"} 3",
        "tollgate_limit_exhausted_total{limit=\"search.v1\"} 1",
        "tollgate_limit_soft_total{limit=\"search.v1\"} 2",
        "tollgate_limit_remaining_ratio_bucket{limit=\"search.v1\",le=\"0\"} 4",
        "tollgate_limit_remaining_ratio_bucket{limit=\"search.v1\",le=\"0.5\"} 5",
        "tollgate_limit_remaining_ratio_sum{limit=\"search.v1\"} 0.5",
        "tollgate_retry_after_seconds_bucket{le=\"3600\"} 3",
        "tollgate_retry_after_seconds_count 3",
        "tollgate_decision_seconds_count 6",
        "tollgate_keys_at_zero{limit=\"search.v1\"} 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in:\n{text}");
    }
}

#[test]
fn metrics_contain_no_text_from_callers() {
    let text = metrics(&some_traffic());
    assert!(!text.contains("evil") && !text.contains("ann"), "{text}");
    let labels: BTreeSet<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once("limit=\"")?.1.split_once('"'))
        .map(|(limit, _)| limit)
        .collect();
    assert_eq!(labels, BTreeSet::from(["All_of-it", "search.v1"]));
}

#[test]
fn a_thousand_keys_and_paths_add_no_lines() {
    let watcher = some_traffic();
    let limiter = Limiter::from_policy(POLICY).unwrap().with_observer(watcher.clone());
    let before = metrics(&watcher).lines().count();
    for at in 0..1000 {
        let (path, user) = (format!("/{at}"), format!("user-{at}"));
        drop(limiter.check(&Call::new("GET", &path).user(&user)));
    }
    assert_eq!(metrics(&watcher).lines().count(), before);
}

#[test]
fn every_decision_counts_in_the_latencies_at_any_rate() {
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter = Limiter::from_policy(POLICY).unwrap().with_observer(watcher.clone());
    for _ in 0..10_000 {
        drop(limiter.check(&Call::new("GET", "/other")));
    }
    let text = metrics(&watcher);
    assert!(text.contains("tollgate_decision_seconds_count 10000\n"), "{text}");
}
