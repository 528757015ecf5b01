//! `tollgate validate`: output, formats, and exit status.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::{ProgramOutput, Scratch};

const GOOD: &str = "limits: [{by: ip, bucket: 5/minute}]\n";
const ODD: &str = "limits:\n  - by: ip\n    rate: 5/minute\n    algorithm: fixed-window\n";
const BAD: &str = "limits: [{by: ip, bucket: 5/minuet}]\n";

/// Runs `tollgate validate` in a directory with a valid, a suspicious and an invalid file.
fn validate(arguments: &[&str]) -> ProgramOutput {
    let folder = Scratch::new();
    for (name, text) in [("good.yaml", GOOD), ("odd.yaml", ODD), ("bad.yaml", BAD)] {
        folder.write(name, text);
    }
    folder.write("user.yaml", "limits: [{by: user, bucket: 10000/day}]\n");
    folder.write(
        "resp.yaml",
        &format!("expect: open-redis-protocol\nlisten: {{resp: '0.0.0.0:7379'}}\n{GOOD}"),
    );
    let many = |at| format!("  - {{endpoint: /e{at}, by: ip, rate: 5/minute, algorithm: fixed-window}}\n");
    folder.write("many.yaml", &format!("limits:\n{}", (0..8).map(many).collect::<String>()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder.path()).arg("validate").args(arguments).env_clear();
    ProgramOutput::of(command)
}

#[test]
fn the_exit_status_reflects_the_severity() {
    for (arguments, status) in [
        (&["good.yaml"][..], 0),
        (&["odd.yaml"], 0),
        (&["odd.yaml", "--strict"], 1),
        (&["odd.yaml", "--strict", "--allow", "fixed-window-alone"], 0),
        (&["good.yaml", "--strict"], 0),
        (&["good.yaml", "bad.yaml"], 2),
        (&["odd.yaml", "bad.yaml", "--strict", "--json"], 2),
        (&["odd.yaml", "good.yaml", "--strict", "--json"], 1),
        (&["user.yaml", "--strict"], 0),
        (&["user.yaml", "--strict", "--capacity", "500/second"], 1),
        (&["user.yaml", "--capacity", "lots"], 2),
        (&["user.yaml", "--capacity", "5/second, burst 9"], 2),
        (&["resp.yaml", "--strict"], 0),
        (&["none.yaml"], 2),
        (&[], 2),
    ] {
        let finished = validate(arguments);
        assert_eq!(finished.code, Some(status), "{arguments:?}: {}{}", finished.stdout, finished.stderr);
    }
}

#[test]
fn every_file_is_reported_results_on_stdout_and_problems_on_stderr() {
    let finished = validate(&["bad.yaml", "odd.yaml", "good.yaml"]);
    assert_eq!(
        finished.stdout,
        "odd.yaml: 1 limit, no mistakes, 1 warning\ngood.yaml: 1 limit, no mistakes\n"
    );
    for said in [
        "error: `minuet` is not a unit of time\n --> bad.yaml:1:29\n",
        "warning[fixed-window-alone]: a fixed window admits up to twice its rate around its border\n --> odd.yaml:4:16\n",
        "`tollgate validate --explain CODE` says what happens",
    ] {
        let bare = finished.stderr.replace("  -->", " -->");
        assert!(bare.contains(said), "{bare}");
    }
}

#[test]
fn json_has_an_object_for_each_file() {
    let finished = validate(&["odd.yaml", "bad.yaml", "none.yaml", "--json"]);
    assert_eq!(finished.stderr, "");
    let objects: Vec<Value> = finished.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let [odd, bad, none] = &objects[..] else { panic!("{}", finished.stdout) };
    assert_eq!(
        *odd,
        json!({"file": "odd.yaml", "valid": true, "limits": 1, "errors": [], "left_out": 0, "warnings": [{
            "code": "fixed-window-alone", "file": "odd.yaml", "line": 4, "column": 16,
            "message": "a fixed window admits up to twice its rate around its border",
            "label": "the end of one window and the start of the next",
            "help": ["`algorithm: sliding-window` with `strict: true` never does; or add a shorter limit beside it"],
            "others": []}]})
    );
    assert_eq!((&bad["valid"], &bad["limits"], &bad["warnings"]), (&json!(false), &json!(null), &json!([])));
    assert_eq!(bad["errors"][0]["message"], "`minuet` is not a unit of time");
    assert_eq!(
        (&bad["errors"][0]["line"], &bad["errors"][0]["label"]),
        (&json!(1), &json!("did you mean `minute`?"))
    );
    assert_eq!(none["errors"][0]["message"], "cannot read none.yaml: there is no such file");
}

#[test]
fn json_has_every_position_of_grouped_warnings() {
    let finished = validate(&["many.yaml", "--json"]);
    let output: Value = serde_json::from_str(&finished.stdout).unwrap();
    let [warning] = &output["warnings"].as_array().unwrap()[..] else { panic!("{output}") };
    assert_eq!((&warning["line"], &warning["column"]), (&json!(2), &json!(56)));
    let others: Vec<_> =
        (3..10).map(|line| json!({"file": "many.yaml", "line": line, "column": 56})).collect();
    assert_eq!(warning["others"], json!(others));
}

#[test]
fn a_code_is_explained_and_all_are_listed() {
    for code in ["never-fires", "[never-fires]", "warning[never-fires]:"] {
        let page = validate(&["--explain", code]);
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{code}");
        assert!(
            page.stdout.starts_with("# never-fires\n") && page.stdout.contains("**Fix.**"),
            "{}",
            page.stdout
        );
    }
    let all = validate(&["--explain"]);
    assert_eq!(all.code, Some(0));
    assert!(all.stdout.lines().count() > 20, "{}", all.stdout);
    assert!(all.stdout.lines().any(|it| it.starts_with("unbounded-key  ")), "{}", all.stdout);
    for (wrong, said) in [("never-fire", "did you mean `never-fires`?"), ("tomato", "lists them all")] {
        let finished = validate(&["--explain", wrong]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{wrong}");
        assert!(finished.stderr.contains(said), "{}", finished.stderr);
    }
}

/// Returns the codes of the warnings about a policy, and the status of `--strict`.
fn codes(policy: &str) -> (Vec<String>, Option<i32>) {
    let folder = Scratch::new();
    folder.write("policy.yaml", policy);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder.path()).args(["validate", "--strict", "--json", "policy.yaml"]).env_clear();
    let finished = ProgramOutput::of(command);
    let output: Value =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{}", finished.stderr));
    let warnings = output["warnings"].as_array().unwrap().iter();
    (warnings.map(|it| it["code"].as_str().unwrap().to_owned()).collect(), finished.code)
}

#[test]
fn claims_and_plans_that_no_request_has_cause_warnings() {
    const BY_CLAIM: &str = "limits: [{by: 'claim:sub', bucket: 9/minute}]";
    const PLANS: &str = "limits: [{by: api_key, bucket: 9/minute, plans: {pro: 99/minute}}]";
    for (policy, code) in [
        (BY_CLAIM.to_owned(), "unprovided-claim"),
        ("limits: [{by: [ip, 'claim:sub'], missing: skip, bucket: 9/minute}]".to_owned(), "unprovided-claim"),
        (format!("gateway: {{upstream: 'http://127.0.0.1:3000'}}\n{BY_CLAIM}"), "unprovided-claim"),
        (format!("plans: {{from: 'claim:plan'}}\n{PLANS}"), "unprovided-claim"),
        (
            "identify: {user: 'claim:sub'}\nlimits: [{by: user, bucket: 9/minute}]".to_owned(),
            "unprovided-claim",
        ),
        ("deny: [{'claim:sub': ann}]\nlimits: [{by: ip, bucket: 9/minute}]".to_owned(), "unprovided-claim"),
        (PLANS.to_owned(), "unprovided-plan"),
        (format!("plans: {{default: free}}\nexpect: unknown-plan\n{PLANS}"), "unprovided-plan"),
        (format!("gateway: {{upstream: 'http://127.0.0.1:3000'}}\n{PLANS}"), "unprovided-plan"),
    ] {
        assert_eq!(codes(&policy), (vec![code.to_owned()], Some(1)), "{policy}");
        let without_gateway = format!("listen: {{gateway: off}}\n{policy}");
        let expected =
            match policy.replace("expect: unknown-plan", &format!("expect: [unknown-plan, {code}]")) {
                replaced if replaced != policy => replaced,
                _ => format!("expect: {code}\n{policy}"),
            };
        for quiet in [without_gateway, expected] {
            assert_eq!(codes(&quiet), (vec![], Some(0)), "{quiet}");
        }
    }
    for quiet in [
        format!("plans: {{from: 'header:X-Plan'}}\n{PLANS}"),
        "plans: {default: pro}\nlimits: [{by: api_key, bucket: 9/minute, plans: {pro: 99/minute}}]"
            .to_owned(),
        "limits: [{by: 'claim:sub', bucket: 9/minute, mode: off}]".to_owned(),
        "identify: {user: ['claim:sub', 'header:X-User']}\nlimits: [{by: user, bucket: 9/minute}]".to_owned(),
        "limits: [{descriptor: [plan, user], bucket: 9/minute, plans: {pro: 99/minute}}]".to_owned(),
    ] {
        assert_eq!(codes(&quiet), (vec![], Some(0)), "{quiet}");
    }
}

#[test]
fn the_pages_about_claims_and_plans_match_the_output() {
    for code in ["unprovided-claim", "unprovided-plan"] {
        let page = validate(&["--explain", code]).stdout;
        let blocks: Vec<_> =
            page.split("```yaml\n").skip(1).filter_map(|it| it.split("```").next()).collect();
        assert_eq!(codes(blocks[0]), (vec![code.to_owned()], Some(1)));
        assert_eq!(codes(blocks[1]), (vec![], Some(0)));
    }
}

#[test]
fn no_command_prints_an_os_error_number() {
    let folder = Scratch::new();
    folder.write("good.yaml", GOOD);
    folder.write("a.log", "");
    for arguments in [
        &["validate", "none.yaml"][..],
        &["validate", "good.yaml/none.yaml"],
        &["validate", "."],
        &["validate", "good.yaml", "--settings", "none"],
        &["serve", "--config", "none.yaml"],
        &["serve", "--config", "good.yaml", "--set", "state=good.yaml"],
        &["serve", "--config", "good.yaml", "--set", "listen.api=192.0.2.1:1"],
        &["serve", "--envoy-config", "none"],
        &["test", "none"],
        &["test", "none.test.yaml"],
        &["replay", "--policy", "good.yaml", "none.log"],
        &["replay", "--policy", "none.yaml", "a.log"],
        &["simulate", "--log", "none.log", "--rate", "1/s"],
        &["simulate", "--traffic", "edge", "--rate", "1/s", "--html", "none/report.html"],
        &["import", "envoy", "none.yaml"],
        &["import", "nginx", "."],
        &["check", "/", "--api", "http://127.0.0.1:1"],
        &["check", "/", "--api", "http://none.invalid:1"],
        &["check", "/", "--api", "https://127.0.0.1:1", "--ca", "none.pem"],
        &["top", "--once", "--api", "http://127.0.0.1:1"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.current_dir(folder.path()).args(arguments).env_clear();
        let finished = ProgramOutput::of(command);
        assert!(finished.code != Some(0), "{arguments:?} fails: {}", finished.stdout);
        assert!(finished.stderr.contains("error"), "{arguments:?}: {}", finished.stderr);
        assert!(!finished.stderr.contains("os error"), "{arguments:?}: {}", finished.stderr);
    }
}
