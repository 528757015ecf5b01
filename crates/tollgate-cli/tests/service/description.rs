//! schemathesis believes nothing of `/openapi.json` that it has not tried.

use std::process::Command;

use tollgate_testkit::{Finished, Scratch, Tollgate};

use crate::{BINARY, alone, tools};

/// The same requests in every run.
const SEED: &str = "7011";

/// Limits of every kind of key and algorithm, some of which refuse.
const POLICY: &str = "
identify: {user: 'header:x-user', tenant: 'header:x-tenant'}
limits:
  - {name: roomy, by: ip, bucket: 1000000/second}
  - {name: tight, by: user, bucket: 5/hour}
  - {name: several, by: [tenant, user], windows: [10/second, 100/hour]}
  - {name: windowed, by: global, algorithm: sliding-log, bucket: 500/hour, mode: shadow}
  - {name: slots, endpoint: /slots, by: ip, slots: 3}
";

/// Runs all of schemathesis' checks on the operations of some paths, for a limit of this name.
fn check(limit: Option<&str>, paths: &str, examples: &str) {
    let _alone = alone();
    let tollgate = Tollgate::start(BINARY, POLICY);
    let files = Scratch::new();
    let named = limit.map(|name| format!("[parameters]\n\"path.name\" = \"{name}\"\n"));
    files.write("schemathesis.toml", &named.unwrap_or_default());
    let mut command = Command::new(tools::python_tool("schemathesis"));
    command.arg("run").arg(format!("http://{}/openapi.json", tollgate.api));
    command.args(["--include-path-regex", paths, "--max-examples", examples, "--seed", SEED]);
    command.args(["--generation-database", "none", "--no-color", "--continue-on-failure"]);
    // It sees none of this machine's settings, and leaves nothing behind.
    command.current_dir(files.path()).env_clear().env("HOME", files.path());
    let Finished { code, stdout, stderr } = Finished::of(command);
    assert_eq!(code, Some(0), "schemathesis found what is not as /openapi.json says:\n{stdout}{stderr}");
    assert!(stdout.contains("No issues found"), "schemathesis says that it found nothing:\n{stdout}");
    assert!(!tollgate.log().contains("panicked"), "nothing that was sent broke the server:\n{}", tollgate.log());
}

#[test]
fn schemathesis_finds_nothing_about_any_operation() {
    check(None, ".", "15");
}

#[test]
fn schemathesis_finds_nothing_about_limits_that_are_there() {
    check(Some("tight"), "^/v1/limits/", "25");
}

#[test]
fn schemathesis_finds_nothing_about_slots() {
    check(Some("slots"), "^/v1/limits/", "15");
}
