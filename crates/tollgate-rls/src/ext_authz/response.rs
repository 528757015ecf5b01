//! A `CheckResponse` and its encoding.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use serde_json::{Map, Value};
use tollgate::{Decision, DecisionId};
use tollgate_grpc::call::framed;
use tollgate_grpc::wire::{Write as _, put_always};

use crate::response::write_struct;

/// `google.rpc.Code`: the request is over a limit.
const RESOURCE_EXHAUSTED: u64 = 8;
/// `google.rpc.Code`: the request is refused for another reason than a limit.
const PERMISSION_DENIED: u64 = 7;
/// `google.rpc.Code`: the service is overloaded.
const UNAVAILABLE: u64 = 14;
/// Replaces the lines of a header.
const OVERWRITE_IF_EXISTS_OR_ADD: u64 = 2;
/// Adds a line to a header.
const APPEND_IF_EXISTS_OR_ADD: u64 = 0;

/// A response to Envoy.
pub(super) struct CheckResponse {
    pub(super) verdict: Verdict,
    /// The decision, for access logs and other filters.
    pub(super) metadata: Map<String, Value>,
}

/// Whether the request passes, and the changes that Envoy makes to it.
pub(super) enum Verdict {
    Allowed {
        /// Headers of the response to the client.
        to_client: HeaderMap,
        /// Headers of the request to the service.
        to_service: HeaderMap,
        /// Headers that are removed from the request to the service.
        removed: Vec<HeaderName>,
    },
    Denied {
        response: Response<Bytes>,
        /// The reason.
        detail: String,
    },
}

/// Returns the decision as dynamic metadata: `envoy.filters.http.ext_authz` in Envoy.
pub(super) fn metadata(decision: &Decision<'_>, id: DecisionId) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("decision".to_owned(), id.to_string().into());
    fields.insert("allowed".to_owned(), decision.is_allowed().into());
    if let Some(limit) = decision.limiting() {
        fields.insert("limit".to_owned(), limit.name().into());
        fields.insert("remaining".to_owned(), limit.outcome().remaining.into());
    }
    if let Some(wait) = decision.advised_wait() {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        fields.insert("retry_after_ms".to_owned(), millis.into());
    }
    if decision.is_degraded() {
        fields.insert("degraded".to_owned(), true.into());
    }
    fields
}

impl CheckResponse {
    /// Denies a request that cannot be read.
    pub(super) fn unreadable(status: StatusCode, detail: &str) -> Self {
        let mut response = Response::new(Bytes::from(detail.to_owned()));
        *response.status_mut() = status;
        Self { verdict: Verdict::Denied { response, detail: detail.to_owned() }, metadata: Map::new() }
    }

    /// Encodes the response with its prefix.
    pub(super) fn framed(&self) -> Bytes {
        framed(|out| {
            match &self.verdict {
                Verdict::Allowed { to_client, to_service, removed } => {
                    out.put_message(1, |_| {});
                    out.put_message(3, |out| {
                        write_options(out, 2, to_service);
                        for name in removed {
                            out.put_bytes(5, name.as_str().as_bytes());
                        }
                        write_options(out, 6, to_client);
                    });
                }
                Verdict::Denied { response, detail } => {
                    let code = match response.status() {
                        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
                        StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
                        _ => PERMISSION_DENIED,
                    };
                    out.put_message(1, |out| {
                        out.put_uint(1, code);
                        out.put_bytes(2, detail.as_bytes());
                    });
                    out.put_message(2, |out| {
                        out.put_message(1, |out| out.put_uint(1, u64::from(response.status().as_u16())));
                        write_options(out, 2, response.headers());
                        out.put_bytes(3, response.body());
                    });
                }
            }
            if !self.metadata.is_empty() {
                out.put_message(4, |out| write_struct(out, &self.metadata));
            }
        })
    }
}

/// Writes headers, each in place of those with its name.
fn write_options(out: &mut Vec<u8>, number: u32, headers: &HeaderMap) {
    for name in headers.keys() {
        for (at, value) in headers.get_all(name).iter().enumerate() {
            out.put_message(number, |out| {
                out.put_message(1, |out| {
                    out.put_bytes(1, name.as_str().as_bytes());
                    out.put_bytes(2, value.as_bytes());
                });
                put_always(
                    out,
                    3,
                    if at == 0 { OVERWRITE_IF_EXISTS_OR_ADD } else { APPEND_IF_EXISTS_OR_ADD },
                );
            });
        }
    }
}
