//! `RateLimitRequest` and `RateLimitResponse` in the JSON mapping of protobuf.
//!
//! Field names are accepted in `lowerCamelCase` and as in the `.proto` files, enums by name or
//! number, and numbers also as strings. Unknown fields are errors, as in protojson: a misspelled
//! field must not disable a limit. `null` means that the field is absent.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::request::{self, Override, RateLimitRequest};
use crate::response::{Answer, Quota, Status};
use crate::unit;
use tollgate_grpc::call::{MAX_MESSAGE_BYTES, Refusal};

/// A request as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JsonRequest {
    #[serde(deserialize_with = "or_default")]
    domain: String,
    #[serde(deserialize_with = "or_default")]
    descriptors: Vec<Descriptor>,
    #[serde(alias = "hitsAddend", deserialize_with = "or_default")]
    hits_addend: Number<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Descriptor {
    #[serde(deserialize_with = "or_default")]
    entries: Vec<Entry>,
    limit: Option<OverrideText>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<Number<u64>>,
    #[serde(alias = "isNegativeHits", deserialize_with = "or_default")]
    is_negative_hits: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OverrideText {
    #[serde(alias = "requestsPerUnit", deserialize_with = "or_default")]
    requests_per_unit: Number<u32>,
    #[serde(deserialize_with = "or_default")]
    unit: UnitText,
}

/// Deserializes `null` as the default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A number, or a string with a number.
#[derive(Clone, Copy, Debug, Default)]
struct Number<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = match Value::deserialize(from)? {
            Value::Number(number) => whole(&number),
            Value::String(digits) => serde_json::from_str(&digits).ok().and_then(|it| whole(&it)),
            _ => None,
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.map(Self).ok_or_else(|| D::Error::custom("a whole number is expected that fits its field"))
    }
}

/// Parses a whole number in any notation: `3`, `3.0`, `3e0`.
fn whole(number: &serde_json::Number) -> Option<u64> {
    // Beyond this, not every integer has an exact representation.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    let of_fraction = || {
        let number =
            number.as_f64().filter(|it| it.fract() == 0.0 && (0.0..=MAX_EXACT_INTEGER).contains(it))?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and in range")]
        Some(number as u64)
    };
    number.as_u64().or_else(of_fraction)
}

/// A unit, by name or number.
#[derive(Clone, Copy, Debug, Default)]
struct UnitText(u64);

impl<'de> Deserialize<'de> for UnitText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = match Value::deserialize(from)? {
            Value::Number(number) => whole(&number),
            Value::String(name) => unit::number_of(&name),
            _ => None,
        };
        number.map(Self).ok_or_else(|| D::Error::custom("a unit is SECOND, MINUTE, HOUR, DAY, MONTH or YEAR"))
    }
}

impl JsonRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refusal> {
        if body.len() > MAX_MESSAGE_BYTES {
            return Err(Refusal::invalid_argument(format!("a body has at most {MAX_MESSAGE_BYTES} bytes")));
        }
        if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(Refusal::invalid_argument("a RateLimitRequest is an object".to_owned()));
        }
        serde_json::from_slice(body).map_err(|error| Refusal::invalid_argument(error.to_string()))
    }

    pub(crate) fn to_request(&self) -> Result<RateLimitRequest<'_>, Refusal> {
        let descriptors = self.descriptors.iter().map(Descriptor::to_descriptor).collect();
        RateLimitRequest { domain: &self.domain, descriptors, hits: self.hits_addend.0 }.validate()
    }
}

impl Descriptor {
    fn to_descriptor(&self) -> request::Descriptor<'_> {
        let instead = |it: &OverrideText| Override { requests: it.requests_per_unit.0, unit: it.unit.0 };
        request::Descriptor {
            entries: self.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect(),
            instead: self.limit.as_ref().map(instead),
            hits: self.hits_addend.map(|it| it.0),
            gives_back: self.is_negative_hits,
        }
    }
}

/// Renders an error.
pub(crate) fn render_error(message: &str) -> Bytes {
    json!({ "error": message }).to_string().into()
}

/// Renders a response. Fields with default values are omitted.
pub(crate) fn render(answer: &Answer<'_>) -> Bytes {
    let mut out = Map::new();
    out.insert("overallCode".to_owned(), code(answer.over));
    out.insert("statuses".to_owned(), answer.statuses.iter().map(status).collect());
    let added = [
        ("responseHeadersToAdd", &answer.response_headers),
        ("requestHeadersToAdd", &answer.request_headers),
    ];
    for (name, headers) in added.into_iter().filter(|(_, headers)| !headers.is_empty()) {
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| json!({"key": name.as_str(), "value": String::from_utf8_lossy(value.as_bytes())});
        out.insert(name.to_owned(), headers.iter().map(header).collect());
    }
    if !answer.raw_body.is_empty() {
        out.insert("rawBody".to_owned(), BASE64_STANDARD.encode(&answer.raw_body).into());
    }
    if let Some(metadata) = &answer.metadata {
        out.insert("dynamicMetadata".to_owned(), Value::Object(metadata.clone()));
    }
    if let Some(quota) = &answer.quota {
        out.insert("quota".to_owned(), handed_out(quota));
    }
    Value::Object(out).to_string().into()
}

fn code(over: bool) -> Value {
    if over { "OVER_LIMIT" } else { "OK" }.into()
}

fn status(status: &Status<'_>) -> Value {
    let mut out = Map::new();
    out.insert("code".to_owned(), code(status.over));
    if let Some(limit) = &status.limit {
        let mut shown = Map::new();
        if limit.requests > 0 {
            shown.insert("requestsPerUnit".to_owned(), limit.requests.into());
        }
        if let Some(unit) = limit.unit {
            shown.insert("unit".to_owned(), unit::json_name(unit).into());
        }
        if !limit.name.is_empty() {
            shown.insert("name".to_owned(), limit.name.into());
        }
        out.insert("currentLimit".to_owned(), Value::Object(shown));
    }
    if status.remaining > 0 {
        out.insert("limitRemaining".to_owned(), status.remaining.into());
    }
    if let Some(seconds) = status.reset {
        out.insert("durationUntilReset".to_owned(), format!("{seconds}s").into());
    }
    if let Some(quota) = &status.quota {
        out.insert("quota".to_owned(), handed_out(quota));
    }
    Value::Object(out)
}

fn handed_out(Quota { requests, until, id }: &Quota) -> Value {
    let until = until.as_micros();
    let until = jiff::Timestamp::from_microsecond(i64::try_from(until).unwrap_or(i64::MAX));
    let mut out = Map::from_iter([("requests".to_owned(), (*requests).into())]);
    if let Ok(until) = until {
        out.insert("validUntil".to_owned(), until.to_string().into());
    }
    out.insert("id".to_owned(), id.to_string().into());
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(BASE64_STANDARD.encode(bytes), text);
        }
    }
}
