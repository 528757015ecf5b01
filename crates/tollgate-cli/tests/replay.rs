//! `tollgate replay`: arguments, output, and errors.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Scratch};

const POLICY: &str = "\
limits:
  - {name: per-client, by: ip, rate: 3/minute, algorithm: fixed-window}
  - {name: logins, endpoint: /login, by: ip, bucket: 2/hour}
";

/// Runs `tollgate replay` in a directory.
fn replay(folder: &Scratch, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("replay").args(arguments).env_clear().current_dir(folder.path());
    ProgramOutput::of(command)
}

/// Creates a directory with a policy and a log.
fn folder() -> Scratch {
    let folder = Scratch::new();
    folder.write("policy.yaml", POLICY);
    folder.write("access.log", &log());
    folder
}

/// Two clients, one of them fast: 5 requests in the first minute, 4 in the second, of which 3 are
/// logins.
fn log() -> String {
    let mut log = String::new();
    for (client, minute, second, path) in [
        (1, 0, 0, "/a"),
        (1, 0, 1, "/a"),
        (2, 0, 1, "/b"),
        (1, 0, 2, "/a"),
        (1, 0, 3, "/a"),
        (1, 1, 0, "/login"),
        (1, 1, 1, "/login"),
        (1, 1, 2, "/login"),
        (2, 1, 2, "/b?x=1"),
    ] {
        writeln!(
            log,
            "203.0.113.{client} - - [17/May/2015:10:0{minute}:0{second} +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\""
        )
        .unwrap();
    }
    log.push_str("no request at all\n");
    log
}

fn json(finished: &ProgramOutput) -> Value {
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn json_has_the_replayed_and_the_refused_requests() {
    let folder = folder();
    let report = json(&replay(&folder, &["--policy", "policy.yaml", "--json", "access.log"]));
    let total = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((total("requests"), total("refused"), total("skipped_lines")), (9, 2, 1));
    let limits = report["limits"].as_array().unwrap().iter();
    let limits: Vec<_> = limits
        .map(|it| {
            (it["name"].as_str().unwrap(), it["checked"].as_u64().unwrap(), it["refused"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(limits, [("per-client", 9, 1), ("logins", 3, 1)]);
    assert_eq!(report["limits"][0]["top"][0]["key"], "203.0.113.1");
    assert_eq!(
        (&report["from"], &report["to"]),
        (&"2015-05-17T10:00:00Z".into(), &"2015-05-17T10:01:02Z".into())
    );
}

#[test]
fn the_text_report_starts_with_totals_and_fits_100_columns() {
    let folder = folder();
    folder.write("lax.yaml", "store: redis://127.0.0.1:1\nlimits: [{name: lax, by: ip, bucket: 100/minute}]");
    let arguments = ["--policy", "policy.yaml", "--policy", "lax.yaml", "--suggest", "1%", "access.log"];
    let finished = replay(&folder, &arguments);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    let text = finished.stdout;
    assert!(text.starts_with("policy.yaml: refused 2 of 9 requests (22.2 %), 1 of 2 clients\n"), "{text}");
    for part in [
        "per-client  3/minute by ip, fixed-window",
        "refused 1 of 9 requests (11.1 %), 1 of 2 keys",
        "write  4/minute, for at most 1 % of requests: alone, refuses 0 requests (0 %) of 0 keys",
        "2 requests change fate: 0 newly refused, 2 newly admitted",
        "GET /login",
        "refused by logins, now admitted",
        "lax.yaml keeps its counts in Redis: replayed in memory",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
}

#[test]
fn a_page_is_written_beside_the_json() {
    let folder = folder();
    let report =
        json(&replay(&folder, &["--policy", "policy.yaml", "--json", "--html", "out.html", "access.log"]));
    let page = fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("per-client"));
    assert_eq!(report["requests"], 9);
    let finished = replay(&folder, &["--policy", "policy.yaml", "--html", "nowhere/out.html", "access.log"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("cannot write nowhere/out.html"), "{}", finished.stderr);
}

#[test]
fn invalid_input_exits_with_2_and_help() {
    let folder = folder();
    folder.write("broken.yaml", "limits: [{by: ip, bucket: 0/s}]");
    folder.write("letter.txt", "Dear reader,\nthis is no log.\n");
    for (arguments, message) in [
        (&["--policy", "policy.yaml", "letter.txt"][..], "Dear reader,"),
        (&["--policy", "policy.yaml", "letter.txt"], "`--format` says which"),
        (&["--policy", "policy.yaml", "--format", "combined", "letter.txt"], "none of 2 lines is a request"),
        (&["--policy", "policy.yaml", "--format", "combined", "letter.txt"], "begins: Dear reader,"),
        (&["--policy", "policy.yaml", "--format", "combined", "letter.txt"], "combined, common, json, csv"),
        (&["--policy", "policy.yaml", "gone.log"], "gone.log"),
        (&["--policy", "broken.yaml", "access.log"], "a rate of zero admits no request"),
        (
            &["--policy", "policy.yaml", "--policy", "broken.yaml", "access.log"],
            "a rate of zero admits no request",
        ),
        (&["--policy", "policy.yaml", "--suggest", "1", "access.log"], "1%, 0.5%"),
        (&["--policy", "policy.yaml", "--limit", "login", "access.log"], "did you mean `logins`?"),
        (&["access.log"], "--policy"),
    ] {
        let finished = replay(&folder, arguments);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(message), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn an_empty_log_and_an_unused_limit_are_noted() {
    let folder = Scratch::new();
    folder.write("policy.yaml", "limits: [{name: login, endpoint: /login, by: ip, bucket: 1/s}]");
    folder.write("empty.log", "");
    folder.write("one.log", "203.0.113.1 - - [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n");
    folder.write("header.csv", "time,ip,path\n");
    for empty in ["empty.log", "header.csv"] {
        let finished = replay(&folder, &["--policy", "policy.yaml", empty]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(finished.stdout.starts_with("policy.yaml: the log has no requests\n"), "{}", finished.stdout);
    }
    let finished = replay(&folder, &["--policy", "policy.yaml", "one.log"]);
    assert!(finished.stdout.contains("limit `login`: never asked"), "{}", finished.stdout);
}

#[test]
fn a_duplicate_log_is_rejected_and_a_missing_field_is_noted() {
    let folder = folder();
    std::os::unix::fs::symlink("access.log", folder.path().join("link.log")).unwrap();
    for other in ["access.log", "./access.log", "link.log"] {
        let finished = replay(&folder, &["--policy", "policy.yaml", "access.log", other]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{other}");
        assert!(finished.stderr.contains("is given twice"), "{other}: {}", finished.stderr);
    }
    folder.write(
        "a.json",
        "{\"time\": 1, \"ip\": \"192.0.2.1\", \"n\": \"many\"}\n{\"time\": 2, \"ip\": \"192.0.2.1\", \"n\": 1}\n",
    );
    let fields = ["--field", "user=usr", "--field", "cost=n"];
    let report =
        json(&replay(&folder, &[&["--policy", "policy.yaml", "--json", "a.json"], &fields[..]].concat()));
    let notes = report["notes"].to_string();
    assert!(notes.contains("no request of the log has the field `usr`"), "{notes}");
    assert!(notes.contains("1 of 2 requests do not have a cost in the field `n`"), "{notes}");
}

#[test]
fn exactness_includes_the_number_of_refusals() {
    let folder = Scratch::new();
    folder.write("policy.yaml", "limits: [{name: a, by: global, rate: 2/minute, algorithm: fixed-window}]");
    let line = |second: u32| format!("{{\"time\": {second}, \"path\": \"/\"}}\n");
    folder.write("a.json", &[1_700_000_038, 1_700_000_039, 1_700_000_040, 1_700_000_041].map(line).concat());
    let finished = replay(&folder, &["--policy", "policy.yaml", "a.json"]);
    let words: Vec<_> = finished.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("it refused 0, the log 2"), "{}", finished.stdout);
}
