//! The outbound gateway of the binary, in front of a server that Tollgate did not write.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;
use tollgate_testkit::{Certificate, LimitedServer, Program, ProgramOutput, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// Sends a request, and leaves the response to be read.
fn send(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer secret\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Reads a response until it has this text.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(text.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "no `{text}` in {}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

/// Returns the local address of a service, from the ready file.
fn outbound_address(ready: &Path, name: &str) -> SocketAddr {
    let ready: Value = serde_json::from_str(&fs::read_to_string(ready).unwrap()).unwrap();
    ready["outbound"][name].as_str().unwrap_or_else(|| panic!("{ready}")).parse().unwrap()
}

/// The section for a service with TLS, whose authority is given.
fn section(server: &LimitedServer, certificate: &Certificate) -> String {
    let (port, ca) = (server.port, certificate.ca.display());
    format!(
        "outbound:\n  - {{name: api, listen: 127.0.0.1:0, upstream: https://localhost:{port}, ca: {ca}}}\n"
    )
}

/// Checks that calls reach the service with its host and the credential of the worker, and that responses are streamed.
fn check_service(address: SocketAddr, server: &LimitedServer) {
    let answer = rest(send(address, "/echo"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("echo"), "{answer}");
    let head = answer.to_ascii_lowercase();
    assert!(head.contains(&format!("x-host: localhost:{}\r\n", server.port)), "{answer}");
    assert!(head.contains("x-auth: bearer secret\r\n"), "{answer}");
    // The server writes the second part after the request for /go.
    let mut streaming = send(address, "/stream");
    assert!(read_until(&mut streaming, "first").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(rest(send(address, "/go")).ends_with("going"));
    assert!(rest(streaming).contains("second"));
}

#[test]
fn the_section_of_a_policy_forwards_to_a_service_with_tls_and_streams() {
    let files = Scratch::new();
    let certificate = Certificate::new(&files);
    let server = LimitedServer::start_tls("github", &certificate);
    let policy = format!("{}limits:\n  - {{by: ip, bucket: 5/minute}}\n", section(&server, &certificate));
    let tollgate = Tollgate::start(BINARY, &policy);
    let address = outbound_address(&tollgate.files.path().join("ready.json"), "api");
    check_service(address, &server);
    assert!(tollgate.log().contains(&format!("outbound http://{address} to api")), "{}", tollgate.log());
}

#[test]
fn a_file_of_services_alone_opens_no_other_listener_but_the_api() {
    let files = Scratch::new();
    let certificate = Certificate::new(&files);
    let server = LimitedServer::start_tls("openai", &certificate);
    // `SSL_CERT_FILE` names the authorities of the operating system.
    let services = section(&server, &certificate).replace(&*certificate.ca.to_string_lossy(), "system");
    let services = files.write("services.yaml", &services);
    let (ready, log) = (files.path().join("ready.json"), files.path().join("log"));
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen-api", "127.0.0.1:0", "--outbound"]).arg(&services);
    command
        .arg("--ready-file")
        .arg(&ready)
        .env_clear()
        .env("SSL_CERT_FILE", &certificate.ca)
        .stderr(Stdio::from(fs::File::create(&log).unwrap()));
    let mut program = Program::start(command);
    program.wait_until("ready file", || ready.exists());
    check_service(outbound_address(&ready, "api"), &server);
    let addresses: Value = serde_json::from_str(&fs::read_to_string(&ready).unwrap()).unwrap();
    for off in ["gateway", "rls", "resp"] {
        assert!(addresses[off].is_null(), "{addresses}");
    }
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("services.yaml") && said.contains("no limits in force"), "{said}");
    assert!(!said.contains("sample policy"), "{said}");
}

#[test]
fn a_file_of_services_with_a_mistake_is_located_in_it() {
    let files = Scratch::new();
    for (text, expected) in [
        ("listen: {api: off}\n", "services.yaml has no `outbound`"),
        ("outbound: []\nlimits: []\n", "`limits` is not a setting"),
        ("outbound:\n  - {listen: 127.0.0.1:0, url: https://h}\n", "upstream"),
    ] {
        let services = files.write("services.yaml", text);
        let mut command = Command::new(BINARY);
        command.args(["serve", "--outbound"]).arg(&services).env_clear();
        let output = ProgramOutput::of(command);
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        assert!(
            output.stderr.contains(expected) && output.stderr.contains("services.yaml"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn calls_above_the_limit_of_a_gateway_all_succeed_in_every_dialect() {
    const TASKS: usize = 20;
    const CALLS: usize = 10;
    for dialect in ["none", "github", "discord", "openai", "stripe", "aws", "envoy"] {
        let headers = if dialect == "none" { "" } else { &format!("headers: {{dialects: [{dialect}]}}") };
        let policy = format!(
            "{headers}\ngateway: {{upstream: demo}}\nlimits:\n  - {{by: global, bucket: '200/second, burst 20'}}\n"
        );
        let limited = Tollgate::start(BINARY, &policy);
        let services = format!(
            "outbound: [{{name: api, listen: 127.0.0.1:0, upstream: http://{}}}]\nlimits: []\n",
            limited.gateway
        );
        let outbound = Tollgate::start(BINARY, &services);
        let address = outbound_address(&outbound.files.path().join("ready.json"), "api");
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                thread::spawn(move || {
                    for _ in 0..CALLS {
                        let answer = rest(send(address, "/items"));
                        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().unwrap_or_else(|_| panic!("{dialect}: a call did not succeed"));
        }
        let metrics = rest(send(outbound.api, "/metrics"));
        let count = |name: &str| -> usize {
            let line = metrics.lines().find_map(|it| it.strip_prefix(&format!("{name}{{service=\"api\"}} ")));
            line.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{name} in {metrics}"))
        };
        let (attempts, refused) =
            (count("tollgate_outbound_attempts_total"), count("tollgate_outbound_refused_total"));
        println!("{dialect}: {refused} of {attempts} refused");
        assert_eq!(attempts - refused, TASKS * CALLS, "{dialect}");
        // A quiet machine has none. Without pacing, every second attempt is refused.
        assert!(refused <= TASKS * CALLS / 5, "{dialect}: {refused} of {attempts} refused");
    }
}
