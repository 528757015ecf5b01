//! schemathesis checks `/openapi.json` against the server.

use std::process::Command;

use tollgate_testkit::{ProgramOutput, Scratch, Tollgate};

use super::{BINARY, alone, tools};

/// The seed of all runs.
const SEED: &str = "7011";

/// Limits with every kind of key and algorithm, some of which refuse. They do not apply to forward
/// auth, which has no user here; a separate test covers its refusals.
const MANY: &str = "
identify: {user: 'header:x-user', tenant: 'header:x-tenant'}
limits:
  - {name: roomy, by: ip, bucket: 1000000/second}
  - {name: tight, by: user, missing: skip, bucket: 5/hour}
  - {name: several, by: [tenant, user], missing: skip, windows: [10/second, 100/hour]}
  - {name: windowed, by: global, algorithm: sliding-log, bucket: 500/hour, mode: shadow}
  - {name: slots, by: user, missing: skip, slots: 3}
";

const REFUSES: &str = "limits: [{name: none-left, by: global, bucket: 1/day}]";

/// The Lab takes rates and durations in the syntax of a policy, which no pattern describes.
const GRAMMAR: &str = "
[[operations]]
include-path = '/v1/lab/simulate'
checks.positive_data_acceptance.enabled = false
[[operations]]
include-path = '/v1/lab/overload'
checks.positive_data_acceptance.enabled = false
";

/// Runs all checks of schemathesis on the operations of some paths. A given parameter has this value;
/// all others are generated.
fn check(policy: &str, paths: &str, given: &str, examples: &str) {
    let _alone = alone();
    let tollgate = Tollgate::start(BINARY, policy);
    let files = Scratch::new();
    files.write("schemathesis.toml", &format!("[parameters]\n{given}\n{GRAMMAR}"));
    let mut command = Command::new(tools::python_tool("schemathesis"));
    command.arg("run").arg(format!("http://{}/openapi.json", tollgate.api));
    command.args(["--include-path-regex", paths, "--max-examples", examples, "--seed", SEED]);
    command.args(["--generation-database", "none", "--no-color", "--continue-on-failure"]);
    // Without settings of this machine, and without files left behind.
    command.current_dir(files.path()).env_clear().env("HOME", files.path());
    let ProgramOutput { code, stdout, stderr } = ProgramOutput::of(command);
    assert_eq!(code, Some(0), "with {given:?}, not all is as /openapi.json says:\n{stdout}{stderr}");
    let tried = stdout.lines().find(|line| line.contains(" generated, ")).unwrap_or_default();
    println!("{paths} {given}: {}", tried.trim());
    assert!(tried.contains(" passed"), "with {given:?}, something was tried:\n{stdout}");
    let log = tollgate.log();
    assert!(!log.contains("panicked"), "nothing that was sent broke the server:\n{log}");
}

#[test]
fn schemathesis_accepts_every_operation() {
    check(MANY, ".", "", "15");
}

#[test]
fn schemathesis_accepts_existing_limits() {
    for limit in ["tight", "slots"] {
        check(MANY, "^/v1/limits/", &format!("\"path.name\" = \"{limit}\""), "15");
    }
}

#[test]
fn schemathesis_accepts_refusals_of_forward_auth() {
    // With the targets of the links in the description.
    for status in [401, 403, 429] {
        check(REFUSES, "^/v1/(auth|check|settle|release)$", &format!("\"query.deny\" = {status}"), "8");
    }
}
