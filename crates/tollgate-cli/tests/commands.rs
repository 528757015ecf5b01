//! `explain`, `mode` and `changes`, with canned responses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::process::Command;

use crate::canned::{CannedServer, ok, problem};
use serde_json::{Value, json};
use tollgate_testkit::{ProgramOutput, Tollgate};

fn tollgate(server: &CannedServer, arguments: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear().env("TOLLGATE_API", server.url()).envs(variables.iter().copied());
    ProgramOutput::of(command)
}

fn explanation(allowed: bool, hypothetical: bool) -> Value {
    json!({"id": if hypothetical { Value::Null } else { json!("00c0ffee00c0ffee") }, "hypothetical": hypothetical,
        "at": "2026-11-15T12:00:03.2Z", "allowed": allowed, "fate": "refused",
        "summary": "Refused by `search`: 0.4 of 10 tokens were left and 1 was asked for; it passes in 3.6 s.",
        "reason": null, "limit": "search", "retry_after_ms": 3600, "policy_version": 3, "policy_is_current": true,
        "degraded": false, "took_us": 3, "request": {"method": "GET", "path": "/x", "host": null, "client": "203.0.113.9"},
        "limits": [{"name": "search", "window": null, "key": "203.0.113.9", "algorithm": "token-bucket",
            "quota": "10 a minute", "mode": "enforce", "candidate": false, "decided": true, "allowed": allowed, "cost": 1,
            "limit": 10, "remaining": 0, "retry_after_ms": 3600, "reset_after_ms": 60_000,
            "arithmetic": ["1 asked for: 0.6 short"], "spenders": []}], "trace_id": null})
}

#[test]
fn a_decision_is_explained_by_its_id_in_any_form() {
    for typed in [
        &["00c0ffee00c0ffee"][..],
        &["00C0FFEE00C0FFEE"],
        &["Tollgate-Decision: 00c0ffee00c0ffee"],
        &["tollgate-decision:", "00c0ffee00c0ffee"],
    ] {
        let server = CannedServer::answering(vec![(
            "GET /v1/decisions/00c0ffee00c0ffee",
            ok(&explanation(false, false)),
        )]);
        let finished = tollgate(&server, &[&["explain"], typed].concat(), &[]);
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{typed:?}");
        assert!(finished.stdout.starts_with("Refused by `search`: 0.4 of 10 tokens"), "{}", finished.stdout);
        assert!(finished.stdout.contains("    - 1 asked for: 0.6 short\n"), "{}", finished.stdout);
    }
    let server =
        CannedServer::answering(vec![("GET /v1/decisions/00c0ffee00c0ffee", ok(&explanation(false, false)))]);
    let finished = tollgate(&server, &["explain", "00c0ffee00c0ffee", "--json"], &[]);
    assert_eq!(serde_json::from_str::<Value>(&finished.stdout).unwrap(), explanation(false, false));
}

#[test]
fn a_hypothetical_request_is_explained_and_exits_like_a_check() {
    for allowed in [true, false] {
        let server = CannedServer::answering(vec![("POST /v1/explain", ok(&explanation(allowed, true)))]);
        let arguments = ["explain", "post", "/api/v1/login", "--ip", "203.0.113.9", "--user", "ann"];
        let finished = tollgate(&server, &arguments, &[]);
        assert_eq!(finished.code, Some(i32::from(!allowed)), "{}", finished.stderr);
        assert!(finished.stdout.contains("Nothing was spent"), "{}", finished.stdout);
        let requests = server.requests();
        assert_eq!(
            requests[0].body,
            json!({"method": "POST", "path": "/api/v1/login", "ip": "203.0.113.9", "user": "ann"})
        );
    }
}

#[test]
fn an_invalid_explain_gets_help() {
    for (arguments, expected) in [
        (&["explain", "123"][..], "an id is sixteen hexadecimal digits"),
        (&["explain", "search", "shadow"], "neither the id of a decision nor a path"),
        (&["explain", "00c0ffee00c0ffee", "--ip", "::1"], "the caller is part of the decision"),
        (&["explain"], "required"),
    ] {
        let server = CannedServer::answering(vec![]);
        let finished = tollgate(&server, arguments, &[]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
    let server = CannedServer::answering(vec![(
        "GET /v1/decisions/00c0ffee00c0ffee",
        problem("404 Not Found", "nobody remembers it; the last 16384 are kept"),
    )]);
    let finished = tollgate(&server, &["explain", "00c0ffee00c0ffee"], &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("nobody remembers it; the last 16384 are kept"), "{}", finished.stderr);
}

fn limits() -> String {
    let limit = |name: &str, mode: &str, switched: bool| json!({"name": name, "mode": mode, "policy_mode": "enforce", "switched": switched});
    ok(&json!({"limits": [limit("search", "enforce", false), limit("a/b", "shadow", true)]}))
}

fn modes(everything: &str) -> String {
    ok(
        &json!({"mode": everything, "limits": [{"name": "a/b", "mode": "shadow", "policy_mode": "enforce", "switch": "shadow"}]}),
    )
}

#[test]
fn a_switch_prints_the_change_and_whether_it_is_saved() {
    for (persisted, warning, expected) in [
        (json!(true), Value::Null, "search: shadow now, was enforce; kept through restarts\n"),
        (
            json!(null),
            Value::Null,
            "search: shadow now, was enforce; until the server restarts: it has no state folder (`state:`)\n",
        ),
        (
            json!(false),
            json!("disk \u{1b}full"),
            "search: shadow now, was enforce; in force, but it could not be written down: a restart forgets it\n  warning: disk \\u{1b}full\n",
        ),
    ] {
        let done = json!({"name": "search", "mode": "shadow", "before": "enforce", "persisted": persisted, "warning": warning});
        let server = CannedServer::answering(vec![
            ("GET /v1/mode", modes("enforce")),
            ("GET /v1/limits", limits()),
            ("PUT /v1/limits/search/mode", ok(&done)),
        ]);
        let finished =
            tollgate(&server, &["mode", "shadow", "search", "--reason", "INC-1"], &[("USER", "ann")]);
        assert_eq!(
            (finished.code, finished.stdout.as_str(), finished.stderr.as_str()),
            (Some(0), expected, "")
        );
        assert_eq!(server.requests()[2].body, json!({"mode": "shadow", "reason": "INC-1", "by": "ann"}));
    }
}

#[test]
fn the_author_of_a_switch_is_the_login_name_by_default() {
    for (arguments, variables, by) in [
        (&["mode", "off", "--all"][..], &[("LOGNAME", "bob")][..], json!("bob")),
        (&["mode", "off", "--all", "--as", "carol"], &[("USER", "ann"), ("LOGNAME", "bob")], json!("carol")),
        (&["mode", "off", "--all"], &[], Value::Null),
    ] {
        let done = ok(&json!({"mode": "off", "before": "enforce", "persisted": true, "warning": null}));
        let server = CannedServer::answering(vec![
            ("GET /v1/mode", modes("enforce")),
            ("GET /v1/limits", limits()),
            ("PUT /v1/mode", done),
        ]);
        let finished = tollgate(&server, arguments, variables);
        assert_eq!(
            finished.stdout, "everything: off now, was enforce; kept through restarts\n",
            "{}",
            finished.stderr
        );
        assert_eq!(server.requests()[2].body["by"], by);
    }
}

#[test]
fn all_overrides_are_removed_with_one_command() {
    let done = |mode: &str| ok(&json!({"mode": mode, "before": "off", "persisted": true, "warning": null}));
    let server = CannedServer::answering(vec![
        ("GET /v1/mode", modes("off")),
        ("GET /v1/limits", limits()),
        ("PUT /v1/limits/a%2Fb/mode", done("enforce")),
        ("PUT /v1/mode", done("enforce")),
    ]);
    let finished = tollgate(&server, &["mode", "policy", "--all"], &[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let bodies: Vec<_> = server.requests().into_iter().skip(2).map(|it| it.body).collect();
    assert_eq!(bodies, [json!({"mode": "enforce"}), json!({"mode": "policy"})]);
}

#[test]
fn modes_are_shown_and_mistakes_change_nothing() {
    let server = CannedServer::answering(vec![("GET /v1/mode", modes("shadow"))]);
    let finished = tollgate(&server, &["mode"], &[]);
    assert_eq!(
        finished.stdout,
        "everything: shadow. All is counted and no limit refuses; a deny list still does\n  a/b  shadow  (switched to shadow; the policy says enforce)\n"
    );
    for (arguments, expected) in [
        (&["mode", "shadow"][..], "`tollgate mode shadow LIMIT`, or `tollgate mode shadow --all`"),
        (&["mode", "shadow", "search", "serach"], "no limit is called `serach`; nothing was changed"),
        (&["mode", "search", "shadow"], "[possible values: enforce, shadow, off, frozen, policy]"),
        (&["mode", "off", "search", "--all"], "cannot be used with"),
        (&["mode", "--all"], "required"),
    ] {
        let server =
            CannedServer::answering(vec![("GET /v1/mode", modes("enforce")), ("GET /v1/limits", limits())]);
        let finished = tollgate(&server, arguments, &[]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
        assert!(server.requests().iter().all(|it| it.line.starts_with("GET")), "{arguments:?}");
    }
}

#[test]
fn a_reader_is_told_to_use_the_admin_token() {
    let server = CannedServer::answering(vec![
        ("GET /v1/mode", modes("enforce")),
        ("GET /v1/limits", limits()),
        ("PUT /v1/mode", problem("403 Forbidden", "this token may only read")),
    ]);
    let finished = tollgate(&server, &["mode", "off", "--all"], &[("TOLLGATE_TOKEN", "0123456789abcdef")]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("this token may only read"), "{}", finished.stderr);
    assert!(finished.stderr.contains("this needs the admin token"), "{}", finished.stderr);
}

#[test]
fn changes_are_listed_newest_first() {
    let change = |limit: Value, by: Value, reason: Value| {
        json!({"at": "2026-11-15T03:00:00Z", "what": "limit", "limit": limit,
        "from": "enforce", "to": "off", "reason": reason, "by": by, "role": "admin", "peer": "127.0.0.1"})
    };
    let changes = json!({"changes": [change(json!("search"), json!("ann"), json!("INC-1")), change(Value::Null, json!(""), json!(""))]});
    let server = CannedServer::answering(vec![("GET /v1/changes", ok(&changes))]);
    let finished = tollgate(&server, &["changes"], &[]);
    assert_eq!(
        finished.stdout,
        "  2026-11-15T03:00:00Z  search      enforce -> off  ann (127.0.0.1)       INC-1
  2026-11-15T03:00:00Z  everything  enforce -> off  somebody (127.0.0.1)\n"
    );
    let mut certified = changes.clone();
    for at in [0, 1] {
        certified["changes"][at]["certificate"] = json!("ops\u{1b}1");
    }
    let server = CannedServer::answering(vec![("GET /v1/changes", ok(&certified))]);
    let said = tollgate(&server, &["changes"], &[]).stdout;
    let who = ["  ann (ops\\u{1b}1, 127.0.0.1)  INC-1\n", "  ops\\u{1b}1 (127.0.0.1)\n"];
    assert!(who.iter().all(|it| said.contains(it)), "{said}");
    let server = CannedServer::answering(vec![("GET /v1/changes", ok(&changes))]);
    let finished = tollgate(&server, &["changes", "-n", "1", "--json"], &[]);
    assert_eq!(
        serde_json::from_str::<Value>(&finished.stdout).unwrap()["changes"].as_array().unwrap().len(),
        1
    );
    let server = CannedServer::answering(vec![("GET /v1/changes", ok(&json!({"changes": []})))]);
    assert_eq!(tollgate(&server, &["changes"], &[]).stdout, "nothing was switched yet\n");
}

#[test]
fn json_of_another_service_is_rejected() {
    for answer in [
        json!({"hello": "world"}),
        json!([]),
        json!({"allowed": true, "limits": []}),
        json!({"mode": 7, "limits": {}}),
    ] {
        for (arguments, path) in [
            (&["explain", "00c0ffee00c0ffee"][..], "GET /v1/decisions/00c0ffee00c0ffee"),
            (&["explain", "/"], "POST /v1/explain"),
            (&["mode", "--json"], "GET /v1/mode"),
            (&["mode", "off", "--all"], "GET /v1/mode"),
            (&["changes"], "GET /v1/changes"),
            (&["top", "--once"], "GET /v1/overview"),
            (&["top", "--json"], "GET /v1/overview"),
        ] {
            let server = CannedServer::answering(vec![(path, ok(&answer))]);
            let finished = tollgate(&server, arguments, &[]);
            assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?} {answer}");
            assert!(finished.stderr.contains("is not the API of a Tollgate"), "{}", finished.stderr);
        }
    }
    let done = ok(&json!({"ok": true}));
    let server = CannedServer::answering(vec![
        ("GET /v1/mode", modes("enforce")),
        ("GET /v1/limits", limits()),
        ("PUT /v1/mode", done),
    ]);
    let finished = tollgate(&server, &["mode", "off", "--all"], &[]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{}", finished.stderr);
}

#[test]
fn every_command_has_completions_and_help() {
    let server = CannedServer::answering(vec![]);
    for shell in ["bash", "zsh", "fish"] {
        let script = tollgate(&server, &["completions", shell], &[]).stdout;
        for word in ["explain", "changes", "mode", "top", "shadow", "reason"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    for (command, expected) in [
        ("explain", "tollgate explain [OPTIONS] [METHOD] PATH"),
        ("mode", "tollgate mode [OPTIONS] MODE LIMIT..."),
        ("changes", "--most <N>"),
        ("top", "--once"),
    ] {
        let help = tollgate(&server, &[command, "--help"], &[]).stdout;
        assert!(help.contains(expected) && help.contains("--ca <FILE>"), "{command}: {help}");
    }
}

#[test]
fn the_commands_work_with_a_real_server() {
    const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
    let policy = "limits:\n  - {name: search, by: global, bucket: 1/hour}\n";
    let server = Tollgate::start(BINARY, policy);
    let url = format!("http://{}", server.api);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).env_clear().env("TOLLGATE_API", &url).env("USER", "ann");
        let finished = ProgramOutput::of(command);
        assert_eq!(finished.stderr, "", "{arguments:?}");
        (finished.code, finished.stdout)
    };
    assert_eq!(run(&["check", "/x"]).0, Some(0));
    let (code, refused) = run(&["check", "/x", "--ip", "203.0.113.9", "--json"]);
    assert_eq!(code, Some(1), "{refused}");
    let refused: Value = serde_json::from_str(&refused).unwrap();

    let (code, why) = run(&["explain", refused["id"].as_str().unwrap()]);
    assert_eq!(code, Some(0), "{why}");
    assert!(
        why.starts_with("Refused by `search`") && why.contains("GET /x") && why.contains("\n    - "),
        "{why}"
    );
    let (code, why) = run(&["explain", "/x"]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("Nothing was spent"), "{why}");

    let (_, said) = run(&["mode", "shadow", "search", "--reason", "INC-1"]);
    assert!(said.starts_with("search: shadow now, was enforce; until the server restarts"), "{said}");
    assert_eq!(run(&["explain", "/x"]).0, Some(0));
    assert!(run(&["mode"]).1.contains("search  shadow"));
    let (_, journal) = run(&["changes"]);
    assert!(
        journal.contains("search") && journal.contains("ann (127.0.0.1)") && journal.contains("INC-1"),
        "{journal}"
    );
    assert!(run(&["mode", "policy", "--all"]).1.starts_with("search: enforce now, was shadow"));

    let (code, said) = run(&["top"]);
    assert_eq!(code, Some(0));
    assert!(said.contains(&format!("at {url}: enforcing")) && said.contains("1 refused"), "{said}");
    assert!(said.contains(refused["id"].as_str().unwrap()), "{said}");
}
