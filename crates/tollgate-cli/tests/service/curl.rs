//! curl with its defaults.

use std::process::Command;

use tollgate_testkit::{ProgramOutput, Tollgate};

use super::BINARY;

const POLICY: &str = "limits:\n  - {name: api, by: ip, bucket: 5/hour}\n";

/// Returns curl without the settings and proxies of this machine.
pub(super) fn curl_command() -> Command {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--noproxy", "*"]);
    command
}

/// Returns the output of curl: the body, and the status on its own line.
fn curl(tollgate: &Tollgate, path: &str, arguments: &[&str]) -> (String, String) {
    let mut command = curl_command();
    command.args(["--write-out", "\n%{http_code} %{content_type}"]);
    command.args(arguments).arg(format!("http://{}{path}", tollgate.api));
    let finished = ProgramOutput::of(command);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let (body, status) = finished.stdout.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

const QUESTION: &str = r#"{"path":"/","ip":"203.0.113.9"}"#;

#[test]
fn a_body_with_the_default_type_of_curl_is_accepted() {
    let tollgate = Tollgate::start(BINARY, POLICY);
    for arguments in [
        &["-d", QUESTION][..],
        &["-d", QUESTION, "-H", "Content-Type: text/plain"],
        &["-d", QUESTION, "-H", "Content-Type:"],
        &["--json", QUESTION],
        &["-d", QUESTION, "--http2-prior-knowledge"],
    ] {
        let (status, body) = curl(&tollgate, "/v1/check", arguments);
        assert_eq!(status, "200 application/json", "curl {arguments:?}: {body}");
        assert!(body.contains(r#""allowed":true"#), "curl {arguments:?}: {body}");
    }
}

#[test]
fn a_form_is_rejected_as_not_json() {
    let tollgate = Tollgate::start(BINARY, POLICY);
    let (status, body) = curl(&tollgate, "/v1/check", &["-d", "path=/"]);
    assert_eq!(status, "400 application/problem+json", "{body}");
    assert!(body.contains("this is not JSON"), "{body}");
    let (status, body) = curl(&tollgate, "/v1/check", &["-F", "path=/"]);
    assert_eq!(status, "415 application/problem+json", "{body}");
    assert!(body.contains("`Content-Type: application/json`"), "{body}");
}

#[test]
fn a_cross_site_request_is_refused_and_charges_nothing() {
    let tollgate = Tollgate::start(BINARY, POLICY);
    for (header, why) in [
        ("Origin: https://evil.test", "the `Origin` is not this host"),
        ("Origin: null", "the `Origin` is not this host"),
        ("Sec-Fetch-Site: cross-site", "`Sec-Fetch-Site` is not `same-origin`"),
    ] {
        let (status, body) = curl(&tollgate, "/v1/check", &["-d", QUESTION, "-H", header]);
        assert_eq!(status, "403 application/problem+json", "{header}: {body}");
        assert!(body.contains(why), "{header}: {body}");
    }
    let own = format!("Origin: http://{}", tollgate.api);
    let (status, body) = curl(&tollgate, "/v1/check", &["-d", QUESTION, "-H", &own]);
    assert_eq!(status, "415 application/problem+json", "a form can send that, on any page: {body}");
    let json = ["-d", QUESTION, "-H", &own, "-H", "Content-Type: application/json"];
    let (status, body) = curl(&tollgate, "/v1/check", &json);
    assert_eq!(status, "200 application/json", "a page of this very server may ask: {body}");
    assert!(body.contains(r#""remaining":4"#), "and is the first that was charged: {body}");
}
