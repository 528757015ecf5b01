//! A `RateLimitResponse` and its encoding.
//!
//! Its code is never `UNKNOWN`.
//!
//! Not here: the JSON format (`json`), the headers (`response_headers`).

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};
use smallvec::SmallVec;
use tollgate::{DecisionId, Timestamp};

use crate::unit::{self, Unit};
use tollgate_grpc::wire::{Write as _, put_always, put_double};

/// A response to a proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer<'a> {
    /// Whether the request is over a limit.
    pub(crate) over: bool,
    /// One status for each descriptor, in order.
    pub(crate) statuses: SmallVec<[Status<'a>; 2]>,
    /// Headers for the client.
    pub(crate) response_headers: HeaderMap,
    /// Headers for the upstream service.
    pub(crate) request_headers: HeaderMap,
    /// The body for a refused client.
    pub(crate) raw_body: Bytes,
    pub(crate) metadata: Option<Map<String, Value>>,
    /// The quota of the whole request, if it has one descriptor.
    pub(crate) quota: Option<Quota>,
}

/// The status of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status<'a> {
    pub(crate) over: bool,
    pub(crate) limit: Option<CurrentLimit<'a>>,
    pub(crate) remaining: u32,
    /// The time until the reset, in seconds.
    pub(crate) reset: Option<u64>,
    pub(crate) quota: Option<Quota>,
}

/// The limit that a status describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentLimit<'a> {
    pub(crate) requests: u32,
    /// `None`: the period of the limit is not a unit.
    pub(crate) unit: Option<Unit>,
    pub(crate) name: &'a str,
}

/// Requests that the proxy may admit by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) requests: u32,
    pub(crate) until: Timestamp,
    pub(crate) id: DecisionId,
}

pub(crate) const OK: u64 = 1;
pub(crate) const OVER_LIMIT: u64 = 2;

const fn code(over: bool) -> u64 {
    if over { OVER_LIMIT } else { OK }
}

impl Answer<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.put_uint(1, code(self.over));
        for status in &self.statuses {
            out.put_message(2, |out| status.write(out));
        }
        write_headers(out, 3, &self.response_headers);
        write_headers(out, 4, &self.request_headers);
        out.put_bytes(5, &self.raw_body);
        if let Some(metadata) = &self.metadata {
            out.put_message(6, |out| write_struct(out, metadata));
        }
        if let Some(quota) = &self.quota {
            out.put_message(7, |out| quota.write(out));
        }
    }
}

impl Status<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.put_uint(1, code(self.over));
        if let Some(limit) = &self.limit {
            out.put_message(2, |out| {
                out.put_uint(1, u64::from(limit.requests));
                out.put_uint(2, limit.unit.map_or(0, unit::number));
                out.put_bytes(3, limit.name.as_bytes());
            });
        }
        out.put_uint(3, u64::from(self.remaining));
        if let Some(seconds) = self.reset {
            out.put_message(4, |out| out.put_uint(1, seconds));
        }
        if let Some(quota) = &self.quota {
            out.put_message(5, |out| quota.write(out));
        }
    }
}

impl Quota {
    fn write(&self, out: &mut Vec<u8>) {
        let micros = self.until.as_micros();
        out.put_uint(1, u64::from(self.requests));
        out.put_message(2, |out| {
            out.put_uint(1, micros / 1_000_000);
            out.put_uint(2, micros % 1_000_000 * 1_000);
        });
        out.put_bytes(3, &self.id.digits());
    }
}

fn write_headers(out: &mut Vec<u8>, number: u32, headers: &HeaderMap) {
    for (name, value) in headers {
        out.put_message(number, |out| {
            out.put_bytes(1, name.as_str().as_bytes());
            out.put_bytes(2, value.as_bytes());
        });
    }
}

/// Writes a `google.protobuf.Struct`.
pub(crate) fn write_struct(out: &mut Vec<u8>, fields: &Map<String, Value>) {
    for (name, value) in fields {
        out.put_message(1, |out| {
            out.put_bytes(1, name.as_bytes());
            out.put_message(2, |out| write_value(out, value));
        });
    }
}

/// Writes a `google.protobuf.Value`, whose field number determines the type.
fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => put_always(out, 1, 0),
        Value::Number(number) => put_double(out, 2, number.as_f64().unwrap_or(0.0)),
        Value::String(text) => out.put_message(3, |out| out.extend_from_slice(text.as_bytes())),
        Value::Bool(flag) => put_always(out, 4, u64::from(*flag)),
        Value::Object(fields) => out.put_message(5, |out| write_struct(out, fields)),
        Value::Array(values) => out.put_message(6, |out| {
            for value in values {
                out.put_message(1, |out| write_value(out, value));
            }
        }),
    }
}
