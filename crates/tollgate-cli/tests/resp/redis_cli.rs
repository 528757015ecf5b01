//! redis-cli.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::{PASSWORD, Server};

fn redis_cli(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.address.port().to_string()]).args(arguments).stdin(Stdio::null());
    command
}

/// Checks its non-interactive output: the bare values, one per line.
#[track_caller]
fn check(server: &Server, arguments: &[&str], expected: &str) {
    let output = redis_cli(server, arguments).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(said.trim_end().replace('\n', " "), expected, "{arguments:?}");
}

#[test]
fn every_command_is_answered_in_both_protocols() {
    let server = Server::open();
    for version in ["-2", "-3"] {
        let key = format!("ann{version}");
        check(&server, &[version, "ping"], "PONG");
        check(&server, &[version, "cl.throttle", &key, "15", "30", "60"], "0 16 15 -1 2");
        check(&server, &[version, "THROTTLE", &format!("bob{version}"), "15", "30", "60"], "1 15 14 2 0");
        check(&server, &[version, "GCRA", &format!("cid{version}"), "15", "30", "60"], "0 16 15 -1 2");
        check(&server, &[version, "TG.PEEK", "per-user", &key], "0 5 5 -1 0");
        check(
            &server,
            &[version, "FLY", "away"],
            "ERR unknown command 'FLY', with args beginning with: 'away'",
        );
    }
}

#[test]
fn a_password_is_required() {
    let server = Server::locked();
    check(&server, &["ping"], "NOAUTH Authentication required.");
    check(&server, &["--no-auth-warning", "-a", PASSWORD, "ping"], "PONG");
    let refused = "AUTH failed: WRONGPASS invalid username-password pair or user is disabled. \
                   NOAUTH Authentication required.";
    let output = redis_cli(&server, &["--no-auth-warning", "-a", "open barley", "ping"]).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    assert_eq!(format!("{} {}", said(&output.stderr), said(&output.stdout)), refused);
}

/// It reads commands from its input, queries the commands of the server (`COMMAND DOCS`), and
/// reconnects after a restart.
#[test]
fn a_session_goes_on_after_a_restart() {
    let mut server = Server::open();
    let mut command = redis_cli(&server, &[]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut tell = client.stdin.take().unwrap();
    // The first command after a restart may be lost, so this one does not count.
    let said = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = said.filter(|line| line != "lost");
    for _ in 0..2 {
        for left in (0..100).rev() {
            writeln!(tell, "CL.THROTTLE pipe 99 100 8640000").unwrap();
            let answer: Vec<_> = said.by_ref().take(5).collect();
            assert_eq!(answer[..3], ["0", "100", &left.to_string()]);
        }
        server.restart();
        writeln!(tell, "ECHO lost").unwrap();
    }
    drop(tell);
    assert!(client.wait().unwrap().success());
}

#[test]
fn info_and_command_are_supported() {
    let server = Server::open();
    let output = redis_cli(&server, &["info", "server"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("redis_version:"), "{said}");
    let output = redis_cli(&server, &["--raw", "command", "docs", "cl.throttle"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("cl.throttle") && said.contains("summary"), "{said}");
}
