//! Encodes a batch of spans as OTLP/JSON: ids in hexadecimal, 64-bit numbers as strings.
//!
//! Attributes have the names of OpenTelemetry's semantic conventions if there are any, and otherwise
//! the prefix `tollgate.`.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tollgate_telemetry::Record;

/// `SPAN_KIND_INTERNAL`, because a decision may be part of another request.
const SPAN_KIND_INTERNAL: u8 = 1;

/// Encodes batches.
pub(super) struct Writer {
    resource: Value,
    /// The source of span ids.
    rng: RandomState,
}

impl Writer {
    pub(super) fn new(service: &str, node: &str) -> Self {
        let resource = json!({"attributes": [
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &format!("{node}:{}", std::process::id())),
            text("host.name", node),
        ]});
        Self { resource, rng: RandomState::new() }
    }

    /// Encodes an `ExportTraceServiceRequest`.
    pub(super) fn write(&self, records: &[Arc<Record>]) -> Bytes {
        let spans: Vec<_> = records.iter().map(|record| self.span(record)).collect();
        let scope = json!({"name": "tollgate", "version": env!("CARGO_PKG_VERSION")});
        let written = json!({"resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]});
        written.to_string().into()
    }

    fn span(&self, record: &Record) -> Value {
        // Zero is not a valid id.
        let thrown = |what: u8| self.rng.hash_one((record.seq, record.id.0, what)).max(1);
        let trace = match record.trace {
            Some(parent) => parent.trace,
            None => u128::from(thrown(1)) << 64 | u128::from(thrown(2)),
        };
        let (end, took) = (record.at.as_micros(), record.took.as_micros());
        let nanos = |micros: u64| (u128::from(micros) * 1000).to_string();
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", thrown(0)),
            "name": "tollgate.decide",
            "kind": SPAN_KIND_INTERNAL,
            "startTimeUnixNano": nanos(end.saturating_sub(took)),
            "endTimeUnixNano": nanos(end),
            "attributes": attributes(record),
        });
        if let Some(parent) = record.trace {
            span["parentSpanId"] = format!("{:016x}", parent.span).into();
            span["flags"] = u32::from(parent.sampled).into();
        }
        span
    }
}

fn attributes(record: &Record) -> Vec<Value> {
    let limiting = record.limiting.and_then(|at| record.limits.get(at));
    let mut found = vec![
        text("tollgate.decision.id", &record.id.to_string()),
        text("tollgate.outcome", if record.allowed { "allowed" } else { "refused" }),
        text("tollgate.fate", record.fate.as_str()),
        json!({"key": "tollgate.degraded", "value": {"boolValue": record.degraded}}),
        number("tollgate.policy.version", record.policy_version),
    ];
    found.extend(record.limit.as_deref().map(|it| text("tollgate.limit", it)));
    found.extend(record.priority.as_deref().map(|it| text("tollgate.priority", it)));
    if let Some(limiting) = limiting {
        found.push(text("tollgate.key", &limiting.key));
        found.push(number("tollgate.remaining", limiting.outcome.remaining));
    }
    let wait = record.retry_after.map(|it| it.as_micros().div_ceil(1000));
    found.extend(wait.map(|it| number("tollgate.retry_after_ms", it)));
    found.extend(record.wait().map(|it| number("tollgate.wait_ms", it.as_millis_ceil())));
    for (name, value) in [("http.request.method", &record.method), ("url.path", &record.path)] {
        if !value.is_empty() {
            found.push(text(name, value));
        }
    }
    found.extend(record.client.as_deref().map(|it| text("client.address", it)));
    found
}

fn text(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}

/// A string, because JSON numbers are not exact up to 64 bits.
fn number(name: &str, value: u64) -> Value {
    // The protocol uses signed numbers.
    json!({"key": name, "value": {"intValue": i64::try_from(value).unwrap_or(i64::MAX).to_string()}})
}
