//! A running server: start, reload and shutdown.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use serde_json::{Value, json};
use tollgate_testkit::{Program, ProgramOutput, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// These listeners have fixed default ports.
const QUIET: [&str; 4] = ["--listen-rls", "off", "--listen-resp", "off"];

const POLICY: &str = "limits:\n  - {name: api, by: global, bucket: 3/hour}\n";

/// Sends one request, and reads its response to the end.
fn ask(address: SocketAddr, request: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), body.unwrap_or_default())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path}"), "", "")
}

fn readiness(tollgate: &Tollgate) -> (u16, Value) {
    let (status, body) = get(tollgate.api, "/readyz");
    (status, serde_json::from_str(&body).unwrap())
}

/// Waits until the log contains the text.
fn wait_for_log(tollgate: &mut Tollgate, text: &str) {
    let log = tollgate.files.path().join("stderr.log");
    let said = || fs::read_to_string(&log).unwrap_or_default().contains(text);
    tollgate.program.wait_until(text, said);
}

fn stop(mut tollgate: Tollgate) -> Option<i32> {
    tollgate.program.signal("TERM");
    tollgate.program.wait().code()
}

/// Runs `tollgate serve`, which is expected to exit.
fn refused(arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(BINARY);
    command.arg("serve").args(QUIET).args(arguments).env_clear();
    ProgramOutput::of(command)
}

#[test]
fn without_a_file_the_sample_is_served_with_commands_to_try() {
    let files = Scratch::new();
    let (ready, log) = (files.path().join("ready.json"), files.path().join("log"));
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen-gateway", "127.0.0.1:0", "--listen-api", "127.0.0.1:0", "--ready-file"]);
    command.arg(&ready).args(QUIET).env_clear().stderr(Stdio::from(fs::File::create(&log).unwrap()));
    let mut program = Program::start(command);
    program.wait_until("ready file", || ready.exists());

    let written = fs::read_to_string(&ready).unwrap();
    let addresses: Value = serde_json::from_str(&written).unwrap();
    let address = |name: &str| -> SocketAddr { addresses[name].as_str().unwrap().parse().unwrap() };
    let (gateway, api) = (address("gateway"), address("api"));
    assert_eq!(
        written,
        format!(
            "{{\"gateway\":\"{gateway}\",\"api\":\"{api}\",\"rls\":null,\"resp\":null,\
             \"gateway_url\":\"http://{gateway}\",\"api_url\":\"http://{api}\"}}\n"
        )
    );

    let statuses: Vec<_> = (0..6).map(|_| get(gateway, "/api/v1/search").0).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let said = fs::read_to_string(&log).unwrap();
    for expected in [
        format!("gateway  http://{gateway} to a built-in demo"),
        format!("api      http://{api}"),
        format!("page     open http://{api}/ in a browser"),
        "7 limits in force".to_owned(),
        format!("curl -i http://{gateway}/api/v1/search"),
        format!("curl -s http://{api}/v1/check -d "),
        format!("tollgate peek demo-search 127.0.0.1 --api http://{api}"),
    ] {
        assert!(said.contains(&expected), "{expected} in:\n{said}");
    }
    program.signal("TERM");
    assert_eq!(program.wait().code(), Some(0));
    assert!(!ready.exists(), "the ready file goes with the server");
}

#[test]
fn sigint_stops_the_server() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    tollgate.program.signal("INT");
    assert_eq!(tollgate.program.wait().code(), Some(0));
}

#[test]
fn a_listener_that_is_off_is_not_opened() {
    let tollgate = Tollgate::start_with(BINARY, POLICY, &["--set", "listen.gateway=off"]);
    let ready = fs::read_to_string(tollgate.files.path().join("ready.json")).unwrap();
    assert!(ready.starts_with("{\"gateway\":null,\"api\":\"127.0.0.1:"), "{ready}");
    assert_eq!(get(tollgate.api, "/healthz").0, 200);
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn a_changed_file_takes_effect_and_keeps_the_counts() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    let spent: Vec<_> = (0..4).map(|_| get(tollgate.gateway, "/").0).collect();
    assert_eq!(spent, [200, 200, 200, 429]);
    tollgate.files.write(
        "tollgate.yaml",
        "limits:\n  - {name: api, by: global, bucket: 6/hour}\n  - {name: new, by: ip, bucket: 9/hour}\n",
    );
    wait_for_log(&mut tollgate, "the file has changed: added new; changed api");
    // At most half of the new amount is left, because half of the old one was: no key starts over.
    let after: Vec<_> = (0..4).map(|_| get(tollgate.gateway, "/").0).collect();
    assert_eq!(after, [200, 200, 200, 429], "three of six were spent before");
    let (status, body) = readiness(&tollgate);
    assert_eq!((status, &body["policy_version"], &body["reload_error"]), (200, &json!(2), &Value::Null));
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn sighup_reloads_at_once() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    tollgate.program.signal("HUP");
    wait_for_log(&mut tollgate, "on SIGHUP: nothing is different");
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported_until_corrected() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    tollgate.files.write("tollgate.yaml", "limits:\n  - {name: api, by: global, bucket: 9/minuet}\n");
    wait_for_log(&mut tollgate, "not reloaded, the file has changed; the old policy stays in force");
    wait_for_log(&mut tollgate, "did you mean `minute`?");
    let (status, body) = readiness(&tollgate);
    assert_eq!((status, &body["policy_version"]), (200, &json!(1)));
    let error = body["reload_error"].as_str().unwrap();
    assert!(error.contains("tollgate.yaml:2:") && error.contains("did you mean `minute`?"), "{error}");
    let statuses: Vec<_> = (0..4).map(|_| get(tollgate.gateway, "/").0).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);

    tollgate.files.write("tollgate.yaml", POLICY);
    wait_for_log(&mut tollgate, "the file has changed: nothing is different");
    let (_, body) = readiness(&tollgate);
    assert_eq!((&body["policy_version"], &body["reload_error"]), (&json!(2), &Value::Null));
    assert_eq!(get(tollgate.gateway, "/").0, 429, "earlier usage still counts");
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn the_error_of_an_invalid_file_shows_no_keys() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    tollgate.files.write(
        "tollgate.yaml",
        "limits:\n  - {name: api, by: api_key, bucket: 3/hour, overrides: {sk-live-51HzQ: 9/minuet}}\nallow: [sk-live-99QzH]\n",
    );
    wait_for_log(&mut tollgate, "not reloaded");
    wait_for_log(&mut tollgate, "tollgate.yaml:2:");
    let error = readiness(&tollgate).1["reload_error"].to_string();
    assert!(error.contains("tollgate.yaml:2:") && error.contains("tollgate.yaml:3:"), "{error}");
    for said in [error, tollgate.log()] {
        assert!(!said.contains("sk-live"), "{said}");
    }
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn a_pipe_in_place_of_the_file_does_not_block_signals() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    let file = tollgate.files.path().join("tollgate.yaml");
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    tollgate.program.signal("HUP");
    wait_for_log(&mut tollgate, "it is a pipe or a device");
    assert_eq!(get(tollgate.gateway, "/").0, 200);
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn the_start_accepts_a_pipe() {
    let files = Scratch::new();
    let (pipe, ready) = (files.path().join("pipe"), files.path().join("ready.json"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen-gateway", "off", "--listen-api", "127.0.0.1:0", "--config"]).arg(&pipe);
    command.arg("--ready-file").arg(&ready).args(QUIET).env_clear().stderr(Stdio::null());
    let mut program = Program::start(command);
    let writer = thread::spawn(move || fs::write(pipe, POLICY).unwrap());
    program.wait_until("ready file", || ready.exists());
    writer.join().unwrap();
    program.signal("TERM");
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn a_leftover_ready_file_is_removed_before_listening() {
    let (files, taken) = (Scratch::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let ready = files.write("ready.json", "{}");
    let address = taken.local_addr().unwrap().to_string();
    let finished = refused(&["--listen-api", &address, "--ready-file", ready.to_str().unwrap()]);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(!ready.exists(), "it would report that a server is ready");
}

#[test]
fn an_address_in_brackets_is_not_a_list() {
    for arguments in [["--listen-api", "[::1]:0"], ["--set", "listen.api=[::1]:0"]] {
        let files = Scratch::new();
        let ready = files.path().join("ready.json");
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen-gateway", "off"]).args(arguments).arg("--ready-file").arg(&ready);
        command.args(QUIET).env_clear().stderr(Stdio::null());
        let mut program = Program::start(command);
        program.wait_until("ready file", || ready.exists());
        let said = fs::read_to_string(&ready).unwrap();
        assert!(said.contains("\"api\":\"[::1]:"), "{arguments:?}: {said}");
        program.signal("TERM");
        assert_eq!(program.wait().code(), Some(0));
    }
}

#[test]
fn a_deleted_file_is_reported_and_reloaded_when_restored() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    fs::remove_file(tollgate.files.path().join("tollgate.yaml")).unwrap();
    wait_for_log(&mut tollgate, "there is no such file");
    assert_eq!(get(tollgate.gateway, "/").0, 200);
    let error = readiness(&tollgate).1["reload_error"].clone();
    assert!(error.as_str().is_some_and(|it| it.contains("there is no such file")), "{error}");
    tollgate.files.write("tollgate.yaml", "limits:\n  - {name: api, by: global, bucket: 1/hour}\n");
    wait_for_log(&mut tollgate, "the file has changed: changed api");
    assert_eq!(readiness(&tollgate).1["reload_error"], Value::Null);
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn a_setting_that_takes_a_restart_is_named() {
    let mut tollgate = Tollgate::start(BINARY, POLICY);
    let changed =
        format!("{POLICY}max_keys: 5\nlog: {{level: debug}}\ngateway: {{upstream: http://127.0.0.1:1}}\n");
    tollgate.files.write("tollgate.yaml", &changed);
    wait_for_log(&mut tollgate, "changed, and takes a restart: log, gateway, max_keys");
    assert_eq!(get(tollgate.gateway, "/").0, 200, "the demo still answers");
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn flags_override_the_file_after_a_reload() {
    let limits = "limits=[{name: typed, by: global, bucket: 1/hour}]";
    let mut tollgate = Tollgate::start_with(BINARY, POLICY, &["--set", limits]);
    tollgate.files.write("tollgate.yaml", "limits:\n  - {name: api, by: global, bucket: 9/hour}\n");
    wait_for_log(&mut tollgate, "the file has changed: nothing is different");
    let statuses: Vec<_> = (0..2).map(|_| get(tollgate.gateway, "/").0).collect();
    assert_eq!(statuses, [200, 429]);
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for setting in ["listen.gateway", "listen.api"] {
        let other = if setting == "listen.api" { "listen.gateway" } else { "listen.api" };
        let (taken, free) = (format!("{setting}={address}"), format!("{other}=127.0.0.1:0"));
        let said = refused(&["--set", &taken, "--set", &free]);
        let expected = format!(
            "error: {address} is in use by another program\n  = help: stop that program, or choose another with --set {setting}=HOST:PORT; port 0 is any free one\n"
        );
        assert_eq!((said.code, said.stderr), (Some(2), expected));
    }
}

#[test]
fn an_unwritable_ready_file_is_reported() {
    let files = Scratch::new();
    let ready = files.path().join("nowhere/ready.json");
    let free = ["--set", "listen.gateway=127.0.0.1:0", "--set", "listen.api=127.0.0.1:0"];
    let arguments: Vec<_> = free.into_iter().chain(["--ready-file", ready.to_str().unwrap()]).collect();
    let said = refused(&arguments);
    assert_eq!(said.code, Some(2));
    assert!(
        said.stderr.contains(&format!("error: cannot write the ready file {}: ", ready.display())),
        "{}",
        said.stderr
    );
}

#[test]
fn a_token_is_required_and_the_commands_send_it() {
    const TOKEN: &str = "0123456789abcdef";
    let files = Scratch::new();
    let token = files.write("token", &format!("{TOKEN}\n"));
    let set = format!("admin.token_file={}", token.display());
    let tollgate = Tollgate::start_with(BINARY, POLICY, &["--set", &set]);
    let api = format!("http://{}", tollgate.api);
    let run = |token: &str| {
        let mut command = Command::new(BINARY);
        command.args(["peek", "api", "--api", &api]).env_clear().env("TOLLGATE_TOKEN", token);
        ProgramOutput::of(command)
    };
    let without = run("");
    assert_eq!(without.code, Some(2));
    assert!(without.stderr.contains("set TOLLGATE_TOKEN"), "{}", without.stderr);
    let with = run(TOKEN);
    assert_eq!((with.code, with.stderr.as_str()), (Some(0), ""));
    assert!(with.stdout.contains("3 of 3 left"), "{}", with.stdout);
    assert!(!tollgate.log().contains(TOKEN), "a token is never logged");
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn the_commands_work_with_the_server() {
    let tollgate = Tollgate::start(BINARY, "limits:\n  - {name: api, by: [tenant, user], bucket: 2/hour}\n");
    let api = format!("http://{}", tollgate.api);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).env_clear().env("TOLLGATE_API", &api);
        let ProgramOutput { code, stdout, stderr } = ProgramOutput::of(command);
        (code, stdout.lines().next().unwrap_or_default().to_owned(), stderr)
    };
    let check = &["check", "/", "--tenant", "acme", "--user", "ann"];
    let fine = |first: &str| (Some(0), first.to_owned(), String::new());
    assert_eq!(run(check), fine("allowed"));
    assert_eq!(run(check), fine("allowed"));
    let refused = run(check);
    assert_eq!(refused.0, Some(1));
    assert!(refused.1.starts_with("refused by api: come back in "), "{refused:?}");
    for (arguments, first) in [
        (&["grant", "api", "acme", "ann"][..], "granted: 1 of 2 left, "),
        (&["refund", "api", "acme", "ann", "--cost", "900"], "given back: 2 of 2 left"),
        (&["reset", "api", "acme", "ann"], "begins anew: 2 of 2 left"),
    ] {
        let output = run(arguments);
        assert_eq!((output.0, &*output.2), (Some(0), ""), "{output:?}");
        assert!(output.1.starts_with(first), "{output:?}");
    }
    assert!(run(&["peek", "api", "acme", "ann"]).1.ends_with("2 of 2 left"));
    let wrong = run(&["peek", "apj", "x"]);
    assert_eq!(wrong.0, Some(2));
    assert!(wrong.2.contains("did you mean `api`?"), "{wrong:?}");
    for (typed, help) in [
        (&["grant", "api", "acme", "ann", "2"][..], "tollgate grant api acme ann --cost 2"),
        (&["refund", "api", "acme", "ann", "2"], "tollgate refund api acme ann --cost 2"),
        (&["mode", "shadow", "typo", "--yes"], "there is only `api`"),
        (&["mode", "shadow", "apj", "--yes"], "did you mean `api`?"),
    ] {
        let wrong = run(typed);
        assert_eq!(wrong.0, Some(2), "{typed:?}: {wrong:?}");
        assert!(wrong.2.contains(help), "{typed:?}: {wrong:?}");
    }
    // A numeric key is not an amount.
    let unknown = run(&["grant", "api", "acme", "ann", "x7"]);
    assert!(unknown.0 == Some(2) && !unknown.2.contains("--cost"), "{unknown:?}");
    assert_eq!(stop(tollgate), Some(0));
}

#[test]
fn every_line_of_a_json_log_is_json() {
    let config = format!("{POLICY}log: {{format: json}}\nlisten: {{rls: \"127.0.0.1:0\"}}\n");
    let mut tollgate = Tollgate::start(BINARY, &config);
    tollgate.files.write("tollgate.yaml", "nonsense");
    wait_for_log(&mut tollgate, "not reloaded");
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0));
    let log = tollgate.log();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(event["message"].is_string() && event["level"].is_string(), "{line}");
    }
    assert!(log.lines().count() >= 4, "{log}");
    let rls = format!("\"rls\":\"{}\"", tollgate.rls.unwrap());
    assert!(log.lines().next().is_some_and(|it| it.contains(&rls)), "{log}");
}

/// An upstream that takes one request, reports it, and responds on command.
fn slow_upstream() -> (String, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("gateway.upstream=http://{}", listener.local_addr().unwrap());
    let ((received, has_received), (answer, may_answer)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        received.send(()).unwrap();
        if may_answer.recv().is_ok() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
        }
    });
    (url, has_received, answer)
}

#[test]
fn shutdown_waits_for_running_requests() {
    let (upstream, has_received, answer) = slow_upstream();
    let mut tollgate = Tollgate::start_with(BINARY, POLICY, &["--set", &upstream]);
    let gateway = tollgate.gateway;
    let client = thread::spawn(move || get(gateway, "/"));
    has_received.recv().unwrap();
    tollgate.program.signal("TERM");
    wait_for_log(&mut tollgate, "SIGTERM: finishing what runs");
    answer.send(()).unwrap();
    assert_eq!(client.join().unwrap(), (200, "done".to_owned()));
    assert_eq!(tollgate.program.wait().code(), Some(0));
    assert!(tollgate.log().contains("all done"), "{}", tollgate.log());
}

#[test]
fn a_second_signal_exits_at_once() {
    let (upstream, has_received, _never) = slow_upstream();
    let mut tollgate = Tollgate::start_with(BINARY, POLICY, &["--set", &upstream]);
    let mut client = TcpStream::connect(tollgate.gateway).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    has_received.recv().unwrap();
    tollgate.program.signal("TERM");
    wait_for_log(&mut tollgate, "SIGTERM: finishing what runs");
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0));
    assert!(tollgate.log().contains("SIGTERM again: ending at once"), "{}", tollgate.log());
}

#[test]
fn requests_beyond_the_drain_timeout_are_cut_off() {
    let (upstream, has_received, _never) = slow_upstream();
    let patience = "gateway.timeouts.drain=50ms";
    let mut tollgate = Tollgate::start_with(BINARY, POLICY, &["--set", &upstream, "--set", patience]);
    let mut client = TcpStream::connect(tollgate.gateway).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    has_received.recv().unwrap();
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0));
    assert!(tollgate.log().contains("were cut off"), "{}", tollgate.log());
    assert!(!tollgate.log().contains("all done"), "{}", tollgate.log());
}
