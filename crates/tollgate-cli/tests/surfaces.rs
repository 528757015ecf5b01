//! Envoy's rate limit service and the Redis protocol of the binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

pub(crate) mod grpc;
mod streams;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::process::Command;

use streams::Streams;
use tollgate_testkit::{ProgramOutput, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

const BOTH: &str = "limits: [{name: api, by: global, bucket: 3/hour}]\nlisten: {rls: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}\n";

fn shop(requests: u32) -> String {
    format!(
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {{unit: day, requests_per_unit: {requests}}}\n"
    )
}

fn curl(arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "20"]).args(arguments);
    ProgramOutput::of(command)
}

/// Sends a text to the Redis protocol, and returns all replies.
fn redis(address: SocketAddr, said: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{said}QUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the status of `/json` for a user, who spends one unit.
fn json(tollgate: &Tollgate, user: &str) -> String {
    let body =
        format!(r#"{{"domain":"shop","descriptors":[{{"entries":[{{"key":"user","value":"{user}"}}]}}]}}"#);
    let url = format!("http://{}/json", tollgate.api);
    curl(&["-o", "/dev/null", "-w", "%{http_code}", "-d", &body, &url]).stdout
}

fn wait_for_log(tollgate: &mut Tollgate, text: &str) {
    let log = tollgate.files.path().join("stderr.log");
    tollgate.program.wait_until(text, || fs::read_to_string(&log).unwrap_or_default().contains(text));
}

fn with_folder(folder: &Scratch) -> Tollgate {
    let path = folder.path().to_str().unwrap();
    Tollgate::start_with(BINARY, "limits: []\n", &["--envoy-config", path])
}

#[test]
fn both_are_served_printed_and_counted() {
    let mut tollgate = Tollgate::start(BINARY, BOTH);
    let (rls, resp) = (tollgate.rls.unwrap(), tollgate.resp.unwrap());
    let answer = redis(resp, "CL.THROTTLE user:1 15 30 60\r\n");
    assert_eq!(answer, "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n+OK\r\n");
    let throttle = r#"{"key":"user:1","max_burst":16,"count_per_period":30,"period":60}"#;
    let body = curl(&["-d", throttle, &format!("http://{}/throttle", tollgate.api)]).stdout;
    assert!(body.contains("\"remaining\":14,"), "one allowance, whichever way it is asked for: {body}");

    let empty = tollgate.files.path().join("empty");
    fs::write(&empty, [0; 5]).unwrap();
    let url = format!("http://{rls}/grpc.health.v1.Health/Check");
    let body = format!("@{}", empty.display());
    let head = ["-H", "content-type: application/grpc", "-H", "te: trailers", "-D", "-", "-o", "/dev/null"];
    let health =
        curl(&[&head[..], &["--http2-prior-knowledge", "--data-binary", &body, &url]].concat()).stdout;
    assert!(health.starts_with("HTTP/2 200") && health.contains("grpc-status: 0"), "{health}");

    let log = tollgate.log();
    assert!(log.contains(&format!("rls      {rls}, gRPC: Envoy's rate_limit_service\n")), "{log}");
    let try_it = format!("redis-cli -p {} CL.THROTTLE user:1 15 30 60\n", resp.port());
    assert!(log.contains(&format!("resp     {resp}: {try_it}")), "{log}");
    let metrics = curl(&[&format!("http://{}/metrics", tollgate.api)]).stdout;
    for name in ["tollgate_rls_", "tollgate_resp_"] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name} in {metrics}");
    }
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0));
}

#[test]
fn open_streams_do_not_delay_shutdown() {
    let mut tollgate = Tollgate::start(BINARY, BOTH);
    let streams = Streams::open(tollgate.rls.unwrap());
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0));
    assert!(!tollgate.log().contains("cut off"), "{}", tollgate.log());
    let [watched, talked] = streams.ended();
    assert_eq!((watched.body, watched.status.as_str()), (vec![0, 0, 0, 0, 2, 8, 2], "14"), "NOT_SERVING");
    assert_eq!((talked.body, talked.status.as_str()), (vec![], "0"));
}

#[test]
fn a_configured_password_is_required() {
    let files = Scratch::new();
    let password = files.write("password", "correct horse\n");
    let tollgate =
        Tollgate::start(BINARY, &format!("{BOTH}resp: {{password_file: {}}}\n", password.display()));
    let answer = redis(tollgate.resp.unwrap(), "CL.THROTTLE a 1 1 60\r\nAUTH wrong\r\n");
    assert!(answer.starts_with("-NOAUTH") && answer.contains("-WRONGPASS"), "{answer}");
    let said = "AUTH \"correct horse\"\r\nCL.THROTTLE a 1 1 60\r\n";
    assert!(redis(tollgate.resp.unwrap(), said).starts_with("+OK\r\n*5\r\n:0\r\n"), "{said}");
    assert!(!tollgate.log().contains("correct horse"));
}

#[test]
fn files_of_envoy_are_served_unchanged_and_watched() {
    let folder = Scratch::new();
    folder.write("shop.yaml", &shop(2));
    let mut tollgate = with_folder(&folder);
    assert_eq!([(); 3].map(|()| json(&tollgate, "ann")), ["200", "200", "429"]);

    folder.write("shop.yaml", &shop(5));
    wait_for_log(&mut tollgate, "changed for Envoy ");
    assert_eq!(json(&tollgate, "ann"), "200", "three were counted, of five now");

    folder.write("bad.yaml", "domain: bad\ndescriptors: [{kye: secret-of-the-file}]\n");
    wait_for_log(&mut tollgate, "not reloaded, the file has changed; the old policy stays in force");
    let ready = curl(&[&format!("http://{}/readyz", tollgate.api)]).stdout;
    assert!(ready.contains("bad.yaml:2") && ready.contains("did you mean `key`?"), "{ready}");
    assert!(!ready.contains("secret-of-the-file"), "{ready}");
    assert_eq!(json(&tollgate, "ann"), "200");

    fs::remove_file(folder.path().join("bad.yaml")).unwrap();
    folder.write("other.yml", "domain: other\ndescriptors: []\n");
    wait_for_log(&mut tollgate, "other.yml (new)");
    let ready = curl(&[&format!("http://{}/readyz", tollgate.api)]).stdout;
    assert!(ready.contains("\"reload_error\":null"), "{ready}");
}

#[test]
fn a_config_map_that_is_swapped_is_noticed() {
    let folder = Scratch::new();
    for (data, requests) in [("..one", 1), ("..two", 3)] {
        fs::create_dir(folder.path().join(data)).unwrap();
        folder.write(&format!("{data}/shop.yaml"), &shop(requests));
    }
    symlink("..one", folder.path().join("..data")).unwrap();
    symlink("..data/shop.yaml", folder.path().join("shop.yaml")).unwrap();
    let mut tollgate = with_folder(&folder);
    assert_eq!([(); 2].map(|()| json(&tollgate, "ann")), ["200", "429"]);
    symlink("..two", folder.path().join("..swapped")).unwrap();
    fs::rename(folder.path().join("..swapped"), folder.path().join("..data")).unwrap();
    wait_for_log(&mut tollgate, "changed for Envoy ");
    assert_eq!([(); 2].map(|()| json(&tollgate, "ann")), ["200", "429"], "two of three were counted");
}

#[test]
fn changed_settings_of_both_are_reported_as_needing_a_restart() {
    let mut tollgate = Tollgate::start(BINARY, BOTH);
    let changed =
        format!("{BOTH}rls: {{headers: off, envoy_config: /nowhere}}\nresp: {{password_file: none}}\n");
    tollgate.files.write("tollgate.yaml", &changed);
    wait_for_log(&mut tollgate, "cannot read none: there is no such file");
    tollgate.files.write("tollgate.yaml", &format!("{BOTH}rls: {{headers: off, envoy_config: /nowhere}}\n"));
    wait_for_log(&mut tollgate, "changed, and takes a restart: rls");
}
