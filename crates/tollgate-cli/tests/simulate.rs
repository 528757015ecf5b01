//! `tollgate simulate` on the command line.
//!
//! The algorithms are tested in `tollgate-sim`, the Lab in `page.rs` and `tollgate-server/tests`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Scratch};

fn simulate(arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("simulate").args(arguments).env_clear();
    ProgramOutput::of(command)
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let finished = simulate(&[arguments, &["--json"]].concat());
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn by_default_it_shows_that_a_fixed_window_admits_twice_its_limit() {
    let finished = simulate(&[]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.contains("twice the limit"), "{}", finished.stdout);
    assert!(finished.stdout.contains("20 (2.0 ×)"), "{}", finished.stdout);
    assert!(!finished.stdout.contains('\u{1b}'), "no colours where no terminal is");
    let widest = finished.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(110), "{widest:?}");
    let report = json(&[]);
    let algorithms = report["rates"][0]["algorithms"].as_array().unwrap();
    assert_eq!(algorithms.len(), 7);
    assert_eq!(report["log"], Value::Null);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let poisson = ["--traffic", "poisson", "--clients", "5", "--load", "2", "--duration", "5m"];
    let seeded = |seed| json(&[&poisson[..], &["--seed", seed]].concat());
    assert_eq!(seeded("7"), seeded("7"));
    assert_ne!(seeded("7")["rates"][0]["algorithms"], seeded("8")["rates"][0]["algorithms"]);
}

#[test]
fn a_log_shows_the_exactness_of_each_algorithm() {
    let files = Scratch::new();
    // Three requests at the end of a window of ten seconds, three at the start of the next.
    let line = |second: &str| {
        format!("192.0.2.1 - - [17/May/2015:10:05:{second} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n")
    };
    let log = ["09", "09", "09", "10", "10", "10"].map(line).concat();
    let log = files.write("access.log", &(log + "nonsense\n"));
    let arguments = ["--log", log.to_str().unwrap(), "--rate", "2/10s", "--rate", "5/10s"];
    let report = json(&arguments);
    assert_eq!((&report["log"]["requests"], &report["log"]["skipped_lines"]), (&6.into(), &1.into()));
    let fixed = &report["rates"][0]["algorithms"][0];
    assert_eq!((&fixed["algorithm"], &fixed["closed_loop"]["too_lax"]), (&"fixed-window".into(), &2.into()));
    assert_eq!(report["rates"][1]["rate"], "5/10s");
    let text = simulate(&arguments).stdout;
    assert!(text.contains("6 requests, 1 line skipped"), "{text}");
    assert!(text.contains("closed: differs"), "{text}");
}

#[test]
fn charts_are_written_to_files() {
    let files = Scratch::new();
    let svg = files.path().join("a.svg");
    let finished = simulate(&["--svg", svg.to_str().unwrap()]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("fixed-window") && svg.contains("limit 10/minute"));
}

#[test]
fn png_is_rejected_with_a_message_that_names_svg() {
    let files = Scratch::new();
    let file = files.path().join("a.PNG");
    let file = file.to_str().unwrap();
    for arguments in [&["--png", file][..], &["--png"], &["--svg", file]] {
        let finished = simulate(arguments);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains("does not write PNG"), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("--svg"), "{arguments:?}: {}", finished.stderr);
    }
    assert!(!Path::new(file).exists());
}

#[test]
fn a_mistake_gets_help_and_nothing_is_written() {
    let files = Scratch::new();
    let picture = files.path().join("a.svg");
    for (arguments, expected) in [
        (&["--rate", "10/minuet"][..], "did you mean `minute`?"),
        (&["--traffic", "poison"], "did you mean `poisson`?"),
        (&["--algorithm", "fixed-windov"], "did you mean `fixed-window`?"),
        (&["--duration", "soon"], "500ms, 30s, 5m or 1h"),
        (&["--duration", "100000d"], "below four years"),
        (&["--load", "0"], "from 0.01 to 1000"),
        (&["--clients", "0"], "1 to 100000 clients"),
        (&["--nodes", "65"], "1 to 64"),
        (&["--store", "redis://127.0.0.1"], "--store shared decides as Redis does"),
        (&["--store", "memori"], "did you mean `memory`?"),
        (&["--no-jitter"], "--traffic retry-storm"),
        (&["--by", "user"], "other keys come with --log"),
        (&["--log", "/nowhere/access.log"], "cannot read /nowhere/access.log"),
        (&["--log", "-", "--by", "usr"], "did you mean `user`?"),
        (&["--log", "-", "--traffic", "edge"], "cannot be used with"),
        (&["--rate", "5/s", "--rate", "6/s"], "a picture is of one rate"),
        (&["--rate", "1000000/second", "--duration", "1h"], "take a lower rate"),
    ] {
        let finished = simulate(&[arguments, &["--svg", picture.to_str().unwrap()]].concat());
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
        assert!(!picture.exists(), "{arguments:?}");
    }
}

#[test]
fn an_overload_shows_what_each_protection_keeps() {
    let arguments = ["--overload", "step", "--workers", "8", "--duration", "24s"];
    let report = json(&arguments);
    let protections = report["protections"].as_array().unwrap();
    let words: Vec<_> = protections.iter().map(|it| it["protection"].as_str().unwrap()).collect();
    assert_eq!(words, ["none", "rate", "slots", "adaptive", "adaptive-classes"]);
    let goodput = |at: usize| protections[at]["goodput"].as_f64().unwrap();
    assert!(goodput(0) < 0.3 && goodput(3) > 0.9, "{} {}", goodput(0), goodput(3));
    for series in ["attempts", "good", "p99_ms", "critical"] {
        assert_eq!(protections[4]["series"][series].as_array().unwrap().len(), 120, "{series}");
    }
    assert!(protections[4]["policy"].as_str().unwrap().contains("slots: adaptive"));
    assert_eq!(report, json(&arguments), "the same seed gives the same result");
    let text = simulate(&arguments).stdout;
    assert!(text.contains("adaptive-classes") && text.contains("recovered"), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(110), "{widest:?}");
}

#[test]
fn charts_of_an_overload_are_written_to_files() {
    let files = Scratch::new();
    for (chart, expected) in
        [("goodput", "possible"), ("latency", "callers give up"), ("critical", "critical calls")]
    {
        let svg = files.path().join(format!("{chart}.svg"));
        let arguments = [
            "--overload",
            "slow-dependency",
            "--protection",
            "none,slots",
            "--workers",
            "8",
            "--duration",
            "12s",
        ];
        let finished =
            simulate(&[&arguments[..], &["--chart", chart, "--svg", svg.to_str().unwrap()]].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(finished.stdout.contains("other routes"), "{}", finished.stdout);
        assert!(fs::read_to_string(svg).unwrap().contains(expected), "{chart}");
    }
}

#[test]
fn a_mistake_in_an_overload_gets_help() {
    for (arguments, expected) in [
        (&["--overload", "stepp"][..], "did you mean `step`?"),
        (&["--overload", "step", "--protection", "adaptiv"], "did you mean `adaptive`?"),
        (&["--overload", "step", "--workers", "0"], "1 to 10000 workers"),
        (&["--overload", "step", "--service-time", "2s"], "1ms to 500ms"),
        (&["--overload", "step", "--service-time", "fast"], "500ms, 30s, 5m or 1h"),
        (&["--overload", "step", "--load", "0"], "from 1 to 100"),
        (&["--overload", "step", "--duration", "2h"], "10s to 1h"),
        (&["--overload", "step", "--workers", "10000", "--service-time", "1ms"], "take fewer workers"),
        (&["--overload", "step", "--chart", "window"], "goodput, latency and critical"),
        (&["--overload", "step", "--rate", "5/s"], "cannot be used with"),
        (&["--overload", "step", "--algorithm", "gcra"], "cannot be used with"),
        (&["--workers", "5"], "--overload"),
        (&["--chart", "goodput"], "--overload step"),
    ] {
        let finished = simulate(arguments);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn a_fleet_shows_the_cost_of_each_way_to_share_a_limit() {
    let steady = ["--fleet", "steady", "--load", "0.9", "--duration", "5s"];
    let report = json(&steady);
    let modes = report["modes"].as_array().unwrap();
    assert_eq!(modes.iter().map(|it| &it["mode"]).collect::<Vec<_>>(), ["exact", "leased", "split", "sync"]);
    assert_eq!(modes[0]["calls"], report["offered"]);
    assert_eq!((&modes[1]["overshoot"], &modes[1]["admitted"]), (&0.into(), &report["offered"]));
    assert_eq!(json(&steady), report, "the same seed");
    let files = Scratch::new();
    let chart = files.path().join("calls.svg");
    let finished = simulate(&[&steady[..], &["--chart", "calls", "--svg", chart.to_str().unwrap()]].concat());
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.contains("never admitted more than the limit"), "{}", finished.stdout);
    assert!(fs::read_to_string(chart).unwrap().starts_with("<svg"));
}

#[test]
fn paced_clients_are_refused_less_than_others() {
    let arguments = ["--callers", "backoff,paced", "--clients", "4", "--duration", "5s"];
    let finished = simulate(&arguments);
    assert!(finished.stdout.contains("100/second, burst 20 for 4 clients"), "{finished:?}");
    let report = json(&arguments);
    let refused = |at: usize| report["manners"][at]["refused"].as_u64().unwrap();
    assert!(refused(1) * 2 < refused(0), "{report:#}");
    for (arguments, expected) in [
        (&["--callers", "pace"][..], "did you mean `paced`?"),
        (&["--callers", "--clients", "0"], "--clients: there must be 1 to"),
        (&["--callers", "--rate", "fast"], "--rate: "),
    ] {
        let finished = simulate(arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn a_mistake_in_a_fleet_gets_help() {
    for (arguments, expected) in [
        (&["--fleet", "retry-storm"][..], "clients do not retry here"),
        (&["--fleet", "--lease", "5s"], "--lease: a lease of this limit is 10ms to 200ms"),
        (&["--fleet", "--mode", "exactly"], "did you mean `exact`?"),
        (&["--fleet", "--nodes", "0"], "--nodes: a fleet has 1 to"),
        (&["--fleet", "--rate", "5/minuet"], "did you mean `minute`?"),
        (&["--fleet", "--rate", "5/minute", "--rate", "6/minute"], "a fleet shares one limit"),
        (&["--fleet", "--chart", "goodput"], "with --fleet there are admitted and calls"),
        (&["--chart", "calls"], "add --fleet"),
        (&["--lease", "1s"], "--fleet"),
    ] {
        let finished = simulate(arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
}
