//! The description of a load.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use rustls::ClientConfig;
use tollgate::Span;
use tollgate_net::HttpUrl;

/// How the load reacts to refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Every arrival is one request; refusals are counted.
    Hammer,
    /// Every arrival is a call of `tollgate-client`, which paces, waits and retries.
    Respect,
}

/// A load: the request, its rate and its length.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The URL.
    pub url: HttpUrl,
    /// The TLS settings, for `https`.
    pub tls: Option<Arc<ClientConfig>>,
    /// The method.
    pub method: Method,
    /// Headers of each request.
    pub headers: HeaderMap,
    /// The body of each request.
    pub body: Bytes,
    /// Arrivals per second, more than zero.
    pub rate: f64,
    /// The time in which requests arrive.
    pub duration: Duration,
    /// The most requests that are under way at a time, at least one.
    pub connections: usize,
    /// The time for one request.
    pub timeout: Duration,
    /// The reaction to refusals.
    pub manner: Manner,
    /// The number of retries that check `Retry-After` after the load.
    pub checks: u32,
    /// The longest wait that is checked, and the longest wait of a call that respects limits.
    pub max_wait: Duration,
}

impl LoadPlan {
    /// Returns the number of arrivals, at least one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    pub(crate) fn arrivals(&self) -> u64 {
        ((self.rate * self.duration.as_secs_f64()).round() as u64).max(1)
    }

    /// Returns the time of an arrival, from the start.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(crate) fn due(&self, number: u64) -> Span {
        Span::from_micros((number as f64 * 1e6 / self.rate) as u64)
    }
}
