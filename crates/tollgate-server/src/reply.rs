//! Constructors of HTTP responses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};
use http_body_util::Full;
use serde::Serialize;

/// The response of every handler.
pub(crate) type Reply = Response<Full<Bytes>>;

pub(crate) fn json(body: impl Into<Bytes>) -> Reply {
    with_type("application/json", body)
}

/// The header lines of a JSON response of the API, for a server that writes responses without a header map.
pub const JSON_HEADER_LINES: &[u8] =
    b"content-type: application/json\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n";

/// Returns a value as JSON.
pub(crate) fn json_of(value: &impl Serialize) -> Reply {
    // Serializing to memory does not fail.
    json(serde_json::to_vec(value).unwrap_or_default())
}

pub(crate) fn text(body: &'static str) -> Reply {
    with_type("text/plain; charset=utf-8", body)
}

/// Adds `Vary: Accept` to a response that was chosen by content negotiation.
pub(crate) fn chosen(mut reply: Reply) -> Reply {
    reply.headers_mut().entry(VARY).or_insert(HeaderValue::from_static("accept"));
    reply
}

/// Forbids caching and content sniffing. The files of the dashboard set their own cache headers.
pub(crate) fn not_kept(mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    reply
}

pub(crate) fn metrics(body: String) -> Reply {
    with_type("text/plain; version=0.0.4; charset=utf-8", body)
}

fn with_type(kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns the response to `HEAD`: all headers of `GET` without the body (RFC 9110, section 9.3.2).
pub(crate) fn without_body(mut response: Reply) -> Reply {
    let length = http_body::Body::size_hint(response.body()).exact().unwrap_or(0);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response.map(|_| Full::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prepared_lines_are_those_of_a_reply() {
        let reply = not_kept(json("{}"));
        let lines: Vec<_> = reply
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
            .collect();
        assert_eq!(lines.concat().as_bytes(), JSON_HEADER_LINES);
    }
}
