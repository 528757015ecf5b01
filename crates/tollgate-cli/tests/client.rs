//! Commands that call a server, with canned responses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use tollgate_testkit::{ProgramOutput, free_port};

/// Starts a server that takes one request, sends one response, and returns the request.
fn server(answer: String) -> (String, JoinHandle<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let request = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        (head, serde_json::from_slice(&body).unwrap())
    });
    (url, request)
}

fn ok(answer: &Value) -> String {
    let body = answer.to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn problem(status: &str, detail: &str) -> String {
    let body = json!({"detail": detail}).to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    )
}

fn tollgate(arguments: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    ProgramOutput::of(command)
}

fn decision(allowed: bool) -> Value {
    let wait = if allowed { Value::Null } else { json!(11_200) };
    json!({"id": "1", "allowed": allowed, "limit": "demo-search", "retry_after_ms": wait, "degraded": false, "soft": [], "limits": [
        {"name": "demo-search", "key": "203.0.113.9", "algorithm": "token-bucket", "allowed": allowed, "mode": "enforce",
         "limit": 5, "remaining": if allowed { 4 } else { 0 }, "retry_after_ms": wait, "reset_after_ms": 12_000},
    ]})
}

#[test]
fn the_exit_status_of_a_check_is_the_decision() {
    for (allowed, code, said) in [
        (true, 0, "allowed\n  demo-search  203.0.113.9  allows  4 of 5 left, all again in 12 s\n"),
        (
            false,
            1,
            "refused by demo-search: come back in 11.2 s\n  demo-search  203.0.113.9  refuses  0 of 5 left, come back in 11.2 s\n",
        ),
    ] {
        let (url, request) = server(ok(&decision(allowed)));
        let check = ["check", "/api/v1/search", "--ip", "203.0.113.9", "--api", &url];
        let finished = tollgate(&check, &[]);
        assert_eq!(
            (finished.code, finished.stdout.as_str(), finished.stderr.as_str()),
            (Some(code), said, "")
        );
        let (head, body) = request.join().unwrap();
        assert!(head.starts_with("POST /v1/check HTTP/1.1\r\n"), "{head}");
        assert_eq!(body, json!({"method": "GET", "path": "/api/v1/search", "ip": "203.0.113.9"}));
    }
}

#[test]
fn a_check_sends_all_arguments() {
    let (url, request) = server(ok(&decision(true)));
    let arguments = [
        "check",
        "post",
        "/x",
        "--user",
        "ann",
        "--api-key",
        "k",
        "--tenant",
        "acme",
        "--plan",
        "pro",
        "--host",
        "h",
        "--header",
        "X-One: 1",
        "--header",
        "x-one:2",
        "--cost",
        "7",
        "--json",
    ];
    let finished = tollgate(&arguments, &[("TOLLGATE_API", &url), ("TOLLGATE_TOKEN", "0123456789abcdef")]);
    assert_eq!(serde_json::from_str::<Value>(&finished.stdout).unwrap(), decision(true));
    let (head, body) = request.join().unwrap();
    assert!(head.contains("\r\nAuthorization: Bearer 0123456789abcdef\r\n"), "{head}");
    let expected = json!({"method": "POST", "path": "/x", "user": "ann", "api_key": "k", "tenant": "acme", "plan": "pro",
        "host": "h", "headers": {"x-one": ["1", "2"]}, "cost": 7});
    assert_eq!(body, expected);
}

#[test]
fn operations_on_a_key_send_its_parts() {
    let standing = json!({"allowed": true, "degraded": false, "soft": [], "limits": [
        {"name": "api", "key": "k", "algorithm": "token-bucket", "mode": "enforce", "allowed": true, "limit": 5,
         "remaining": 5, "reset_after_ms": 0}]});
    for (arguments, path, body, said) in [
        (&["peek", "api", "k"][..], "/v1/limits/api/peek", json!({"key": "k"}), "  api  k  5 of 5 left\n"),
        (
            &["reset", "api", "a", "b"],
            "/v1/limits/api/reset",
            json!({"key": ["a", "b"]}),
            "begins anew: 5 of 5 left\n",
        ),
        (
            &["grant", "api", "k", "--cost", "9"],
            "/v1/limits/api/grant",
            json!({"key": "k", "cost": 9}),
            "granted: 5 of 5 left\n",
        ),
        (&["refund", "a/b"], "/v1/limits/a%2Fb/refund", json!({"cost": 1}), "given back: 5 of 5 left\n"),
    ] {
        let (url, request) = server(ok(&standing));
        let finished = tollgate(arguments, &[("TOLLGATE_API", &url)]);
        assert_eq!(
            (finished.code, finished.stdout.as_str()),
            (Some(0), said),
            "{arguments:?}: {}",
            finished.stderr
        );
        let (head, sent) = request.join().unwrap();
        assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
        assert_eq!(sent, body, "{arguments:?}");
    }
}

#[test]
fn the_error_of_a_server_is_quoted() {
    for (answer, expected) in [
        (
            problem("404 Not Found", "no limit is called `apj`; did you mean `api`?"),
            "error: no limit is called `apj`; did you mean `api`?\n",
        ),
        (problem("422 Nonsense", "an escape: \u{1b}[2J"), "error: an escape: \\u{1b}[2J\n"),
    ] {
        let (url, request) = server(answer);
        let finished = tollgate(&["peek", "apj", "x", "--api", &url], &[]);
        assert_eq!(
            (finished.code, finished.stderr.as_str(), finished.stdout.as_str()),
            (Some(2), expected, "")
        );
        request.join().unwrap();
    }
    let (url, request) = server(problem("401 Unauthorized", "send the token"));
    let finished = tollgate(&["peek", "apj", "x", "--api", &url], &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("set TOLLGATE_TOKEN"), "{}", finished.stderr);
    request.join().unwrap();

    let (url, request) = server(problem("401 Unauthorized", "send the token"));
    let finished =
        tollgate(&["peek", "apj", "x", "--api", &url], &[("TOLLGATE_TOKEN", " 0123456789abcdef\n")]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("does not accept the token in TOLLGATE_TOKEN"), "{}", finished.stderr);
    let (head, _) = request.join().unwrap();
    assert!(head.contains("\r\nAuthorization: Bearer 0123456789abcdef\r\n"), "{head}");
}

#[test]
fn json_of_another_service_is_rejected() {
    let gateway = "HTTP/1.1 429 Too Many\r\nContent-Length: 18\r\n\r\n{\"detail\":\"limit\"}".to_owned();
    for answer in [
        ok(&json!({"allowed": true})),
        ok(&json!({"allowed": "yes", "limits": []})),
        ok(&json!({"hello": "world"})),
        ok(&json!([])),
        "HTTP/1.1 200 OK\r\n\r\n<html>".to_owned(),
        gateway,
    ] {
        for arguments in [&["check", "/"][..], &["peek", "api", "k"], &["reset", "api", "k", "--json"]] {
            let (url, request) = server(answer.clone());
            let finished = tollgate(arguments, &[("TOLLGATE_API", &url)]);
            assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{answer}");
            let expected = format!("{url} is not the API of a Tollgate (is this the gateway's port?)");
            assert!(finished.stderr.contains(&expected), "{answer}: {}", finished.stderr);
            request.join().unwrap();
        }
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let (url, request) = server(ok(&decision(true)));
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&["check", "/", "--api", &url][..], &["schema"], &["completions", "bash"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = command.args(arguments).env_clear().stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot write to standard output"), "{arguments:?}: {said}");
    }
    request.join().unwrap();
}

#[test]
fn a_flag_of_serve_without_its_command_gets_a_hint() {
    let finished = tollgate(&["--upstream", "http://127.0.0.1:3000"], &[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("tollgate serve --upstream"), "{}", finished.stderr);
    let finished = tollgate(&["check", "--help"], &[]);
    assert!(finished.stdout.contains("tollgate check [OPTIONS] [METHOD] PATH"), "{}", finished.stdout);
}

#[test]
fn a_service_that_is_not_tollgate_is_reported() {
    for answer in ["SSH-2.0-OpenSSH_9.2\r\n", "", "HTTP/1.1 502 Bad Gateway\r\n\r\n"] {
        let (url, request) = server(answer.to_owned());
        let finished = tollgate(&["check", "/", "--api", &url], &[]);
        assert_eq!(finished.code, Some(2), "{answer}: {}", finished.stderr);
        assert!(finished.stderr.contains("is this the API of a Tollgate?"), "{answer}: {}", finished.stderr);
        request.join().unwrap();
    }
}

#[test]
fn a_server_that_is_down_is_reported() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let finished = tollgate(&["check", "/", "--api", &url], &[]);
    assert_eq!(
        (finished.code, finished.stderr),
        (
            Some(2),
            format!(
                "error: cannot reach a Tollgate at {url}: nothing listens there\n  = help: start one with `tollgate serve`, or name another with `--api URL` or TOLLGATE_API\n"
            )
        )
    );
}

#[test]
fn invalid_arguments_are_reported_before_a_request() {
    for (arguments, expected) in [
        (&["check", "api"][..], "`api` is not a path: it begins with `/`"),
        (&["check", "/", "--header", "nonsense"], "`nonsense` is not a header"),
        (&["check", "/", "--ca", "ca.pem"], "name it with https://"),
        (
            &["check", "/", "--api", "https://127.0.0.1:7070", "--ca", "/nowhere/ca.pem"],
            "cannot use /nowhere/ca.pem",
        ),
        (
            &["check", "/", "--api", "https://127.0.0.1:7070", "--cert", "c.pem"],
            "--cert was given without --key",
        ),
        (
            &["check", "/", "--api", "https://127.0.0.1:7070", "--key", "k.pem"],
            "--key was given without --cert",
        ),
        (&["check", "/", "--api", "nowhere:port"], "is not the URL of an API"),
    ] {
        let finished = tollgate(arguments, &[]);
        assert_eq!(finished.code, Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
    }
}
