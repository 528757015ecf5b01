//! The webhook: one message when a key has been exhausted for long, and one when it recovers.

use serde_json::Value;
use tollgate_testkit::{Scratch, Tollgate, wait_until};

use super::BINARY;
use super::asking::{ask, get, metric, stop, wait_for_log};
use super::receiver::Receiver;

/// A limit that is exhausted soon.
const SHORT: &str = "limits:\n  - {name: short, by: ip, bucket: 2/second}\n";

#[test]
fn the_start_and_the_end_of_an_alert_are_sent_and_retried() {
    // The first attempt fails.
    let receiver = Receiver::start(&[500]);
    let webhook = format!("http://{}/hooks/hunter2", receiver.address);
    let config = format!("{SHORT}alerts: {{at_zero_for: 1s, webhook: '{webhook}'}}\n");
    let mut tollgate = Tollgate::start(BINARY, &config);
    let keep_at_zero = || {
        for _ in 0..5 {
            get(tollgate.gateway, "/");
        }
    };
    let mut alerts = Vec::new();
    wait_until("alert", || {
        keep_at_zero();
        alerts = receiver.rest();
        !alerts.is_empty()
    });
    assert!(alerts[0].head.starts_with("POST /hooks/hunter2 HTTP/1.1\r\n"), "{alerts:?}");
    let firing: Value = serde_json::from_str(&alerts[0].body).unwrap();
    assert_eq!((&firing["status"], &firing["limit"]), (&"firing".into(), &"short".into()), "{firing}");
    assert_eq!(firing["key"], "127.0.0.1", "{firing}");
    assert!(
        firing["for_s"].as_u64().is_some_and(|it| it >= 1) && firing["refused"].as_u64() > Some(0),
        "{firing}"
    );
    assert!(firing["since"].as_str().is_some_and(|it| it.ends_with('Z')), "{firing}");
    assert!(firing["node"].as_str().is_some_and(|it| !it.is_empty()), "{firing}");
    // Retried after the 500, and then resolved.
    let again: Value = serde_json::from_str(&receiver.next().body).unwrap();
    assert_eq!((&again["status"], &again["since"]), (&"firing".into(), &firing["since"]), "{again}");
    // Granted by hand, because waiting would make the test depend on time.
    let (status, reply) = ask(tollgate.api, "POST /v1/limits/short/reset", "", r#"{"key":"127.0.0.1"}"#);
    assert_eq!(status, 200, "{reply}");
    let over: Value = serde_json::from_str(&receiver.next().body).unwrap();
    assert_eq!((&over["status"], &over["limit"]), (&"resolved".into(), &"short".into()), "{over}");
    wait_until("count", || metric(tollgate.api, "tollgate_webhook_sent_total") == Some(2));
    stop(&mut tollgate);
    let log = tollgate.log();
    assert!(log.contains("an alert could not be delivered") && !log.contains("hunter2"), "{log}");
}

#[test]
fn an_error_does_not_show_a_secret_in_the_url() {
    let files = Scratch::new();
    let policy =
        files.write("policy.yaml", &format!("{SHORT}alerts: {{webhook: 'ftp://h/hunter2', x: 1}}\n"));
    let mut tollgate = Tollgate::start(BINARY, SHORT);
    tollgate.files.write("tollgate.yaml", &std::fs::read_to_string(policy).unwrap());
    wait_for_log(&mut tollgate, "not reloaded");
    stop(&mut tollgate);
    assert!(!tollgate.log().contains("hunter2"), "{}", tollgate.log());
}
