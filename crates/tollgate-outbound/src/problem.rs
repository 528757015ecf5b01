//! Responses of the outbound gateway itself: problem JSON with the limit that a call waited for.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};

/// The body of a response: streamed from the service, or a problem.
pub(crate) type ResponseBody = BoxBody<Bytes, hyper::Error>;

/// Returns a problem. `retry_after` is rounded up to whole seconds.
pub(crate) fn problem(
    status: StatusCode,
    detail: &dyn Display,
    retry_after: Option<Duration>,
) -> Response<ResponseBody> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail.to_string(),
    });
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(wait) = retry_after {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}
