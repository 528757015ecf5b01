//! The body of a refusal as JSON (RFC 9457).

use bytes::Bytes;
use serde::Serialize;

use super::{Rejection, RetryAfter};

/// A problem, member by member.
///
/// `violated-policies` is the draft's, hyphen and all. Waits are whole numbers:
/// clients that expect a fraction read those too, and the others only those.
#[derive(Serialize)]
pub(super) struct Problem<'r> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'r str,
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    violated_policies: &'r [&'r str],
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'r> Problem<'r> {
    pub(super) fn of(rejection: &'r Rejection<'_, '_>) -> Self {
        Self {
            kind: rejection.kind,
            title: rejection.title,
            status: rejection.status.as_u16(),
            detail: &rejection.detail,
            violated_policies: &rejection.violated,
            retry_after: rejection.retry_after.map(RetryAfter::seconds),
            retry_after_ms: rejection.retry_after.map(RetryAfter::millis),
        }
    }

    pub(super) fn to_json(&self) -> Bytes {
        // Writing strings and numbers to memory does not fail; if it did, a status
        // with an empty body is still a refusal.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}
