//! `tollgate bench` against the gateway, and against a server that lies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;

use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

fn bench(url: &str, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(BINARY);
    command.arg("bench").arg(url).args(arguments).env_clear();
    ProgramOutput::of(command)
}

fn json(output: &ProgramOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Answers every request on every connection with one response.
fn constant_server(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for _end_of_head in lines.map_while(Result::ok).filter(String::is_empty) {
                    stream.write_all(response.as_bytes()).unwrap();
                }
            });
        }
    });
    address
}

#[test]
fn the_gateway_tells_the_truth() {
    let policy = "gateway: {upstream: demo}\nlimits:\n  - {name: api, by: header:X-Key, bucket: '2/second, burst 5'}\n";
    let tollgate = Tollgate::start(BINARY, policy);
    let url = format!("http://{}/", tollgate.gateway);
    let output = bench(&url, &["--rate", "100/s", "--duration", "1s", "--header", "X-Key: a", "--json"]);
    let report = json(&output);
    assert_eq!(output.code, Some(0), "{report:#}");
    let count = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    assert_eq!((count("/arrivals"), count("/sent")), (100, 100), "{report:#}");
    assert_eq!(count("/statuses/200") + count("/statuses/429"), 100, "{report:#}");
    assert!(count("/statuses/200") >= 5 && count("/statuses/429") > 0, "{report:#}");
    assert_eq!(report["headers"]["findings"], Value::Array(Vec::new()), "{report:#}");
    let checks = report["retry_after"]["checks"].as_array().unwrap();
    assert!(checks.len() == 3 && checks.iter().all(|check| check["accepted"] == true), "{report:#}");
    let sources: Vec<_> = checks.iter().map(|check| check["source"].as_str().unwrap()).collect();
    assert!(sources.contains(&"retry-after") && sources.contains(&"milliseconds"), "{report:#}");

    let output = bench(&url, &["--rate", "20/s", "--duration", "1s", "--respect", "--header", "X-Key: b"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    for expected in ["obeying limits", "2xx 20 (200: 20)", "20 in ", "p99.9", "headers      consistent"] {
        assert!(output.stdout.contains(expected), "{expected} in:\n{}", output.stdout);
    }
}

#[test]
fn a_server_that_lies_is_found_out() {
    let address = constant_server(
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nX-RateLimit-Limit: 5\r\nX-RateLimit-Remaining: 7\r\n\
         X-RateLimit-Reset: 30\r\nContent-Length: 0\r\n\r\n",
    );
    let arguments = ["--rate", "50/s", "--duration", "100ms", "--checks", "1"];
    let output = bench(&format!("http://{address}/"), &arguments);
    assert_eq!(output.code, Some(1), "{output:?}");
    for expected in [
        "4xx 5 (429: 5)",
        "a retry after 1.000 s (Retry-After): 429, REFUSED: the wait was too short",
        "more left than the limit: ",
        "refused with units left: ",
    ] {
        assert!(output.stdout.contains(expected), "{expected} in:\n{}", output.stdout);
    }
}

#[test]
fn mistakes_say_what_to_write() {
    for (url, arguments, expected) in [
        ("127.0.0.1", &[][..], "does not begin with http://"),
        ("http://127.0.0.1:1/", &["--rate", "fast"], "write it as 100/s"),
        ("http://127.0.0.1:1/", &["--rate", "0/s"], "--rate"),
        ("http://127.0.0.1:1/", &["--duration", "soon"], "write it as 500ms, 10s or 5m"),
        ("http://127.0.0.1:1/", &["--header", "secret"], "write it as --header 'Name: value'"),
        ("http://127.0.0.1:1/", &["--method", "G T"], "is not a method"),
        ("http://127.0.0.1:1/", &["--body", "@/nowhere/x"], "cannot read /nowhere/x"),
        ("http://127.0.0.1:1/", &["--duration", "20ms"], "no request had a response"),
    ] {
        let output = bench(url, arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{expected} in {}", output.stderr);
    }
}
