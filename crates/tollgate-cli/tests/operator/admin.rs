//! Access to the API: tokens for two roles, TLS, and certificates.

use std::process::Command;

use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Scratch, Tollgate};

use super::asking::stop;
use super::receiver::Certificates;
use super::{BINARY, ONE};

const ADMIN: &str = "admin-0123456789abcdef";
const READER: &str = "reader-0123456789abcdef";

/// Sends a request over TLS with curl. Returns the status, zero without a response, and the body.
fn curl(certificates: &Certificates, url: &str, more: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--max-time",
        "30",
        "-w",
        "\n%{http_code}",
        "--cacert",
        &certificates.path("ca.pem"),
    ]);
    let finished = ProgramOutput::of({
        command.args(more).arg(url);
        command
    });
    let (body, status) = finished.stdout.rsplit_once('\n').unwrap_or(("", "0"));
    (status.parse().unwrap(), body.to_owned())
}

fn shown(certificates: &Certificates, name: &str) -> [String; 4] {
    let file = |kind: &str| certificates.path(&format!("{name}.{kind}"));
    ["--cert".into(), file("pem"), "--key".into(), file("key")]
}

fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen-gateway", "off", "--listen-rls", "off", "--listen-resp", "off"]);
    command.args(arguments).env_clear().envs(variables.to_vec());
    let finished = ProgramOutput::of(command);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    finished.stderr
}

#[test]
fn the_api_serves_tls_and_prints_https() {
    let certificates = Certificates::new();
    let config = format!("{ONE}admin: {{{}}}\n", certificates.served(""));
    let mut tollgate = Tollgate::start(BINARY, &config);
    let url = format!("https://{}", tollgate.api);
    let ready: Value =
        serde_json::from_str(&std::fs::read_to_string(tollgate.files.path().join("ready.json")).unwrap())
            .unwrap();
    assert_eq!(ready["api_url"], *url, "{ready}");
    let log = tollgate.log();
    assert!(log.contains(&format!("api      {url}\n")) && log.contains(&format!("open {url}/ ")), "{log}");
    assert_eq!(curl(&certificates, &format!("{url}/v1/limits"), &["--http1.1"]).0, 200);
    assert_eq!(curl(&certificates, &format!("{url}/v1/limits"), &["--http2"]).0, 200);
    assert_eq!(curl(&certificates, &format!("http://{}/v1/limits", tollgate.api), &[]).0, 0);
    stop(&mut tollgate);
}

#[test]
fn without_a_token_a_certificate_is_required() {
    let certificates = Certificates::new();
    let ca = format!(", client_ca: {}", certificates.path("ca.pem"));
    let config = format!("{ONE}admin: {{{}}}\n", certificates.served(&ca));
    let mut tollgate = Tollgate::start(BINARY, &config);
    let url = format!("https://localhost:{}/v1/limits", tollgate.api.port());
    let known = shown(&certificates, "client");
    let stranger = shown(&certificates, "stranger");
    for http in ["--http1.1", "--http2"] {
        let ask = |who: &[String]| {
            let mut more: Vec<_> = who.iter().map(String::as_str).collect();
            more.push(http);
            curl(&certificates, &url, &more).0
        };
        assert_eq!((ask(&known), ask(&stranger), ask(&[])), (200, 0, 0), "{http}");
    }
    stop(&mut tollgate);
}

#[test]
fn a_token_or_a_certificate_suffices_and_a_reader_changes_nothing() {
    let (certificates, files) = (Certificates::new(), Scratch::new());
    let token = |name: &str, text: &str| files.write(name, text).display().to_string();
    let config = format!(
        "{ONE}admin:\n  token_file: {}\n  read_token_file: {}\n  {}\n",
        token("admin", ADMIN),
        token("reader", READER),
        certificates.served(&format!(", client_ca: {}", certificates.path("ca.pem"))),
    );
    let mut tollgate = Tollgate::start(BINARY, &config);
    let url = format!("https://{}/v1/mode", tollgate.api);
    let bearer = |token: &str| vec!["-H".to_owned(), format!("Authorization: Bearer {token}")];
    let put = ["-X", "PUT", "-H", "Content-Type: application/json", "-d", "{\"mode\":\"shadow\"}"];
    for (who, sees, switches) in [
        (bearer(ADMIN), 200, 200),
        (bearer(READER), 200, 403),
        (bearer("guess-0123456789abcdef"), 401, 401),
        (Vec::new(), 401, 401),
        (shown(&certificates, "client").to_vec(), 200, 200),
        // A certificate must be valid, even with a token.
        ([shown(&certificates, "stranger").to_vec(), bearer(ADMIN)].concat(), 0, 0),
    ] {
        let ask = |more: &[&str]| {
            let all: Vec<_> = who.iter().map(String::as_str).chain(more.iter().copied()).collect();
            curl(&certificates, &url, &all).0
        };
        assert_eq!((ask(&[]), ask(&put)), (sees, switches), "{who:?}");
    }
    // The journal has the subject of the certificate.
    let known = shown(&certificates, "client");
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    let off = [&put[..5], &["{\"mode\":\"off\"}"], &known[..]].concat();
    assert_eq!(curl(&certificates, &url, &off).0, 200);
    let changes = curl(&certificates, &url.replace("/mode", "/changes"), &known).1;
    let changes: Value = serde_json::from_str(&changes).unwrap();
    let names: Vec<_> = changes["changes"].as_array().unwrap().iter().map(|it| &it["certificate"]).collect();
    assert_eq!(names, [&Value::from("the client"), &Value::Null], "{changes}");
    stop(&mut tollgate);
    assert!(!tollgate.log().contains(ADMIN) && !tollgate.log().contains(READER));
}

#[test]
fn an_api_on_a_public_address_needs_a_token_or_certificates() {
    let certificates = Certificates::new();
    let public = ["--listen-api", "0.0.0.0:0"];
    let said = refused(&public, &[]);
    assert!(said.contains("has no token") && said.contains("client_ca"), "{said}");
    // TLS alone encrypts, but does not authenticate callers.
    let tls = format!(
        "admin.tls={{certificate: {}, key: {}}}",
        certificates.path("server.pem"),
        certificates.path("server.key")
    );
    let said = refused(&[&public[..], &["--set", &tls]].concat(), &[]);
    assert!(said.contains("has no token"), "{said}");
    let same = [("TOLLGATE_ADMIN_TOKEN", ADMIN), ("TOLLGATE_READ_TOKEN", ADMIN)];
    let said = refused(&public, &same);
    assert!(said.contains("are the same") && !said.contains(ADMIN), "{said}");
    let said = refused(&public, &[("TOLLGATE_READ_TOKEN", READER)]);
    assert!(said.contains("no admin token") && !said.contains(READER), "{said}");
    let said = refused(&public, &[("TOLLGATE_ADMIN_TOKEN", ADMIN), ("TOLLGATE_READ_TOKEN", "short")]);
    assert!(said.contains("TOLLGATE_READ_TOKEN holds 5 characters"), "{said}");
}

#[test]
fn files_that_cannot_be_used_are_named_by_serve_and_by_validate() {
    let (certificates, files) = (Certificates::new(), Scratch::new());
    let nonsense = files.write("nonsense", "nothing").display().to_string();
    let (good, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    for (tls, expected) in [
        (format!("{{certificate: {nonsense}, key: {key}}}"), "no PEM certificate"),
        (format!("{{certificate: {good}, key: {nonsense}}}"), "no PEM private key"),
        (
            format!("{{certificate: {good}, key: {key}, client_ca: {nonsense}}}"),
            "clients cannot be known by it",
        ),
        (format!("{{certificate: {good}, key: /nowhere}}"), "there is no such file"),
    ] {
        let policy = files.write("policy.yaml", &format!("{ONE}admin: {{tls: {tls}}}\n"));
        let said = refused(&["--config", policy.to_str().unwrap(), "--listen-api", "127.0.0.1:0"], &[]);
        assert!(said.contains(expected), "{said}");
        let mut command = Command::new(BINARY);
        command.arg("validate").arg(&policy).env_clear();
        let finished = ProgramOutput::of(command);
        assert_eq!(finished.code, Some(2), "{finished:?}");
        assert!(finished.stderr.contains(expected), "{finished:?}");
    }
}
