//! Decisions as spans, validated with the OTLP definition.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tollgate_testkit::{ProgramOutput, Scratch, Tollgate, wait_until};

use super::asking::{ask, get, metric, stop, wait_for_log};
use super::receiver::{Certificates, Receiver};
use super::{BINARY, ONE};

/// Returns the spans of a message.
fn spans(body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn attribute(holder: &Value, name: &str) -> Value {
    let all = holder["attributes"].as_array().unwrap();
    let found = all.iter().find(|it| it["key"] == name).map(|it| it["value"].clone());
    found.unwrap_or_default()
}

/// Parses a message with the official definition, by a program that `setup/python` has installed.
fn judge(body: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../target/tools/bin/python");
    assert!(python.exists(), "target/tools is missing: run `make test`, which installs it");
    let files = Scratch::new();
    let message = files.write("message.json", body);
    let mut command = Command::new(python);
    command.arg(root.join("tests/tools/otlp.py")).arg(message);
    let finished = ProgramOutput::of(command);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn a_refusal_is_a_span_under_the_callers() {
    let collector = Receiver::start(&[503]);
    let config =
        format!("{ONE}traces: {{endpoint: 'http://{}', sample: 0%, service: shop}}\n", collector.address);
    let mut tollgate = Tollgate::start(BINARY, &config);
    let parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    assert_eq!(ask(tollgate.gateway, "GET /first", parent, "").0, 200);
    assert_eq!(ask(tollgate.gateway, "GET /second?x=1", parent, "").0, 429);
    assert_eq!(get(tollgate.gateway, "/third").0, 429);
    // Retried after the 503.
    let message = collector.next();
    assert!(message.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", message.head);
    assert!(message.head.to_ascii_lowercase().contains("content-type: application/json"), "{}", message.head);
    assert_eq!(collector.next().body, message.body);
    let mut found = spans(&message.body);
    wait_until("all spans", || {
        found.extend(collector.rest().iter().flat_map(|it| spans(&it.body)));
        found.len() >= 3
    });
    assert_eq!(found.len(), 3, "{found:?}");
    let (first, second, third) = (&found[0], &found[1], &found[2]);
    for span in [first, second] {
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    }
    assert_ne!((&first["spanId"], &third["traceId"]), (&second["spanId"], &first["traceId"]));
    assert!(third.get("parentSpanId").is_none(), "{third}");
    assert_eq!(second["name"], "tollgate.decide");
    for (name, expected) in [
        ("tollgate.limit", "one"),
        ("tollgate.outcome", "refused"),
        ("http.request.method", "GET"),
        ("url.path", "/second"),
        ("client.address", "127.0.0.1"),
    ] {
        assert_eq!(attribute(second, name)["stringValue"], expected, "{second}");
    }
    assert_eq!(attribute(first, "tollgate.outcome")["stringValue"], "allowed");
    assert_eq!(attribute(second, "tollgate.degraded")["boolValue"], false);
    assert_eq!(attribute(second, "tollgate.policy.version")["intValue"], "1");

    let judged = judge(&message.body);
    assert_eq!((&judged["service"], &judged["spans"]), (&"shop".into(), &spans(&message.body).len().into()));
    assert_eq!(judged["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    wait_until("count", || metric(tollgate.api, "tollgate_traces_sent_total") == Some(3));
    assert_eq!(metric(tollgate.api, "tollgate_traces_dropped_total"), Some(0));
    stop(&mut tollgate);
}

#[test]
fn every_admitted_request_can_be_sampled_and_the_end_sends_what_waits() {
    let collector = Receiver::start(&[]);
    let config = format!(
        "limits: [{{name: roomy, by: ip, bucket: 1000/second}}]\ntraces: {{endpoint: 'http://{}', sample: 100%}}\n",
        collector.address
    );
    let mut tollgate = Tollgate::start(BINARY, &config);
    for _ in 0..20 {
        assert_eq!(get(tollgate.gateway, "/").0, 200);
    }
    stop(&mut tollgate);
    let sent: usize = collector.rest().iter().map(|it| spans(&it.body).len()).sum();
    assert_eq!(sent, 20);
}

#[test]
fn a_collector_over_tls_needs_a_trusted_certificate() {
    let certificates = Certificates::new();
    let collector = Receiver::start_tls(&certificates);
    let traces = |ca: &str| {
        let port = collector.address.port();
        format!("{ONE}traces: {{endpoint: 'https://localhost:{port}', sample: 100%{ca}}}\n")
    };
    let mut tollgate = Tollgate::start(BINARY, &traces(&format!(", ca: {}", certificates.path("ca.pem"))));
    get(tollgate.gateway, "/");
    assert_eq!(spans(&collector.next().body).len(), 1);
    stop(&mut tollgate);

    let mut tollgate = Tollgate::start(BINARY, &traces(""));
    get(tollgate.gateway, "/");
    wait_for_log(&mut tollgate, "the collector of traces takes no spans");
    stop(&mut tollgate);
    assert!(collector.rest().is_empty());
}

#[test]
fn an_unavailable_collector_does_not_affect_requests() {
    let nobody = tollgate_testkit::free_port();
    let config = format!("{ONE}traces: {{endpoint: 'http://127.0.0.1:{nobody}/x'}}\n");
    let mut tollgate = Tollgate::start(BINARY, &config);
    for _ in 0..50 {
        assert!([200, 429].contains(&get(tollgate.gateway, "/").0));
    }
    wait_for_log(&mut tollgate, "the collector of traces takes no spans");
    stop(&mut tollgate);
}
