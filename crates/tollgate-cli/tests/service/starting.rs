//! Errors that prevent a start, and their messages.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tollgate_testkit::{ProgramOutput, Scratch, Tollgate};

use super::BINARY;
use super::client::get;
use super::process::memory;

/// Runs `tollgate serve`, which is expected to exit.
fn serve(settings: &[&str], more: &[&str]) -> ProgramOutput {
    let mut command = Command::new(BINARY);
    command.arg("serve").env_clear();
    let free = ["listen.gateway=127.0.0.1:0", "listen.api=127.0.0.1:0", "listen.rls=off", "listen.resp=off"];
    for setting in free.iter().chain(settings) {
        command.args(["--set", setting]);
    }
    command.args(more);
    ProgramOutput::of(command)
}

/// Fails unless it exited with status 2 and printed each of these texts.
#[track_caller]
fn check(settings: &[&str], more: &[&str], said: &[&str]) {
    let finished = serve(settings, more);
    assert_eq!(finished.code, Some(2), "{settings:?} {more:?} is a mistake of configuration: {finished:?}");
    let is_error = finished.stderr.lines().any(|line| line.starts_with("error"));
    assert!(is_error, "{settings:?} {more:?}: {}", finished.stderr);
    for text in said {
        assert!(
            finished.stderr.contains(text),
            "{settings:?} {more:?} is told {text:?}: {}",
            finished.stderr
        );
    }
}

#[test]
fn an_address_in_use_is_reported_with_help() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for setting in ["listen.gateway", "listen.api"] {
        let taken = format!("{setting}={address}");
        let change = format!("--set {setting}=HOST:PORT");
        check(&[&taken], &[], &[&address, "is in use by another program", &change]);
    }
    let other = Tollgate::start(BINARY, super::ROOMY);
    let taken = format!("listen.gateway={}", other.gateway);
    check(&[&taken], &[], &[&other.gateway.to_string(), "is in use by another program"]);
    assert_eq!(get(other.gateway, "/").status, 200, "the server that was first serves on");
}

#[test]
fn an_invalid_address_is_reported() {
    for (wrong, said) in [
        ("127.0.0.1:99999", "127.0.0.1:99999"),
        ("127.0.0.1:http", "127.0.0.1:http"),
        ("127.0.0.1", "127.0.0.1"),
        ("8080", "127.0.0.1:8080"),
        ("203.0.113.1:0", "cannot listen on 203.0.113.1:0"),
    ] {
        for setting in ["listen.gateway", "listen.api"] {
            // On an address other than loopback, the token is checked before the address.
            if setting == "listen.api" && wrong.starts_with("203.") {
                continue;
            }
            check(&[&format!("{setting}={wrong}")], &[], &[said]);
        }
    }
}

/// A self-signed certificate and its key.
fn certificate(files: &Scratch, name: &str) -> (String, String) {
    let (certificate, key) =
        (files.path().join(format!("{name}.pem")), files.path().join(format!("{name}.key")));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "1", "-subj", "/CN=tollgate.test", "-addext", "subjectAltName=DNS:tollgate.test"]);
    command.arg("-out").arg(&certificate).arg("-keyout").arg(&key);
    let made = ProgramOutput::of(command);
    assert_eq!(made.code, Some(0), "{made:?}");
    (shown(&certificate), shown(&key))
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_unusable_certificate_is_reported_with_the_reason() {
    let files = Scratch::new();
    let ((certificate_one, key_one), (_, key_two)) = (certificate(&files, "one"), certificate(&files, "two"));
    let check = |certificate: &str, key: &str, said: &[&str]| {
        let (certificate, key) =
            (format!("gateway.tls.certificate={certificate}"), format!("gateway.tls.key={key}"));
        check(&[&certificate, &key], &[], said);
    };
    let (missing, folder) = (shown(&files.path().join("missing.pem")), shown(files.path()));
    check(&missing, &key_one, &["cannot read", &missing, "No such file"]);
    check(&certificate_one, &missing, &["cannot read", &missing, "No such file"]);
    check(&folder, &key_one, &["cannot read", &folder, "directory"]);
    let garbage = shown(&files.write("garbage.pem", "hello"));
    check(&garbage, &key_one, &["cannot serve TLS with", &garbage, "no PEM certificate"]);
    check(&certificate_one, &garbage, &["cannot serve TLS with", &garbage, "no PEM private key"]);
    check(&key_one, &certificate_one, &["cannot serve TLS with", "no PEM certificate"]);
    check(
        &certificate_one,
        &key_two,
        &["cannot serve TLS with", &certificate_one, "cannot be used with this key"],
    );
    let cut = fs::read_to_string(&certificate_one).unwrap();
    let cut = shown(&files.write("cut.pem", &cut[..cut.len() / 2]));
    check(&cut, &key_one, &["cannot serve TLS with", &cut]);
}

#[test]
fn a_valid_certificate_is_served() {
    let files = Scratch::new();
    let (certificate, key) = certificate(&files, "one");
    let config =
        format!("{}gateway: {{tls: {{certificate: \"{certificate}\", key: \"{key}\"}}}}\n", super::ROOMY);
    let tollgate = Tollgate::start(BINARY, &config);
    let port = tollgate.gateway.port();
    for protocol in ["--http1.1", "--http2"] {
        let mut command = super::curl::curl_command();
        command.args([protocol, "--cacert", &certificate]);
        command.args([
            "--resolve",
            &format!("tollgate.test:{port}:127.0.0.1"),
            "--write-out",
            "%{http_code}",
        ]);
        command.args(["--output", "/dev/null", &format!("https://tollgate.test:{port}/")]);
        let finished = ProgramOutput::of(command);
        assert_eq!(
            (finished.code, finished.stdout.as_str()),
            (Some(0), "200"),
            "{protocol}: {}",
            finished.stderr
        );
    }
}

#[test]
fn an_unwritable_ready_file_is_reported_with_the_reason() {
    let files = Scratch::new();
    files.write("file", "in the way");
    let folder = files.path().join("folder");
    fs::create_dir(&folder).unwrap();
    // A device that is always full, like a full disk.
    let full = files.path().join("full");
    symlink("/dev/full", &full).unwrap();
    for (path, why) in [
        (files.path().join("missing/ready.json"), "there is no such directory"),
        (files.path().join("file/ready.json"), "a part of its path is not a directory"),
        (folder, "it is a directory"),
        (full.clone(), "there is no room left on the disk"),
        ("/proc/ready.json".into(), "there is no such directory"),
    ] {
        let path = shown(&path);
        check(&[], &["--ready-file", &path], &["cannot write the ready file", &path, why]);
    }
    assert!(full.is_symlink(), "what is no ordinary file is written to, and not replaced");
    let mut left: Vec<_> =
        fs::read_dir(files.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "folder", "full"], "nothing is left behind");
}

#[test]
fn an_idle_service_takes_a_few_megabytes() {
    let service = Tollgate::start(BINARY, super::ROOMY);
    assert_eq!(get(service.gateway, "/").status, 200);
    let used = memory(service.program.id());
    // Each core has a worker with a stack and a heap of its own.
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    assert!(used.anonymous <= 8 + cores, "{used:?}; 32 MiB and more are huge pages that are mostly empty");
}
