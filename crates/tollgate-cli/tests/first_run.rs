//! `init`, `limits` and `doctor`, through the binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_testkit::{ProgramOutput, Redis, Scratch, Tollgate};

use crate::canned::{CannedServer, ok};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const PURPOSES: [&str; 4] = ["gateway", "envoy", "nginx", "library"];

fn run(folder: &Path, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(BINARY);
    command.current_dir(folder).args(arguments).env_clear().stdin(Stdio::null());
    ProgramOutput::of(command)
}

#[test]
fn init_writes_a_policy_without_lints_for_every_purpose() {
    for purpose in PURPOSES {
        let files = Scratch::new();
        let finished = run(files.path(), &["init", "--for", purpose]);
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{purpose}");
        assert!(finished.stdout.starts_with("policy.yaml is written"), "{}", finished.stdout);
        let validated = run(files.path(), &["validate", "--strict", "policy.yaml"]);
        assert_eq!((validated.code, validated.stderr.as_str()), (Some(0), ""), "{purpose}");
        let policy = fs::read_to_string(files.path().join("policy.yaml")).unwrap();
        assert!(policy.lines().filter(|line| line.trim_start().starts_with('#')).count() > 8, "{purpose}");
    }
}

#[test]
fn init_never_overwrites_a_file() {
    let files = Scratch::new();
    files.write("mine.yaml", "limits: []\n");
    for arguments in [&["init", "mine.yaml", "--for", "gateway"][..], &["init", "mine.yaml"]] {
        let finished = run(files.path(), arguments);
        assert_eq!(finished.code, Some(2));
        assert!(finished.stderr.contains("mine.yaml is there already"), "{}", finished.stderr);
    }
    assert_eq!(fs::read_to_string(files.path().join("mine.yaml")).unwrap(), "limits: []\n");
}

#[test]
fn init_without_a_terminal_needs_the_purpose() {
    let files = Scratch::new();
    let finished = run(files.path(), &["init"]);
    assert_eq!(finished.code, Some(2));
    assert!(
        finished.stderr.contains("tollgate init --for gateway; or envoy, nginx, library"),
        "{}",
        finished.stderr
    );
    assert!(!files.path().join("policy.yaml").exists());
    let nowhere = run(files.path(), &["init", "--for", "nginx", "no/such/policy.yaml"]);
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.stderr.contains("there is no such directory"), "{}", nowhere.stderr);
}

#[test]
fn init_asks_on_a_terminal() {
    for (typed, expected) in [("\n", "gateway:"), ("7\nenvoy\n", "descriptor:"), ("3\n", "auth_request")] {
        let files = Scratch::new();
        let (mut controller, terminal) = terminal();
        let mut command = Command::new(BINARY);
        command.current_dir(files.path()).arg("init").env_clear();
        command.stdin(terminal).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.spawn().unwrap();
        controller.write_all(typed.as_bytes()).unwrap();
        let finished = program.wait_with_output().unwrap();
        let said = String::from_utf8(finished.stdout).unwrap();
        assert!(finished.status.success() && said.contains("What is the policy for?"), "{said}");
        assert_eq!(said.contains("Please answer"), typed.starts_with('7'), "{said}");
        let policy = fs::read_to_string(files.path().join("policy.yaml")).unwrap();
        assert!(policy.contains(expected), "{policy}");
    }
}

/// Returns both ends of a terminal.
fn terminal() -> (fs::File, fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (fs::File::from(controller), terminal)
}

#[test]
fn a_policy_of_init_refuses_the_eleventh_search() {
    let files = Scratch::new();
    run(files.path(), &["init", "--for", "gateway"]);
    let policy = fs::read_to_string(files.path().join("policy.yaml")).unwrap();
    let server = Tollgate::start(BINARY, &policy);
    let status = || {
        let mut stream = std::net::TcpStream::connect(server.gateway).unwrap();
        stream.write_all(b"GET /search HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer[9..12].to_owned()
    };
    let statuses: Vec<_> = (0..11).map(|_| status()).collect();
    assert!(statuses[..10].iter().all(|it| it != "429") && statuses[10] == "429", "{statuses:?}");
}

#[test]
fn limits_lists_what_a_running_server_enforces() {
    let policy = "\
limits:
  - {name: login, endpoint: /login, method: POST, by: ip, bucket: 10/minute}
  - {name: exports, endpoint: /exports, by: [tenant, user], windows: [2/second, 100/day], mode: shadow}
";
    let server = Tollgate::start(BINARY, policy);
    let api = format!("http://{}", server.api);
    let listed = run(server.files.path(), &["limits", "--api", &api]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    let lines: Vec<_> = listed.stdout.lines().collect();
    assert!(lines[0].starts_with("  login    POST /login  by ip"), "{}", listed.stdout);
    assert!(lines[0].ends_with("enforce") && lines[1].ends_with("shadow"), "{}", listed.stdout);
    assert!(lines[1].contains("by tenant and user"), "{}", listed.stdout);
    run(server.files.path(), &["mode", "shadow", "login", "--yes", "--api", &api]);
    let listed = run(server.files.path(), &["limits", "--api", &api]);
    assert!(listed.stdout.contains("shadow, switched; the policy says enforce"), "{}", listed.stdout);
    let json = run(server.files.path(), &["limits", "--json", "--api", &api]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["limits"][1]["name"], "exports");
}

#[test]
fn limits_of_an_empty_policy_and_hostile_names_are_printable() {
    let limit = json!({"name": "a\u{1b}b", "mode": "enforce", "policy_mode": "enforce", "by": ["ip"], "algorithm": "gcra"});
    for (limits, expected) in
        [(json!([]), "no limits: every request is admitted\n"), (json!([limit]), "a\\u{1b}b")]
    {
        let server = CannedServer::answering(vec![("GET /v1/limits", ok(&json!({ "limits": limits })))]);
        let listed = run(Path::new("/"), &["limits", "--api", server.url()]);
        assert!(listed.stdout.contains(expected), "{} {}", listed.stdout, listed.stderr);
    }
}

#[test]
fn health_is_the_readiness_of_the_server() {
    let server = Tollgate::start(BINARY, "limits:\n  - {name: a, by: global, bucket: 1/hour}\n");
    let api = format!("http://{}", server.api);
    let ready = run(Path::new("/"), &["health", "--api", &api]);
    assert_eq!(
        (ready.code, ready.stdout.as_str()),
        (Some(0), "ready, policy version 1\n"),
        "{}",
        ready.stderr
    );
    drop(server);
    assert_eq!(run(Path::new("/"), &["health", "--api", &api]).code, Some(2));
    let draining = CannedServer::answering(vec![(
        "GET /readyz",
        crate::canned::problem("503 Service Unavailable", "it ends"),
    )]);
    assert_eq!(run(Path::new("/"), &["health", "--api", draining.url()]).code, Some(2));
}

fn findings(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let finished = run(Path::new("/"), &[&["doctor", "--json"], arguments].concat());
    let found: Value = serde_json::from_str(&finished.stdout).expect(&finished.stderr);
    (finished.code, found["findings"].as_array().unwrap().clone())
}

fn find<'f>(findings: &'f [Value], words: &str) -> &'f Value {
    let found = findings.iter().find(|it| it["message"].as_str().unwrap().contains(words));
    found.unwrap_or_else(|| panic!("{words}: {findings:?}"))
}

const FREE: [&str; 2] = ["--set", "listen={gateway: 127.0.0.1:0, api: 127.0.0.1:0, rls: off, resp: off}"];

#[test]
fn doctor_finds_no_problem_in_a_usual_set_up() {
    let (code, found) = findings(&FREE);
    assert_eq!(code, Some(0), "{found:?}");
    assert_eq!(find(&found, "the sample policy")["severity"], "ok");
    assert_eq!(find(&found, "127.0.0.1:0 is free (listen.gateway)")["severity"], "ok");
    assert_eq!(find(&found, "memory: each node counts on its own")["severity"], "ok");
    let client = find(&found, "by client address, and no proxy is trusted");
    assert_eq!((&client["topic"], &client["severity"]), (&json!("client"), &json!("note")));
    assert!(client["help"].as_str().unwrap().contains("trusted_proxies"), "{client}");
    for topic in ["clock", "files"] {
        assert!(found.iter().any(|it| it["topic"] == topic), "{topic}: {found:?}");
    }
    let (_, found) = findings(&[&FREE[..], &["--set", "client={trusted_proxies: [10.0.0.0/8]}"]].concat());
    assert_eq!(find(&found, "client addresses are read from 10.0.0.0/8")["severity"], "ok");
}

#[test]
fn doctor_reports_a_port_in_use_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let set = format!("listen.gateway={}", taken.local_addr().unwrap());
    let finished = run(Path::new("/"), &[&["doctor"], &FREE[..], &["--set", &set]].concat());
    assert_eq!(finished.code, Some(1), "{}", finished.stdout);
    assert!(finished.stdout.contains("PROBLEM  listen "), "{}", finished.stdout);
    assert!(finished.stdout.contains("= help: stop that program, or choose another"), "{}", finished.stdout);
    assert!(finished.stdout.contains("\n1 problem, "), "{}", finished.stdout);
}

#[test]
fn doctor_recognizes_the_running_server() {
    let server = Tollgate::start(BINARY, "limits:\n  - {name: a, by: global, bucket: 1/hour}\n");
    let (gateway, api) = (server.gateway, server.api);
    let set = format!("listen={{gateway: \"{gateway}\", api: \"{api}\", rls: off, resp: off}}");
    let (code, found) = findings(&["--set", &set]);
    assert_eq!(code, Some(0), "{found:?}");
    assert_eq!(find(&found, "as a Tollgate runs here already (listen.api)")["severity"], "note");
}

#[test]
fn doctor_reports_the_eviction_policy_of_redis() {
    for (policy, memory, severity) in
        [("noeviction", "0", "ok"), ("allkeys-lru", "0", "note"), ("allkeys-lru", "100mb", "warning")]
    {
        let redis = Redis::start_with(&["--maxmemory", memory, "--maxmemory-policy", policy]);
        let set = format!("store={}", redis.url());
        let (code, found) = findings(&[&FREE[..], &["--set", &set]].concat());
        assert_eq!(code, Some(0), "{found:?}");
        assert!(find(&found, " answers in ")["message"].as_str().unwrap().starts_with("Redis "));
        assert_eq!(find(&found, &format!("maxmemory-policy is {policy}"))["severity"], severity);
    }
}

#[test]
fn doctor_reports_a_store_that_does_not_answer_and_an_invalid_policy() {
    let port = tollgate_testkit::free_port();
    let set = format!("store=redis://127.0.0.1:{port}");
    let (code, found) = findings(&[&FREE[..], &["--set", &set]].concat());
    assert_eq!(code, Some(1));
    let store = found.iter().find(|it| it["topic"] == "store").unwrap();
    assert_eq!(store["severity"], "problem");
    assert!(store["help"].as_str().unwrap().contains("on_outage"), "{store}");
    let files = Scratch::new();
    let policy = files.write("policy.yaml", "limits:\n  - {by: ip, bucket: 5/minuet}\n");
    let (code, found) = findings(&["--config", policy.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(find(&found, "did you mean `minute`?")["message"].as_str().unwrap().contains("policy.yaml:2:"));
}

#[test]
fn the_commands_of_a_first_run_have_help_and_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(Path::new("/"), &["completions", shell]).stdout;
        for word in ["init", "limits", "doctor"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    for (command, expected) in
        [("init", "tollgate init --for gateway"), ("limits", "--ca <FILE>"), ("doctor", "--config <FILE>")]
    {
        let help = run(Path::new("/"), &[command, "--help"]).stdout;
        assert!(help.contains(expected), "{command}: {help}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = Scratch::new();
    let path = folder.path().to_str().unwrap();
    let finished = run(Path::new("/"), &["man", "--dir", path]);
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(0), "", ""));
    let help = run(Path::new("/"), &["--help"]).stdout;
    let commands = help.lines().skip_while(|it| *it != "Commands:").skip(1).take_while(|it| !it.is_empty());
    let names =
        commands.filter_map(|it| it.strip_prefix("  ")?.split(' ').next().filter(|it| !it.is_empty()));
    let names: Vec<_> = names.filter(|it| *it != "help").collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let page = fs::read_to_string(folder.path().join(format!("tollgate-{name}.1"))).expect(name);
        assert!(page.contains(&format!(".TH tollgate-{name} 1")), "{page}");
    }
    let main = run(Path::new("/"), &["man"]).stdout;
    assert!(main.contains(".SH SUBCOMMANDS") && main.contains("tollgate\\-doctor(1)"), "{main}");
    assert_eq!(fs::read_to_string(folder.path().join("tollgate.1")).unwrap(), main);
    let nowhere = run(Path::new("/"), &["man", "--dir", "/no/such"]);
    assert!(nowhere.stderr.contains("there is no such directory"), "{}", nowhere.stderr);
}

#[test]
fn systemd_hears_when_the_service_is_ready_alive_reloading_and_stopping() {
    let files = Scratch::new();
    let socket = std::os::unix::net::UnixDatagram::bind(files.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    files.write("policy.yaml", "limits:\n  - {name: a, by: global, bucket: 1/hour}\n");
    let mut command = Command::new(BINARY);
    command.current_dir(files.path()).args(["serve", "--config", "policy.yaml"]).args(FREE).env_clear();
    command.env("NOTIFY_SOCKET", files.path().join("notify")).env("WATCHDOG_USEC", "300000");
    command.stderr(Stdio::null());
    let mut program = tollgate_testkit::Program::start(command);
    let hear = |expected: &str| {
        let mut message = [0; 1024];
        loop {
            let length = socket.recv(&mut message).expect(expected);
            let said = String::from_utf8_lossy(&message[..length]).into_owned();
            if said.lines().any(|line| line == expected) {
                return said;
            }
        }
    };
    assert!(hear("READY=1").contains("STATUS=serving 1 limit"));
    hear("WATCHDOG=1");
    program.signal("HUP");
    assert!(hear("RELOADING=1").contains("MONOTONIC_USEC="));
    hear("READY=1");
    files.write("policy.yaml", "limits: 7\n");
    program.signal("HUP");
    hear("RELOADING=1");
    assert!(hear("READY=1").contains("the last reload was rejected"));
    program.signal("TERM");
    hear("STOPPING=1");
    assert_eq!(program.wait().code(), Some(0));
}
