//! `tollgate test`: arguments, output, and exit status.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Scratch};

const POLICY: &str = "limits: [{name: a, by: ip, bucket: 2/minute}, {name: b, endpoint: /b, by: ip, bucket: 9/s}]\nlog: {level: warn}\n";
const PASSING: &str =
    "tests:\n  - name: Two a minute\n    steps: [{request: GET /, times: 3, expect: {allowed: 2}}]\n";
const FAILING: &str =
    "tests:\n  - name: three a minute\n    steps: [{request: GET /, times: 3, expect: allowed}]\n";

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("test").args(arguments).env_clear().current_dir(folder);
    command
}

fn test(files: &Scratch, arguments: &[&str]) -> ProgramOutput {
    ProgramOutput::of(command(files.path(), arguments))
}

/// Creates a policy with a test file beside it.
fn with_tests(tests: &str) -> Scratch {
    let files = Scratch::new();
    files.write("policy.yaml", POLICY);
    files.write("policy.test.yaml", tests);
    files
}

#[test]
fn the_sample_policy_passes_its_own_tests_and_all_of_it_is_covered() {
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate-daemon"));
    let finished = ProgramOutput::of(command(sample, &["sample.yaml", "--min-coverage", "100%"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{}", finished.stdout);
    assert!(finished.stdout.contains("coverage of sample.yaml: 100 %"), "{}", finished.stdout);
}

#[test]
fn passing_tests_exit_with_0_for_every_kind_of_path() {
    let files = with_tests(PASSING);
    for arguments in
        [&[][..], &["."], &["policy.yaml"], &["policy.test.yaml"], &["policy.yaml", "policy.test.yaml"]]
    {
        let finished = test(&files, arguments);
        assert_eq!(
            (finished.code, finished.stderr.as_str()),
            (Some(0), ""),
            "{arguments:?}: {}",
            finished.stdout
        );
        let expected = "policy.test.yaml\n  ok    Two a minute\n1 passed (3 requests, ";
        assert!(finished.stdout.starts_with(expected), "{arguments:?}: {}", finished.stdout);
        assert!(finished.stdout.ends_with("  never asked    b\n"), "{arguments:?}: {}", finished.stdout);
    }
}

#[test]
fn failing_tests_exit_with_1_and_every_report_has_the_reason() {
    let files = with_tests(&format!("{PASSING}{}", FAILING.trim_start_matches("tests:\n")));
    let finished = test(&files, &["--junit", "report.xml"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(1), ""));
    assert!(finished.stdout.contains("policy.test.yaml:5: GET /, number 3 of 3"), "{}", finished.stdout);
    let junit = fs::read_to_string(files.path().join("report.xml")).unwrap();
    assert!(junit.contains("tests=\"2\" failures=\"1\""), "{junit}");
    let finished = test(&files, &["--json"]);
    let json: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((finished.code, &json["failed"]), (Some(1), &1.into()));

    let finished = test(&files, &["--filter", "TWO"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stdout);
    assert!(!finished.stdout.contains("coverage"), "{}", finished.stdout);
    let finished = test(&files, &["--filter", "four"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("no test has `four` in its name"), "{}", finished.stderr);
}

#[test]
fn insufficient_coverage_exits_with_1() {
    let files = with_tests(PASSING);
    let finished = test(&files, &["--min-coverage", "51%", "--coverage"]);
    assert_eq!(finished.code, Some(1));
    assert_eq!(
        finished.stderr,
        "error: 50 % of policy.yaml is covered, and `--min-coverage` asks for 51 %\n"
    );
    assert!(finished.stdout.contains("  b  NEVER ASKED  NEVER REFUSED\n"), "{}", finished.stdout);
    let finished = test(&files, &["--min-coverage", "51%", "--junit", "report.xml", "--json"]);
    let junit = fs::read_to_string(files.path().join("report.xml")).unwrap();
    assert!(junit.contains("tests=\"2\" failures=\"1\""), "{junit}");
    assert!(junit.contains("<testcase name=\"coverage of policy.yaml\""), "{junit}");
    let json: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((finished.code, &json["coverage"][0]["enough"]), (Some(1), &false.into()));
    assert_eq!(test(&files, &["--min-coverage", "50"]).code, Some(0));
    // Another file for the same policy covers the rest.
    let more =
        "policy: policy.yaml\ntests: [{name: b, steps: [{request: GET /b, cost: 10, expect: {limit: b}}]}]\n";
    files.write("more.test.yml", more);
    let finished = test(&files, &["--min-coverage", "100%"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{}", finished.stdout);
}

#[test]
fn mistakes_exit_with_2_and_nothing_is_run() {
    for (arguments, expected) in [
        (&["bare.yaml"][..], "bare.yaml has no tests\n  = help: put them into bare.test.yaml beside it"),
        (&["empty"], "there is no *.test.yaml in empty or below\n  = help: put the tests of policy.yaml"),
        (&["none.yaml"], "cannot read none.yaml: there is no such file"),
        (
            &["alone.test.yaml"],
            "alone.test.yaml has no policy: there is no alone.yaml beside it\n  = help: name the file in it",
        ),
        (&["policy.yaml", "wrong.test.yaml"], "  --> wrong.test.yaml:2:"),
        (&["policy.yaml", "wrong.test.yaml"], "did you mean `refused`?"),
        (&["broken.test.yaml"], "  --> broken.yaml:1:"),
        (&["named.test.yaml"], "the policy has no limit `aa`"),
        (&["--min-coverage", "101%"], "0% to 100%"),
        (&["--filter", "x", "--coverage"], "cannot be used with"),
        (&["--junit", "empty"], "cannot write empty:"),
    ] {
        let files = with_tests(PASSING);
        fs::create_dir(files.path().join("empty")).unwrap();
        files.write("bare.yaml", POLICY);
        files.write("broken.yaml", "limits: [{by: ip, bucket: 0/s}]\n");
        let wrong = "policy: policy.yaml\ntests: [{name: a, steps: [{request: GET /, expect: denied}]}]\n";
        files.write("empty/wrong.test.yaml.txt", "");
        let arguments: Vec<_> = arguments.to_vec();
        for (name, text) in [
            ("alone.test.yaml", PASSING),
            ("wrong.test.yaml", wrong),
            ("broken.test.yaml", PASSING),
            (
                "named.test.yaml",
                "policy: policy.yaml\ntests: [{name: a, steps: [{request: GET /, expect: {limit: aa}}]}]\n",
            ),
        ] {
            if arguments.contains(&name) {
                files.write(name, text);
            }
        }
        let finished = test(&files, &arguments);
        assert_eq!(
            (finished.code, finished.stdout.as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            finished.stderr
        );
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn tests_in_the_policy_itself_are_run_with_it() {
    let files = Scratch::new();
    files.write("policy.yaml", &format!("{POLICY}{PASSING}"));
    let finished = test(&files, &["policy.yaml"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.starts_with("policy.yaml\n  ok    Two a minute\n"), "{}", finished.stdout);
}

/// Reads a stream line by line.
fn lines(stream: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
    });
    lines
}

#[track_caller]
fn wait_for(lines: &mpsc::Receiver<String>, wanted: &str) {
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line.contains(wanted)) {
        let line = lines.recv_timeout(Duration::from_secs(30));
        seen.push(line.unwrap_or_else(|_| panic!("no `{wanted}` in {seen:#?}")));
    }
}

#[test]
fn watch_reports_changes_and_mistakes_and_exits_with_0() {
    let files = with_tests(PASSING);
    let mut command = command(files.path(), &["--watch"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Read separately, because the order of the two streams is undefined.
    let output = lines(child.stdout.take().unwrap());
    let complained = lines(child.stderr.take().unwrap());
    wait_for(&output, "ok    Two a minute");
    wait_for(&complained, "waiting for changes");
    files.write("policy.yaml", "limits: [{name: a, by: ip, bucket: 1/minute}]\n");
    wait_for(&output, "came      1 allowed, 2 refused");
    wait_for(&complained, "waiting for changes");
    files.write("policy.test.yaml", "tests: nothing\n");
    wait_for(&complained, "`tests` is a list");
    wait_for(&complained, "waiting for changes");
    files.write(
        "other.test.yaml",
        &format!("policy: policy.yaml\n{}", PASSING.replace("allowed: 2", "allowed: 1")),
    );
    files.write("policy.test.yaml", &PASSING.replace("Two", "Still two"));
    wait_for(&output, "FAIL  Still two a minute");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_schema_of_tests_is_printed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["schema", "--tests"]).env_clear();
    let schema: Value = serde_json::from_str(&ProgramOutput::of(command).stdout).unwrap();
    assert_eq!(schema["title"], "Tollgate tests");
}

#[test]
fn a_test_cannot_use_a_plan_or_claim_that_no_request_has() {
    const TESTS: &str = "tests:
  - name: pro
    defaults: {api_key: k-1}
    steps: [{request: GET /, plan: pro, times: 2, expect: allowed}]
  - name: org
    steps: [{request: GET /, claims: {org: acme}, expect: allowed}]
";
    let run = |policy: &str| {
        let files = Scratch::new();
        files.write("policy.yaml", policy);
        files.write("policy.test.yaml", TESTS);
        test(&files, &["policy.yaml"])
    };
    let limits = "limits:
  - {by: api_key, bucket: 1/minute, plans: {pro: 9/minute}}
  - {by: 'claim:org', bucket: 9/minute}
";
    let finished = run(limits);
    assert_eq!(finished.code, Some(2), "{}", finished.stdout);
    for part in ["the policy has no `plans.from`", "policy.test.yaml:4:", "has claims: it verifies no tokens"]
    {
        assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    }
    for policy in [
        format!("plans: {{from: 'header:X-Plan'}}\nexpect: unprovided-claim\n{limits}"),
        format!("expect: [unprovided-plan, unprovided-claim]\n{limits}"),
        format!("listen: {{gateway: off}}\n{limits}"),
    ] {
        let finished = run(&policy);
        assert_eq!(finished.code, Some(0), "{policy}: {}{}", finished.stdout, finished.stderr);
    }
}
