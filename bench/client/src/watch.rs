//! Counts the attempts of a client.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollgate::{Clock, Span, SystemClock, Timestamp};

/// The time after which the limits are known.
const KNOWN_AFTER: Span = Span::from_secs(1);

/// What happened to the attempts of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Attempts.
    pub(crate) attempts: usize,
    /// Attempts that were refused.
    pub(crate) refused: usize,
    /// Attempts that were refused after the first second.
    pub(crate) refused_known: usize,
    /// Attempts before the end of the longest wait that a received refusal named.
    pub(crate) early: usize,
}

/// Counts the attempts of a client. Clones share the counts.
#[derive(Clone)]
pub(crate) struct Watch {
    clock: SystemClock,
    start: Timestamp,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    counts: Counts,
    /// When the last refusal was received, and until when it told to wait.
    last_refusal: (Timestamp, Timestamp),
}

impl Watch {
    pub(crate) fn new() -> Self {
        let clock = SystemClock::new();
        Self { start: clock.now(), clock, state: Arc::default() }
    }

    /// Sends an attempt, and reads its response to the end.
    pub(crate) async fn send(
        &self,
        http: &reqwest::Client,
        request: reqwest::Request,
    ) -> reqwest::Result<reqwest::Response> {
        self.started();
        let mut response = http.execute(request).await?;
        while response.chunk().await?.is_some() {}
        self.ended(response.status(), response.headers());
        Ok(response)
    }

    pub(crate) fn started(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.counts.attempts += 1;
        // An attempt of the same millisecond had not seen the refusal.
        let (received, until) = state.last_refusal;
        state.counts.early += usize::from(now < until && now > received + Span::from_millis(1));
    }

    pub(crate) fn ended(&self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::FORBIDDEN {
            return;
        }
        let now = self.clock.now();
        let seconds = headers.get("retry-after").and_then(|it| it.to_str().ok()?.parse().ok());
        let until = now + Span::from_secs(seconds.unwrap_or(0));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.counts.refused += 1;
        state.counts.refused_known += usize::from(now.since(self.start) > KNOWN_AFTER);
        state.last_refusal = (state.last_refusal.0.max(now), state.last_refusal.1.max(until));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(self.start).into()
    }
}
