//! Parses the headers of a response that describe the limits of a server.
//!
//! [`Advice::read`] understands `Retry-After` (seconds and dates), `retry-after-ms`, `x-amz-retry-after`, the IETF
//! fields `RateLimit` and `RateLimit-Policy` of every draft, and `X-RateLimit-*` in the dialects of GitHub, Discord,
//! `OpenAI`, Stripe, AWS, Envoy and X. A field that is malformed is ignored, and every number is bounded by its reader:
//! headers come from a stranger.
//!
//! If a response has several waits, the longest counts: a caller that returns after it is early by none of them.
//!
//! Not here: the meaning of a report for later calls (`bucket`), the clock of the server (`clock_offset`).

mod ietf;
mod number;
mod triple;

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;
use tollgate::{Span, Timestamp};

/// The most buckets that one response can report.
pub const MAX_BUCKETS: usize = 8;
/// The longest field that is parsed.
const MAX_FIELD_BYTES: usize = 4 << 10;

/// The limits and waits that one response describes.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use tollgate_client::headers::{Advice, Wait};
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "2".parse()?);
/// headers.insert("retry-after-ms", "1500".parse()?);
/// let advice = Advice::read(&headers);
/// assert_eq!(advice.wait, Some(Wait::After(tollgate::Span::from_secs(2))));
/// assert!(advice.is_refusal(StatusCode::TOO_MANY_REQUESTS));
/// assert!(!advice.is_refusal(StatusCode::OK));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice<'h> {
    /// The wait that a refused caller is told.
    pub wait: Option<Wait>,
    /// The same wait in milliseconds, if the server states it as precisely.
    pub precise_wait: Option<Span>,
    /// The buckets that the request was counted in.
    pub buckets: SmallVec<[BucketReport<'h>; 2]>,
    /// Whether the server says that a retry makes sense.
    pub should_retry: Option<bool>,
    /// Whether a refusal concerns every route of the server.
    pub is_global: bool,
    /// Whether an AWS service says that the request was throttled, which it does with status 400.
    pub is_throttling_error: bool,
    /// The time of the server's clock, in whole seconds, rounded down.
    pub date: Option<Timestamp>,
}

/// A wait: a span, or a time of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// From the receipt of the response.
    After(Span),
    /// Until this time of the server's clock.
    Until(Timestamp),
}

/// The time at which a bucket has more units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// From the receipt of the response.
    After(Span),
    /// At this time of the server's clock.
    At(Timestamp),
}

/// The name of a bucket, with the calls that share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BucketName<'h> {
    /// Every route that reports this name shares the bucket.
    Shared(Cow<'h, str>),
    /// Routes that report this name share the bucket if they concern the same resource, such as a channel of Discord.
    PerResource(&'h str),
    /// The bucket belongs to the route.
    Route(&'static str),
}

impl BucketName<'_> {
    /// Returns the name as the server wrote it; empty if it has none.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Shared(name) => name,
            Self::PerResource(name) | Self::Route(name) => name,
        }
    }
}

/// How a bucket gets new units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All units return at the reset.
    Window,
    /// Units return one by one; the reset is the time at which the bucket is full.
    Refill,
}

/// The unit that a bucket counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketKind {
    /// Requests.
    #[default]
    Requests,
    /// Tokens of a language model, or another cost of a request.
    Tokens,
    /// Concurrent requests.
    Slots,
    /// A unit that a client cannot count, such as bytes.
    Other,
}

/// The state of one bucket, as a response reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketReport<'h> {
    /// The name.
    pub name: BucketName<'h>,
    /// The units of a full bucket, or of a window.
    pub limit: Option<u64>,
    /// The units that are left.
    pub remaining: Option<u64>,
    /// The reset.
    pub reset: Option<Reset>,
    /// The window that `limit` is for.
    pub window: Option<Span>,
    /// The shape, if the dialect defines it.
    pub shape: Option<Shape>,
    /// The unit.
    pub kind: BucketKind,
    /// Whether the reset has at least the precision of milliseconds.
    pub is_precise: bool,
}

impl<'h> BucketReport<'h> {
    /// Creates a report without numbers.
    pub const fn new(name: BucketName<'h>) -> Self {
        Self {
            name,
            limit: None,
            remaining: None,
            reset: None,
            window: None,
            shape: None,
            kind: BucketKind::Requests,
            is_precise: false,
        }
    }
}

impl<'h> Advice<'h> {
    /// Reads the headers of a response.
    pub fn read(headers: &'h HeaderMap) -> Self {
        if !headers.keys().any(|name| is_relevant(name.as_str())) {
            return Self::default();
        }
        let mut advice = Self { date: text(headers, "date").and_then(number::http_date), ..Self::default() };
        // The numbers of a cached response are those of another request.
        if text(headers, "age").and_then(number::integer).is_some_and(|age| age > 0) {
            return advice;
        }
        advice.read_waits(headers);
        advice.should_retry = ["x-should-retry", "stripe-should-retry"]
            .iter()
            .find_map(|name| text(headers, name))
            .and_then(|value| value.trim().parse().ok());
        advice.is_global = headers.contains_key("x-ratelimit-global")
            || text(headers, "x-ratelimit-scope") == Some("global")
            || text(headers, "stripe-rate-limited-reason").is_some_and(|it| it.starts_with("global"));
        advice.is_throttling_error = text(headers, "x-amzn-errortype").is_some_and(is_throttling);
        advice.read_buckets(headers);
        advice
    }

    fn read_waits(&mut self, headers: &HeaderMap) {
        let millis = |name| text(headers, name).and_then(|it| number::decimal(it, 1_000));
        self.precise_wait =
            millis("retry-after-ms").max(millis("x-amz-retry-after")).max(millis("x-ms-retry-after-ms"));
        let retry_after = text(headers, "retry-after").and_then(|value| {
            let seconds = number::decimal(value, 1_000_000).map(Wait::After);
            seconds.or_else(|| number::http_date(value).map(Wait::Until))
        });
        self.wait = match (retry_after, self.precise_wait) {
            (Some(Wait::After(retry_after)), Some(precise)) => Some(Wait::After(retry_after.max(precise))),
            (Some(retry_after), _) => Some(retry_after),
            (None, precise) => precise.map(Wait::After),
        };
    }

    /// Reads the reports of buckets from the most expressive fields that the response has: the named policies of the
    /// IETF list every limit, `OpenAI`'s headers have two, and the others describe one of the same limits again.
    fn read_buckets(&mut self, headers: &'h HeaderMap) {
        let policies = ietf::policies(headers);
        let buckets = &mut self.buckets;
        ietf::read(headers, &policies, &mut |report| buckets.push(report));
        if buckets.is_empty() {
            buckets.extend(triple::OPENAI.iter().filter_map(|family| triple::read_family(headers, family)));
        }
        if buckets.is_empty()
            && let Some(mut report) = triple::read(headers)
        {
            report.window = report.limit.and_then(|limit| ietf::window_of(&policies, limit));
            buckets.push(report);
        }
    }

    /// Whether a response with this status refuses its request because of a limit.
    ///
    /// GitHub refuses with 403, AWS with 400. A 503 is a failure of the server, even if it says when to return.
    pub fn is_refusal(&self, status: StatusCode) -> bool {
        match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::FORBIDDEN => {
                self.wait.is_some() || self.buckets.iter().any(|it| it.remaining == Some(0))
            }
            StatusCode::BAD_REQUEST => self.is_throttling_error,
            _ => false,
        }
    }
}

/// Whether a header is one that [`Advice::read`] reads, besides `Date`. Most responses have none.
fn is_relevant(name: &str) -> bool {
    const PREFIXES: [&str; 7] =
        ["x-rate", "rate", "retry-after", "x-amz", "x-ms-retry", "x-should-retry", "stripe-"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_throttling(error: &str) -> bool {
    let name = error.split(':').next().unwrap_or_default();
    ["Throttling", "TooManyRequests", "SlowDown", "RequestLimitExceeded", "ProvisionedThroughputExceeded"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Returns the first value of a header, if it is text of a bounded length.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().filter(|value| value.len() <= MAX_FIELD_BYTES)
}

#[cfg(test)]
mod tests;
