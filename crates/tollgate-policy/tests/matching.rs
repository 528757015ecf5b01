//! The matcher compared with trying each pattern in turn, and its bounds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;

use proptest::prelude::*;
use tollgate_policy::path::{Readings, literal, normal};
use tollgate_policy::{Call, Checks, Matched, PathSettings, Policy};

use crate::seeded::seeded;

/// Fixed, so that a failure is reproducible on every machine; printed on failure.
const SEED: u64 = 0x0070_6f6c_6963_7901;

/// The definition of a match, without optimizations, with segments as they are.
fn covers_segments(pattern: &str, path: &str) -> bool {
    let rest = path.trim_start_matches('/');
    let rest = if path.starts_with("//") { &path[1..] } else { rest };
    let segments: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
    let mut wanted: Vec<&str> = pattern.split('/').filter(|it| !it.is_empty()).collect();
    let tail = wanted.last() == Some(&"**");
    if tail {
        wanted.pop();
    }
    let long_enough = if tail { segments.len() >= wanted.len() } else { segments.len() == wanted.len() };
    long_enough && wanted.iter().zip(&segments).all(|(w, s)| w == s || *w == "*" || w.starts_with('{'))
}

fn compile(patterns: &[String]) -> Policy {
    let mut text = String::from("limits:\n");
    for (index, pattern) in patterns.iter().enumerate() {
        writeln!(text, "  - {{name: l{index}, endpoint: \"{pattern}\", by: global, bucket: 1/s}}").unwrap();
    }
    Policy::parse(&text).unwrap()
}

fn matched(policy: &Policy, path: &str) -> Vec<String> {
    let mut checks = Checks::new();
    assert_eq!(policy.match_request(&Call::new("GET", path), &mut checks), Matched::Applies);
    checks.iter().map(|check| check.limit.name().to_owned()).collect()
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![Just("a"), Just("b"), Just("c.d"), Just("*"), Just("{x}")];
    (prop::collection::vec(segment, 0..5), any::<bool>()).prop_map(|(segments, tail)| {
        // A name occurs once in a pattern.
        let named = segments
            .iter()
            .enumerate()
            .map(|(i, it)| if *it == "{x}" { format!("{{x{i}}}") } else { (*it).into() });
        let mut path = named.fold(String::new(), |path, it: String| path + "/" + &it);
        path.push_str(if tail {
            "/**"
        } else if path.is_empty() {
            "/"
        } else {
            ""
        });
        path
    })
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => Just("a".to_owned()), 4 => Just("b".to_owned()), 2 => Just("c.d".to_owned()), 1 => Just(String::new()),
        1 => Just(".".to_owned()), 1 => Just("..".to_owned()), 1 => Just("%61".to_owned()), 1 => Just("%2e%2E".to_owned()),
        1 => Just("a%2Fb".to_owned()), 1 => "\\PC{0,3}",
    ];
    prop::collection::vec(segment, 0..8).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(seeded(SEED, 2_000))]

    #[test]
    fn the_tree_agrees_with_trying_each_pattern(patterns in prop::collection::vec(pattern(), 1..12), path in path()) {
        let policy = compile(&patterns);
        // Under any reading, which include the normal form and the path with its dots as text.
        let readings = Readings::of(&path, PathSettings::default());
        let known = |it: &str| readings.iter().any(|reading| reading == it);
        prop_assert!(known(&normal(&path)) && literal(&path).is_none_or(|it| known(&it)), "{}", path);
        let covers = |it: &str| readings.iter().any(|path| covers_segments(it, path));
        let naive = patterns.iter().enumerate().filter(|(_, it)| covers(it)).map(|(i, _)| format!("l{i}"));
        let mut found = matched(&policy, &path);
        found.sort_by_key(|name| name[1..].parse::<usize>().ok());
        prop_assert_eq!(found, naive.collect::<Vec<_>>(), "seed {:#x}", SEED);
    }

    #[test]
    fn normalization_is_idempotent(path in "[/.%a2Ff5eE;é \\\\?\u{0}]{0,24}") {
        let once = normal(&path).into_owned();
        prop_assert_eq!(&*normal(&once), &*once, "seed {:#x}", SEED);
        prop_assert!(once.starts_with('/') && (once.len() == 1 || !once.ends_with('/')));
        prop_assert!(!once.split('/').any(|it| it == "." || it == "..") && !once.contains("//"));
    }

    #[test]
    fn any_path_has_a_normal_form(path in any::<String>()) {
        let once = normal(&path).into_owned();
        prop_assert!(once.is_ascii());
        prop_assert_eq!(&*normal(&once), &*once, "seed {:#x}", SEED);
    }
}

#[test]
fn a_long_path_is_no_way_around_a_limit() {
    let policy = compile(&["/**".into(), "/a/**".into(), "/a/*/**".into(), "/a/b".into()]);
    for segments in [2, 65, 257, 20_000] {
        let path = format!("/a{}", "/x".repeat(segments));
        assert_eq!(matched(&policy, &path), ["l0", "l1", "l2"], "{segments} segments");
    }
    let path = format!("/a/{}", "x".repeat(1 << 20));
    assert_eq!(matched(&policy, &path), ["l0", "l1", "l2"]);
}

#[test]
fn a_hostile_path_visits_each_node_at_most_once() {
    // Every pattern of ten segments that are `a` or `*`: all of them match `/a/a/...`.
    let patterns: Vec<String> = (0..1024_u32)
        .map(|bits| (0..10).map(|bit| if bits >> bit & 1 == 1 { "/a" } else { "/*" }).collect())
        .collect();
    let policy = compile(&patterns);
    for path in ["/a/a/a/a/a/a/a/a/a/a", "/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", "/b/b/b/b/b/b/b/b/b/b"] {
        assert!(policy.matching_steps(&Call::new("GET", path)) <= policy.matcher_size());
    }
    assert_eq!(matched(&policy, "/a/a/a/a/a/a/a/a/a/a").len(), 1024);
}

#[test]
fn a_path_that_equals_a_pattern_is_found_in_one_step_with_its_wildcards() {
    let policy = compile(&["/a/**".into(), "/a/b/c/d".into(), "/a/*/c/d".into(), "/".into(), "/x".into()]);
    for (path, limits, steps) in
        [("/a/b/c/d", &["l0", "l1", "l2"][..], 1), ("/", &["l3"], 1), ("/a/x/c/d", &["l0", "l2"], 5)]
    {
        assert_eq!(matched(&policy, path), limits, "{path}");
        assert_eq!(policy.matching_steps(&Call::new("GET", path)), steps, "{path}");
    }
}

#[test]
fn ten_thousand_limits_compile_and_a_walk_visits_few_nodes() {
    let mut text = String::from("limits:\n");
    for i in 0..10_000 {
        let endpoint = format!("/api/v{}/service-{}/things-{i}/{{id}}", i % 3, i % 100);
        writeln!(text, "  - {{endpoint: \"{endpoint}\", by: api_key, bucket: 10/minute}}").unwrap();
    }
    let policy = Policy::parse(&text).unwrap();
    assert_eq!(policy.limits().len(), 10_000);
    for path in
        ["/api/v1/service-0/things-100/7", "/api/v2/service-99/things-9998/x", "/api", "/nothing/here"]
    {
        let depth = path.matches('/').count();
        let steps = policy.matching_steps(&Call::new("GET", path));
        assert!(steps <= 3 * depth, "{path}: {steps} nodes");
    }
    let mut checks = Checks::new();
    policy.match_request(&Call::new("GET", "/api/v1/service-0/things-100/7").api_key("k"), &mut checks);
    let names: Vec<_> = checks.iter().map(|check| check.limit.name()).collect();
    assert_eq!(names, ["api-v1-service-0-things-100-id-by-api_key"]);
}
