//! Bodies of refusals in the formats of other services.
//!
//! | dialect | body | reason |
//! |---|---|---|
//! | `discord` | `message`, `retry_after` in seconds with a fraction, `global` | `discord.py` waits for the body's `retry_after` |
//! | `openai` | an `error` with `type` (`requests`, `tokens`) and `code` | the client's exception shows them |
//! | `stripe` | an `error` with `type` and `code` | clients report any other body as a different error |
//! | `aws` | the error name, as JSON or XML | SDKs do not retry without a known error name |
//! | `github` | a `message` about the primary or a secondary rate limit | the Octokit plugin searches for these phrases |
//! | `envoy` | no body: the next dialect, or the plain format | |
//!
//! Not here: their headers (`headers::dialects`).

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use tollgate::policy::{Dialect, HeaderSettings};

use super::accept::visible_text;
use super::{Kind, Rejection, RetryAfter};
use crate::header_lines::HeaderLines;

const CONTENT_TYPE: &str = "content-type";

/// The response parts that a dialect creates.
pub(crate) struct DialectRejection {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

/// Creates the refusal in a dialect; `None` if the dialect has no body.
pub(super) fn body(
    dialect: Dialect,
    rejection: &Rejection<'_, '_>,
    request: &impl HeaderLines,
    settings: &HeaderSettings,
) -> Option<DialectRejection> {
    match dialect {
        Dialect::Discord => Some(discord(rejection)),
        Dialect::OpenAi => Some(openai(rejection)),
        Dialect::Stripe => Some(stripe(rejection)),
        Dialect::Aws => Some(aws(rejection, request)),
        Dialect::GitHub => Some(github(rejection, settings)),
        Dialect::Envoy => None,
    }
}

/// The reason of a refusal, as far as dialects distinguish it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefusalReason {
    /// A retry can pass later.
    TooOften,
    /// The request costs more than the limit ever holds.
    TooMuch,
    Forbidden,
    Outage,
}

impl RefusalReason {
    fn of(rejection: &Rejection<'_, '_>) -> Self {
        match (rejection.status, rejection.retry_after) {
            (StatusCode::FORBIDDEN, _) => Self::Forbidden,
            (StatusCode::SERVICE_UNAVAILABLE, _) => Self::Outage,
            (_, Some(_)) => Self::TooOften,
            (_, None) => Self::TooMuch,
        }
    }
}

/// Discord clients retry every 429, and retry one without a wait immediately and forever. A request
/// that can never pass therefore gets another status.
fn discord(rejection: &Rejection<'_, '_>) -> DialectRejection {
    #[derive(Serialize)]
    struct Body<'r> {
        message: &'r str,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        global: Option<bool>,
        code: u32,
    }
    let why = RefusalReason::of(rejection);
    let seconds = |wait: RetryAfter| Duration::from_millis(wait.millis()).as_secs_f64();
    let body = Body {
        message: &rejection.detail,
        retry_after: rejection.retry_after.map(seconds),
        global: (why == RefusalReason::TooOften).then(|| rejection.is_global()),
        code: 0,
    };
    let status = if why == RefusalReason::TooMuch { StatusCode::BAD_REQUEST } else { rejection.status };
    DialectRejection { status, ..json(rejection, &body) }
}

/// The `type` of an `openai` error is the exhausted unit: `requests` or `tokens`.
fn openai(rejection: &Rejection<'_, '_>) -> DialectRejection {
    #[derive(Serialize)]
    struct Body<'r> {
        error: Fault<'r>,
    }
    #[derive(Serialize)]
    struct Fault<'r> {
        message: &'r str,
        #[serde(rename = "type")]
        kind: &'static str,
        param: Option<&'static str>,
        code: &'static str,
    }
    let (kind, code) = match RefusalReason::of(rejection) {
        RefusalReason::TooOften if rejection.kind() == Some(Kind::Cost) => ("tokens", "rate_limit_exceeded"),
        RefusalReason::TooOften => ("requests", "rate_limit_exceeded"),
        RefusalReason::TooMuch => ("invalid_request_error", "request_too_large"),
        RefusalReason::Forbidden => ("permission_error", "forbidden"),
        RefusalReason::Outage => ("server_error", "service_unavailable"),
    };
    json(rejection, &Body { error: Fault { message: &rejection.detail, kind, param: None, code } })
}

fn stripe(rejection: &Rejection<'_, '_>) -> DialectRejection {
    #[derive(Serialize)]
    struct Body<'r> {
        error: Fault<'r>,
    }
    #[derive(Serialize)]
    struct Fault<'r> {
        #[serde(rename = "type")]
        kind: &'static str,
        code: &'static str,
        message: &'r str,
    }
    let (kind, code) = match RefusalReason::of(rejection) {
        RefusalReason::TooOften | RefusalReason::TooMuch => ("invalid_request_error", "rate_limit"),
        RefusalReason::Forbidden => ("invalid_request_error", "forbidden"),
        RefusalReason::Outage => ("api_error", "service_unavailable"),
    };
    json(rejection, &Body { error: Fault { kind, code, message: &rejection.detail } })
}

/// AWS services use JSON or XML, and each SDK reads only the format of its service.
fn aws(rejection: &Rejection<'_, '_>, request: &impl HeaderLines) -> DialectRejection {
    #[derive(Serialize)]
    struct Body<'r> {
        #[serde(rename = "__type")]
        kind: &'static str,
        message: &'r str,
    }
    let kind = match RefusalReason::of(rejection) {
        RefusalReason::TooOften => "ThrottlingException",
        RefusalReason::TooMuch => "ServiceQuotaExceededException",
        RefusalReason::Forbidden => "AccessDeniedException",
        RefusalReason::Outage => "ServiceUnavailable",
    };
    if expects_xml(request) {
        let (message, id) = (XmlText(&rejection.detail), rejection.id);
        let body = format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{kind}</Code><Message>{message}</Message></Error>\
             <RequestId>{id}</RequestId></ErrorResponse>"
        );
        return DialectRejection { status: rejection.status, content_type: "text/xml", body: body.into() };
    }
    let content_type = match text(request, CONTENT_TYPE) {
        "application/x-amz-json-1.0" => "application/x-amz-json-1.0",
        "application/x-amz-json-1.1" => "application/x-amz-json-1.1",
        _ => "application/json",
    };
    DialectRejection { content_type, ..json(rejection, &Body { kind, message: &rejection.detail }) }
}

/// Whether the caller's AWS protocol uses XML: the query protocol, which sends a form, or S3, which
/// is the only service that signs a content hash header.
fn expects_xml(request: &impl HeaderLines) -> bool {
    let content_type = text(request, CONTENT_TYPE);
    if content_type.contains("json") {
        return false;
    }
    content_type.starts_with("application/x-www-form-urlencoded")
        || content_type.contains("xml")
        || text(request, "accept").contains("xml")
        || request.first_line("x-amz-content-sha256").is_some()
}

fn text<'r>(request: &'r impl HeaderLines, name: &str) -> &'r str {
    request.first_line(name).and_then(visible_text).unwrap_or_default()
}

/// The Octokit plugin waits for `X-RateLimit-Reset` if the primary limit is used up, and for
/// `Retry-After` if the message names a secondary rate limit.
fn github(rejection: &Rejection<'_, '_>, settings: &HeaderSettings) -> DialectRejection {
    #[derive(Serialize)]
    struct Body {
        message: String,
        status: String,
    }
    let message = match RefusalReason::of(rejection) {
        RefusalReason::TooOften if rejection.is_primary(settings) => {
            format!("API rate limit exceeded: {}", rejection.detail)
        }
        RefusalReason::TooOften => format!("You have exceeded a secondary rate limit: {}", rejection.detail),
        _ => rejection.detail.clone(),
    };
    json(rejection, &Body { message, status: rejection.status.as_str().to_owned() })
}

fn json(rejection: &Rejection<'_, '_>, body: &impl Serialize) -> DialectRejection {
    // Serializing strings and numbers to memory does not fail; an empty body would still be a
    // refusal.
    let body = serde_json::to_vec(body).unwrap_or_default().into();
    DialectRejection { status: rejection.status, content_type: "application/json", body }
}

/// Escapes text for XML. Only rules built in code have names that need escaping.
struct XmlText<'t>(&'t str);

impl std::fmt::Display for XmlText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for char in self.0.chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                // XML 1.0 cannot represent control characters.
                char if char.is_control() => f.write_str("?")?,
                char => std::fmt::Write::write_char(f, char)?,
            }
        }
        Ok(())
    }
}
