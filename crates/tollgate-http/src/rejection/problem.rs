//! The JSON body of a refusal (RFC 9457).
//!
//! `violated-policies` is spelled with a hyphen, as in the IETF draft. Waits are integers: clients
//! that expect a fraction accept integers too. `instance` is a URN that ends in the decision ID.
//!
//! `degraded` is present, and true, if the store did not answer.
//!
//! The JSON is written member by member for speed: during a flood, most responses are refusals.

use bytes::Bytes;

use super::Rejection;

/// The initial capacity in bytes; most bodies are smaller.
const INITIAL_BYTES: usize = 512;

pub(super) fn to_json(rejection: &Rejection<'_, '_>) -> Bytes {
    let mut json = Vec::with_capacity(INITIAL_BYTES);
    raw(&mut json, r#"{"type":""#);
    raw(&mut json, rejection.kind);
    raw(&mut json, r#"","title":""#);
    raw(&mut json, rejection.title);
    raw(&mut json, r#"","status":"#);
    raw(&mut json, rejection.status.as_str());
    raw(&mut json, r#","detail":"#);
    string(&mut json, &rejection.detail);
    raw(&mut json, r#","instance":"urn:tollgate:decision:"#);
    json.extend_from_slice(&rejection.id.digits());
    raw(&mut json, r#"""#);
    for (at, name) in rejection.violated.iter().enumerate() {
        raw(&mut json, if at == 0 { r#","violated-policies":["# } else { "," });
        string(&mut json, name);
    }
    if !rejection.violated.is_empty() {
        raw(&mut json, "]");
    }
    if let Some(wait) = rejection.retry_after {
        raw(&mut json, r#","retry_after":"#);
        raw(&mut json, itoa::Buffer::new().format(wait.seconds()));
        raw(&mut json, r#","retry_after_ms":"#);
        raw(&mut json, itoa::Buffer::new().format(wait.millis()));
    }
    if rejection.decision.is_degraded() {
        raw(&mut json, r#","degraded":true"#);
    }
    raw(&mut json, "}");
    json.into()
}

fn raw(json: &mut Vec<u8>, text: &str) {
    json.extend_from_slice(text.as_bytes());
}

/// Appends a quoted and escaped string: rules built in code may have any name.
fn string(json: &mut Vec<u8>, text: &str) {
    // Writing a string to memory does not fail.
    let _never_fails = serde_json::to_writer(json, text);
}
