//! The span of a call, in the words of OpenTelemetry.
//!
//! Its level is debug. It covers all attempts of the call, so that the spans of the HTTP client are inside. Without a
//! subscriber for it, a call pays for one comparison.

use std::time::Duration;

use http::StatusCode;
use tracing::{Span, debug, debug_span, field};

use crate::client::Call;
use crate::error::GaveUp;

pub(crate) fn call_span(call: &Call<'_>) -> Span {
    debug_span!(
        "call",
        otel.kind = "client",
        http.request.method = call.method.as_str(),
        server.address = call.uri.host(),
        http.request.resend_count = field::Empty,
        http.response.status_code = field::Empty,
        tollgate.waited_ms = field::Empty,
    )
}

/// Records that the next attempt is sent, or that the call was given up.
pub(crate) fn record_permit(span: &Span, tries: u32, waited: Duration, gave_up: Option<&GaveUp>) {
    if let Some(gave_up) = gave_up {
        debug!(parent: span, "{gave_up}");
    }
    if tries > 1 {
        span.record("http.request.resend_count", tries - 1);
    } else {
        span.record("tollgate.waited_ms", waited.as_secs_f64() * 1e3);
    }
}

pub(crate) fn record_answer(span: &Span, status: StatusCode, is_refusal: bool) {
    if span.is_disabled() {
        return;
    }
    span.record("http.response.status_code", status.as_u16());
    if is_refusal {
        debug!(parent: span, status = status.as_u16(), "a limit of the server refused the attempt");
    }
}
