//! Error responses as `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tollgate::StoreError;

/// An error response: the failure and how to correct it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
    header: Option<(HeaderName, HeaderValue)>,
    /// Whether the detail is repeated as `error`.
    with_error: bool,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), header: None, with_error: false }
    }

    /// 400: the request cannot be parsed.
    pub(crate) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 401, with the challenge that the status requires.
    pub(crate) fn unauthorized(challenge: &'static str, detail: &'static str) -> Self {
        let header = Some((WWW_AUTHENTICATE, HeaderValue::from_static(challenge)));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// 403.
    pub(crate) fn forbidden(detail: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404.
    pub(crate) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// 405, with the allowed methods.
    pub(crate) fn wrong_method(allowed: &'static str) -> Self {
        let header = Some((ALLOW, HeaderValue::from_static(allowed)));
        let detail = format!("this resource answers to {allowed}");
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    /// 408. The start of the next request is unknown, so the connection closes.
    pub(crate) fn too_slow() -> Self {
        let header = Some((CONNECTION, HeaderValue::from_static("close")));
        let detail = "the body did not arrive in time; send it at once";
        Self { header, ..Self::new(StatusCode::REQUEST_TIMEOUT, detail) }
    }

    /// 409: the request conflicts with the current state.
    pub(crate) fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 413.
    pub(crate) fn too_large(most: usize) -> Self {
        let detail = format!("the body may have at most {most} bytes; send less at a time");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    /// 415.
    pub(crate) fn wrong_type() -> Self {
        let detail = "the body must be JSON: send `Content-Type: application/json`, or none";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    /// 415 for a browser: only the content type distinguishes the body from a form of another site.
    pub(crate) fn wrong_type_of_page() -> Self {
        let detail = "a browser asks, as `Origin` or `Sec-Fetch-Site` says, and a page must send its body as \
                      `Content-Type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    /// 415 for a compressed body, with the accepted encoding (RFC 9110, section 15.5.16).
    pub(crate) fn wrong_encoding() -> Self {
        let header = Some((ACCEPT_ENCODING, HeaderValue::from_static("identity")));
        let detail = "the body is packed, as `Content-Encoding` says: send it as it is";
        Self { header, ..Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail) }
    }

    /// 422: the request was parsed and is invalid.
    pub(crate) fn senseless(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// 503: the store did not answer an operation that may be repeated. 409 if the store holds data that
    /// Tollgate did not write, which is permanent.
    pub(crate) fn outage(error: &StoreError) -> Self {
        Self::without_store(
            error,
            "the store gives no answer at the moment, and this cannot be done without it; it is safe to \
             repeat: try again shortly",
        )
    }

    /// 503: a final cost was neither confirmed by the store nor kept for later, because too many changes
    /// wait. 409 as for `outage`.
    pub(crate) fn not_settled(error: &StoreError) -> Self {
        Self::without_store(
            error,
            "the store gives no answer at the moment, and this node keeps as many changes for it as it can \
             hold, so the cost is not settled; send the same id and cost again shortly: it is counted once",
        )
    }

    /// 503: units were to be returned, and it is unknown whether the store did so. They are not returned
    /// again. 409 as for `outage`.
    pub(crate) fn settled_in_doubt(error: &StoreError) -> Self {
        Self::without_store(
            error,
            "the store did not say whether it returned the unused units; they are not returned again, \
             because that could be twice, and the decision stays settled at this cost: do not repeat it",
        )
    }

    /// 503: units were to be returned to a key, and it is unknown whether the store did so. 409 as for
    /// `outage`.
    pub(crate) fn changed_in_doubt(error: &StoreError) -> Self {
        let detail = if error.is_in_doubt() {
            "the store did not say whether it made this change, and it is not kept for later; look with \
             `peek` before you repeat it"
        } else {
            "the store gives no answer at the moment, and this change was not made; try again shortly"
        };
        Self::without_store(error, detail).of_key(error)
    }

    fn without_store(error: &StoreError, detail: &'static str) -> Self {
        if let StoreError::Foreign(_) = error {
            tracing::debug!(error = error as &dyn std::error::Error, "foreign data in the store");
            return Self::conflict(
                "the store holds data under this key that Tollgate did not write, and leaves it alone; \
                 it must be removed by hand",
            );
        }
        // Debug level, because this occurs for each request; `Limiter::health` logs outages.
        tracing::debug!(error = error as &dyn std::error::Error, "no answer from the store");
        let header = Some((RETRY_AFTER, HeaderValue::from_static("1")));
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// 503: too many mode changes at once.
    pub(crate) fn busy() -> Self {
        let header = Some((RETRY_AFTER, HeaderValue::from_static("1")));
        let detail = "others are switching at the moment, or one of them has failed; look at `GET /v1/mode`, and \
                      try again shortly";
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// 503: too many simulations at once.
    pub(crate) fn lab_is_full() -> Self {
        let header = Some((RETRY_AFTER, HeaderValue::from_static("1")));
        let detail = "others are simulating at the moment; try again shortly, or use `tollgate simulate`";
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// Like `outage`, for a key that the caller named; includes its name in the store.
    pub(crate) fn outage_of_key(error: &StoreError) -> Self {
        Self::outage(error).of_key(error)
    }

    /// Includes the name of the key in the store, if the store holds foreign data there.
    fn of_key(self, error: &StoreError) -> Self {
        match error {
            StoreError::Foreign(name) => self.about(&format!("`{name}` in the store")),
            _ => self,
        }
    }

    /// Prefixes the detail with the item that it is about.
    pub(crate) fn about(self, what: &str) -> Self {
        Self { detail: format!("{what}: {}", self.detail).into(), ..self }
    }

    /// Adds `error`, for clients that read that member.
    pub(crate) fn with_error(self) -> Self {
        Self { with_error: true, ..self }
    }

    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let problem = tollgate_api::Problem {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            error: self.with_error.then_some(&*self.detail),
        };
        // Serializing to memory does not fail; if it did, the status is sent without a body.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = self.header {
            headers.insert(name, value);
        }
        response
    }
}
