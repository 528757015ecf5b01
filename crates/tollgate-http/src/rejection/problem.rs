//! The JSON body of a refusal (RFC 9457).
//!
//! `violated-policies` is spelled with a hyphen, as in the IETF draft. Waits are integers: clients
//! that expect a fraction accept integers too. `instance` is a URN that ends in the decision ID.
//!
//! `degraded` is present, and true, if the store did not answer.
//!
//! The JSON is written member by member for speed: during a flood, most responses are refusals.

use super::Rejection;
use crate::json_string::write_json_string;

pub(super) fn write_json(rejection: &Rejection<'_, '_>, json: &mut Vec<u8>) {
    rejection.problem.write_start(rejection.status, json);
    write_json_string(json, &rejection.detail);
    raw(json, r#","instance":"urn:tollgate:decision:"#);
    json.extend_from_slice(&rejection.id.digits());
    raw(json, r#"""#);
    for (at, name) in rejection.violated.iter().enumerate() {
        raw(json, if at == 0 { r#","violated-policies":["# } else { "," });
        // Rules built in code may have any name.
        write_json_string(json, name);
    }
    if !rejection.violated.is_empty() {
        raw(json, "]");
    }
    if let Some(wait) = rejection.retry_after {
        raw(json, r#","retry_after":"#);
        raw(json, itoa::Buffer::new().format(wait.seconds()));
        raw(json, r#","retry_after_ms":"#);
        raw(json, itoa::Buffer::new().format(wait.millis()));
    }
    if rejection.decision.is_degraded() {
        raw(json, r#","degraded":true"#);
    }
    raw(json, "}");
}

fn raw(json: &mut Vec<u8>, text: &str) {
    json.extend_from_slice(text.as_bytes());
}
