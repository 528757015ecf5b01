//! Kuadrant's rate limit service, called by grpcio (`tools/kuadrant.py`) with the limits of `integrations/kuadrant`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

use crate::ratelimit::ads::python;
use tollgate_testkit::{ProgramOutput, Redis, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const ENTRY: [&str; 3] = ["tokenlimit.free__65da223d", "1", "auth.identity.userid"];
const RLS: &str = "--listen-rls=127.0.0.1:0";

fn policy() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/kuadrant/policy.yaml");
    fs::read_to_string(file).unwrap()
}

/// Calls a server in all ways.
#[track_caller]
fn check(tollgate: &Tollgate, limit: &str) {
    let mut command = python("kuadrant.py");
    let address = tollgate.rls.unwrap().to_string();
    command.args([&address, "llm/chat"]).args(ENTRY).arg(limit);
    let output = ProgramOutput::of(command);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "ok\n"), "{output:?}\n{}", tollgate.log());
}

#[test]
fn limits_of_a_policy_are_checked_reported_and_reserved() {
    check(&Tollgate::start_with(BINARY, &policy(), &[RLS]), "20000");
}

#[test]
fn limits_on_redis_are_checked_reported_and_reserved() {
    let redis = Redis::start();
    let config = format!("store: {{url: '{}', deadline: 10s}}\n{}", redis.url(), policy());
    check(&Tollgate::start_with(BINARY, &config, &[RLS]), "20000");
}

#[test]
fn limits_of_envoys_files_are_checked_reported_and_reserved() {
    let folder = Scratch::new();
    let [key, value, counter] = ENTRY;
    folder.write(
        "llm.yaml",
        &format!(
            "domain: llm/chat\ndescriptors:\n- key: {key}\n  value: \"{value}\"\n  descriptors:\n  \
             - {{key: {counter}, rate_limit: {{unit: year, requests_per_unit: 500}}}}\n"
        ),
    );
    let files = format!("--envoy-config={}", folder.path().display());
    check(&Tollgate::start_with(BINARY, "limits: []\n", &[RLS, &files]), "500");
}
