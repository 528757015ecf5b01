//! redis-py, node-redis and ioredis run the same conversation, and get the same replies.
//!
//! A script prints `restart` to request a restart of the server, waits for a line, and at its end
//! prints the replies as JSON.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{PASSWORD, Server};

/// The replies that every client gets. `proto` is its default protocol.
fn heard(proto: u8) -> Value {
    json!({
        "ping": "PONG",
        "cell": [0, 16, 15, -1, 2],
        "cell_refused": [1, 1, 0, 86400, 86400],
        "crab": [1, 15, 14, 2, 0],
        "gcra": [0, 16, 15, -1, 2],
        "check": [0, 5, 4, -1, 12000],
        "check_refused": 1,
        "pipeline": (0..100).rev().collect::<Vec<_>>(),
        "transaction": [99, 98, 97],
        "unknown": "unknown command 'FLY', with args beginning with: 'away'",
        "no_limit": "no limit is called `per-usr`; did you mean `per-user`?",
        "same_connection": true,
        "proto": proto,
        "password": [0, 16, 15, -1, 2],
        "wrong_password": "WRONGPASS",
        "no_password": "NOAUTH",
        "restarted": [0, 16, 15, -1, 2],
    })
}

#[track_caller]
fn check(mut command: Command, script: &Path, proto: u8) {
    let (mut open, locked) = (Server::open(), Server::locked());
    let ports = [&open, &locked].map(|server| server.address.port().to_string());
    command.args(ports).arg(PASSWORD).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let (mut tell, said) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let mut printed = None;
    for line in BufReader::new(said).lines().map(Result::unwrap) {
        if line == "restart" {
            open.restart();
            tell.write_all(b"it is there again\n").unwrap();
        } else {
            printed = Some(line);
        }
    }
    let status = client.wait().unwrap();
    let printed = printed.unwrap_or_else(|| panic!("{}: it printed nothing, {status}", script.display()));
    let got: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    for (what, expected) in heard(proto).as_object().unwrap() {
        assert_eq!(&got[what], expected, "{what}, {}", script.display());
    }
    assert!(status.success(), "{}: {status}", script.display());
}

fn scripts(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/resp").join(name)
}

#[track_caller]
fn installed(what: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(what);
    assert!(path.exists(), "target/{what} is missing: run `make test`, which installs it");
    path
}

#[track_caller]
fn python(script: &str, option: &str, proto: u8) {
    let script = scripts("python").join(script);
    let mut command = Command::new(installed("python/bin/python"));
    command.arg("-B").arg(&script).arg(option);
    check(command, &script, proto);
}

/// A script that is not a file looks for packages in the current directory.
#[track_caller]
fn node(script: &str, option: &str, proto: u8) {
    let script = scripts("node").join(script);
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let both = format!("{}\n{}", text(&scripts("node/talk.mjs")), text(&script));
    let mut command = Command::new("node");
    command.current_dir(installed("node/node_modules").parent().unwrap());
    command.args(["--input-type=module", "--eval", &both, "--", option]);
    check(command, &script, proto);
}

#[test]
fn redis_py_works_by_default() {
    python("call_redis.py", "default", 3);
}

#[test]
fn redis_py_works_with_resp2() {
    python("call_redis.py", "2", 2);
}

#[test]
fn redis_py_works_with_resp3() {
    python("call_redis.py", "3", 3);
}

#[test]
fn redis_py_on_asyncio_works_with_both_protocols() {
    python("call_redis_asyncio.py", "2", 2);
    python("call_redis_asyncio.py", "3", 3);
}

#[test]
fn node_redis_works_with_both_protocols() {
    node("call_redis.mjs", "2", 2);
    node("call_redis.mjs", "3", 3);
}

#[test]
fn ioredis_works() {
    node("call_ioredis.mjs", "2", 2);
}
