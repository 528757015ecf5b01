//! TLS of Envoy's rate limit service and of the Redis protocol.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::process::Command;

use crate::service::authority::Authority;
use crate::surfaces::grpc::{Question, code};
use tollgate_testkit::{ProgramOutput, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

const QUESTION: Question<'_> = Question { domain: "edge", key: "user", value: "ann" };

/// Starts a server with a certificate; optionally it requires a client certificate.
fn start(authority: &Authority, wants_one: bool) -> Tollgate {
    let (certificate, key) = authority.sign("127.0.0.1");
    authority.files.write("server.pem", &certificate);
    authority.files.write("server.key", &key);
    let (cert, key) = (authority.file("server.pem"), authority.file("server.key"));
    let client_ca =
        if wants_one { format!(", client_ca: {}", authority.file("ca.pem")) } else { String::new() };
    let tls = format!("{{tls: {{certificate: {cert}, key: {key}{client_ca}}}}}");
    let config = format!(
        "limits: [{{name: users, domain: edge, descriptor: [user], bucket: 100/day}}]\n\
         listen: {{rls: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}}\nrls: {tls}\nresp: {tls}\n"
    );
    Tollgate::start(BINARY, &config)
}

/// Returns arguments that send a certificate of this authority.
fn shown(authority: &Authority) -> [String; 4] {
    let (certificate, key) = authority.sign("ann");
    authority.files.write("client.pem", &certificate);
    authority.files.write("client.key", &key);
    ["--cert".into(), authority.file("client.pem"), "--key".into(), authority.file("client.key")]
}

/// Sends a request over TLS, with these arguments for `curl`; returns the error if it fails.
fn asks(rls: SocketAddr, ca: &str, arguments: &[String]) -> Result<(), String> {
    let files = Scratch::new();
    let mut all = vec!["--http2", "--cacert", ca];
    all.extend(arguments.iter().map(String::as_str));
    let finished = QUESTION.ask(&format!("https://{rls}"), &files, &all);
    if finished.code != Some(0) {
        return Err(finished.stderr);
    }
    assert_eq!(code(&files), 1);
    Ok(())
}

/// Runs `redis-cli` over TLS.
fn says(resp: SocketAddr, ca: &str, arguments: &[String]) -> ProgramOutput {
    let mut command = Command::new("redis-cli");
    command.args(["-e", "-h", "127.0.0.1", "-p", &resp.port().to_string(), "--tls", "--cacert", ca]);
    command.args(arguments).args(["CL.THROTTLE", "ann", "9", "1", "86400"]);
    ProgramOutput::of(command)
}

#[test]
fn both_accept_only_tls() {
    let authority = Authority::new();
    let server = start(&authority, false);
    let (rls, resp) = (server.rls.unwrap(), server.resp.unwrap());
    let ca = authority.file("ca.pem");
    assert_eq!(asks(rls, &ca, &[]), Ok(()));
    assert_eq!(says(resp, &ca, &[]).stdout, "0\n10\n9\n-1\n86400\n");

    let stranger = Authority::new().file("ca.pem");
    assert!(asks(rls, &stranger, &[]).is_err(), "a client believes only whom it knows");
    assert_ne!(says(resp, &stranger, &[]).code, Some(0));

    let files = Scratch::new();
    let plain = QUESTION.ask(&format!("http://{rls}"), &files, &["--http2-prior-knowledge"]);
    assert_ne!(plain.code, Some(0), "{}", plain.stdout);
    let mut plain = Command::new("redis-cli");
    plain.args(["-e", "-h", "127.0.0.1", "-p", &resp.port().to_string(), "PING"]);
    assert_ne!(ProgramOutput::of(plain).code, Some(0));
}

#[test]
fn a_client_certificate_of_the_ca_is_required() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = start(&authority, true);
    let (rls, resp) = (server.rls.unwrap(), server.resp.unwrap());
    let ca = authority.file("ca.pem");
    for refused in [&[][..], &shown(&stranger)] {
        assert!(asks(rls, &ca, refused).is_err(), "{refused:?}");
        let answered = says(resp, &ca, refused);
        assert!(answered.code != Some(0) && !answered.stdout.contains("86400"), "{answered:?}");
    }
    let ours = shown(&authority);
    assert_eq!(asks(rls, &ca, &ours), Ok(()));
    assert_eq!(says(resp, &ca, &ours).stdout, "0\n10\n9\n-1\n86400\n", "no other client has spent units");
}
