//! Overrides persist over reloads, and with a state directory over restarts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;
use tollgate_testkit::{ProgramOutput, Scratch, Tollgate};

use super::asking::{ask, get, get_json, metric, stop, switch, wait_for_log};
use super::{BINARY, ONE};

fn statuses(tollgate: &Tollgate, count: usize) -> Vec<u16> {
    (0..count).map(|_| get(tollgate.gateway, "/").0).collect()
}

fn with_state(folder: &Scratch) -> String {
    format!("{ONE}state: {}\n", folder.path().join("state").display())
}

#[test]
fn an_override_survives_a_reload_and_a_restart() {
    let folder = Scratch::new();
    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    assert_eq!(statuses(&tollgate, 2), [200, 429]);
    let switched = switch(tollgate.api, "/v1/limits/one/mode", "shadow");
    assert_eq!((&switched["persisted"], &switched["mode"]), (&json!(true), &json!("shadow")));
    assert_eq!(statuses(&tollgate, 2), [200, 200]);

    let edited = with_state(&folder).replace("1/hour", "2/hour");
    tollgate.files.write("tollgate.yaml", &edited);
    wait_for_log(&mut tollgate, "reloaded");
    assert_eq!(statuses(&tollgate, 3), [200, 200, 200]);
    assert_eq!(metric(tollgate.api, "tollgate_last_reload_successful"), Some(1));
    stop(&mut tollgate);

    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    assert_eq!(statuses(&tollgate, 3), [200, 200, 200]);
    let log = tollgate.log();
    assert!(log.contains("switched by hand") && log.contains("one to shadow"), "{log}");
    let changes = get_json(tollgate.api, "/v1/changes");
    let change = &changes["changes"][0];
    assert_eq!((&change["by"], &change["reason"]), (&json!("ann"), &json!("in a test")), "{changes}");
    assert_eq!(switch(tollgate.api, "/v1/limits/one/mode", "policy")["mode"], "enforce");
    stop(&mut tollgate);

    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    assert_eq!(statuses(&tollgate, 2), [200, 429]);
    stop(&mut tollgate);
}

#[test]
fn a_start_with_everything_off_prints_a_warning_and_help() {
    let folder = Scratch::new();
    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    assert!(tollgate.log().contains("1 limit in force\n"), "{}", tollgate.log());
    switch(tollgate.api, "/v1/mode", "off");
    stop(&mut tollgate);
    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    let log = tollgate.log();
    assert!(log.contains("no limits in force, 1 off\n") && log.contains("everything to off"), "{log}");
    assert!(
        log.contains("`tollgate mode enforce --all` removes it") && !log.contains("mode policy"),
        "{log}"
    );
    switch(tollgate.api, "/v1/mode", "enforce");
    switch(tollgate.api, "/v1/limits/one/mode", "shadow");
    stop(&mut tollgate);
    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    let log = tollgate.log();
    assert!(log.contains("`tollgate mode policy NAME` removes it") && !log.contains("--all"), "{log}");
    stop(&mut tollgate);
}

#[test]
fn without_a_state_directory_an_override_is_lost_at_restart() {
    let mut tollgate = Tollgate::start(BINARY, ONE);
    assert_eq!(switch(tollgate.api, "/v1/mode", "off")["persisted"], json!(null));
    assert_eq!(statuses(&tollgate, 3), [200, 200, 200]);
    stop(&mut tollgate);
}

#[test]
fn an_override_that_cannot_be_saved_is_in_force_with_a_warning() {
    let folder = Scratch::new();
    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let switched = switch(tollgate.api, "/v1/mode", "off");
    assert_eq!(switched["persisted"], json!(false), "{switched}");
    assert!(switched["warning"].as_str().unwrap().contains("forgotten"), "{switched}");
    assert_eq!(statuses(&tollgate, 3), [200, 200, 200]);
    stop(&mut tollgate);
}

#[test]
fn an_unusable_state_directory_prevents_the_start() {
    let files = Scratch::new();
    let policy = files.write("policy.yaml", ONE);
    let refused = |state: &str| {
        let mut command = Command::new(BINARY);
        command.arg("serve").arg("--config").arg(&policy).args(["--set", &format!("state={state}")]);
        command.args(["--listen-gateway", "127.0.0.1:0", "--listen-api", "127.0.0.1:0"]).env_clear();
        command.args(["--listen-rls", "off", "--listen-resp", "off"]);
        let finished = ProgramOutput::of(command);
        assert_eq!(finished.code, Some(2), "{finished:?}");
        finished.stderr
    };
    let said = refused(&files.write("file", "").display().to_string());
    assert!(said.contains("cannot use the state folder") && said.contains("= help:"), "{said}");
    let damaged = files.path().join("damaged");
    fs::create_dir(&damaged).unwrap();
    fs::write(damaged.join("switches.json"), "{").unwrap();
    let said = refused(&damaged.display().to_string());
    assert!(said.contains("cannot read the switches") && said.contains("mv "), "{said}");

    let folder = Scratch::new();
    let mut tollgate = Tollgate::start(BINARY, &with_state(&folder));
    let state = folder.path().join("state");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    let said = refused(&state.display().to_string());
    assert!(said.contains("in use by another process"), "{said}");
    stop(&mut tollgate);
}

#[test]
fn without_observation_decisions_and_switches_work() {
    let mut tollgate = Tollgate::start(BINARY, &format!("{ONE}observe: off\n"));
    assert_eq!(statuses(&tollgate, 2), [200, 429]);
    assert_eq!(get_json(tollgate.api, "/v1/overview")["observing"], false);
    let metrics = get(tollgate.api, "/metrics").1;
    assert!(
        metrics.contains("tollgate_store_up 1") && !metrics.contains("tollgate_decisions_total"),
        "{metrics}"
    );
    switch(tollgate.api, "/v1/limits/one/mode", "off");
    assert_eq!(statuses(&tollgate, 1), [200]);
    assert_eq!(ask(tollgate.api, "GET /v1/mode", "", "").0, 200);
    stop(&mut tollgate);
    assert!(!tollgate.log().contains("refused"), "{}", tollgate.log());
}
