//! Which calls are retried, when, and how many.
//!
//! A **refusal** (429, GitHub's 403, AWS's throttling errors) says that the server did nothing: every call whose body
//! can be sent again is retried, at the time that its bucket permits. A **failure** (5xx, 408, no response) may have
//! had effects: only idempotent methods and calls with an idempotency key are retried, after a backoff, while the
//! retry budget has a share left and the breaker is closed.
//!
//! `x-should-retry` and `stripe-should-retry` override the status in both directions, but not the safety of a method.

mod backoff;
mod breaker;
mod budget;

use http::{HeaderMap, Method, StatusCode};

pub use backoff::Backoff;
pub use breaker::{Breaker, BreakerSettings};
pub use budget::{RetryBudget, RetryBudgetSettings};

use crate::headers::Advice;

/// The result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The server answered the call. The caller gets the response.
    Answered,
    /// A limit refused the call; the server did nothing.
    Refused,
    /// The server failed, or gave no response.
    Failed,
}

/// Whether sending a call twice does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// The method is idempotent, or the call has an idempotency key.
    Idempotent,
    /// A second execution may have a second effect: only a call that the server refused is retried.
    OnceOnly,
}

impl Safety {
    /// Returns the safety of a request.
    ///
    /// ```
    /// # use http::{HeaderMap, Method};
    /// # use tollgate_client::retry::Safety;
    /// let mut headers = HeaderMap::new();
    /// assert_eq!(Safety::of(&Method::PUT, &headers), Safety::Idempotent);
    /// assert_eq!(Safety::of(&Method::POST, &headers), Safety::OnceOnly);
    /// headers.insert("idempotency-key", "7f3a".parse()?);
    /// assert_eq!(Safety::of(&Method::POST, &headers), Safety::Idempotent);
    /// # Ok::<(), http::header::InvalidHeaderValue>(())
    /// ```
    pub fn of(method: &Method, headers: &HeaderMap) -> Self {
        let has_key = headers.contains_key("idempotency-key") || headers.contains_key("x-idempotency-key");
        if method.is_idempotent() || has_key { Self::Idempotent } else { Self::OnceOnly }
    }
}

impl AttemptOutcome {
    /// Classifies a response.
    pub fn of(status: StatusCode, advice: &Advice<'_>) -> Self {
        if advice.is_refusal(status) {
            return Self::Refused;
        }
        let is_failure = match status {
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => advice.should_retry != Some(false),
            _ => advice.should_retry == Some(true) && (status.is_client_error() || status.is_server_error()),
        };
        if is_failure { Self::Failed } else { Self::Answered }
    }

    /// Whether a call with this outcome may be sent again, if its body can.
    pub fn permits_retry(self, safety: Safety, advice: &Advice<'_>) -> bool {
        match self {
            Self::Answered => false,
            Self::Refused => advice.should_retry != Some(false),
            Self::Failed => safety == Safety::Idempotent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_retried_for_every_method_and_a_failure_for_idempotent_ones() {
        let (encouraged, none) =
            (Advice { should_retry: Some(true), ..Advice::default() }, Advice::default());
        let denied = Advice { should_retry: Some(false), ..Advice::default() };
        for (status, advice, outcome, idempotent, once) in [
            (200, &none, AttemptOutcome::Answered, false, false),
            (404, &none, AttemptOutcome::Answered, false, false),
            (409, &none, AttemptOutcome::Answered, false, false),
            (409, &encouraged, AttemptOutcome::Failed, true, false),
            (429, &none, AttemptOutcome::Refused, true, true),
            (429, &denied, AttemptOutcome::Refused, false, false),
            (403, &none, AttemptOutcome::Answered, false, false),
            (500, &none, AttemptOutcome::Failed, true, false),
            (500, &denied, AttemptOutcome::Answered, false, false),
            (501, &none, AttemptOutcome::Answered, false, false),
            (503, &none, AttemptOutcome::Failed, true, false),
        ] {
            let found = AttemptOutcome::of(StatusCode::from_u16(status).unwrap(), advice);
            assert_eq!(found, outcome, "{status} {advice:?}");
            assert_eq!(found.permits_retry(Safety::Idempotent, advice), idempotent, "{status}");
            assert_eq!(found.permits_retry(Safety::OnceOnly, advice), once, "{status}");
        }
    }
}
