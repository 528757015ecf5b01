//! What a refused caller gets: one place for status, words and body.
//!
//! | why | status | comes back? |
//! |---|---|---|
//! | a limit has no room | 429 | `Retry-After` |
//! | all slots are taken | 429 | `Retry-After: 1`: one may come back any moment |
//! | the request costs more than a limit ever holds | 429 | no: the detail says that waiting does not help |
//! | deny-listed | 403 | no, and the entry is not shown |
//! | key or plan is blocked by a limit | 403 | no |
//! | the request lacks the key of a limit that refuses such | 403 | with the key; the detail says which |
//! | the store gives no answer and a limit says `deny` | 503 | `Retry-After: 1` |
//!
//! A missing key is not 401: that status demands a challenge for credentials
//! (RFC 9110, 15.5.2), and the key may be a header, a cookie or a claim.
//!
//! The body is `application/problem+json` (RFC 9457) with the types of the IETF
//! draft, unless the caller prefers other words. It names limits and never keys.
//! No cache may keep a refusal (RFC 6585, 4).

mod accept;
mod problem;
mod words;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;
use tollgate::policy::HeaderSettings;
use tollgate::{Decision, Fate, Limit, LimitOutcome};

use self::accept::Form;
use self::problem::Problem;
use crate::headers::{RetryAfter, decider, write_headers};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// What its status says, and no more (RFC 9457, 4.2.1).
const ABOUT_BLANK: &str = "about:blank";

/// A refusal, ready to be told.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::{Rejection, RetryAfter};
/// let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 1/minute}]")?;
/// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
/// assert!(Rejection::of(&limiter.check(&call), None).is_none());
/// let refused = limiter.check(&call);
/// let rejection = Rejection::of(&refused, RetryAfter::of(&refused, 0, 0)).expect("it was refused");
/// assert_eq!(rejection.status(), 429);
/// assert_eq!(rejection.detail(), "limit `api` allows 1 per minute; try again in 60 s");
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rejection<'d, 'l> {
    decision: Option<&'d Decision<'l>>,
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    violated: SmallVec<[&'d str; 4]>,
    retry_after: Option<RetryAfter>,
}

impl<'d, 'l: 'd> Rejection<'d, 'l> {
    /// The refusal in a decision; `None` when it allows.
    pub fn of(decision: &'d Decision<'l>, retry_after: Option<RetryAfter>) -> Option<Self> {
        let rejection = match decision.fate() {
            Fate::Refused => Self::by_quota(decision, retry_after),
            fate => Self::uncounted(fate)?,
        };
        Some(Self { decision: Some(decision), ..rejection })
    }

    /// A refusal that needed no counting; `None` for what is none.
    pub(crate) fn uncounted(fate: Fate<'l>) -> Option<Self> {
        let (detail, violated) = match fate {
            Fate::DenyListed(_) => ("this caller is on the deny list".to_owned(), SmallVec::new()),
            Fate::Blocked(block) => (words::block(block), SmallVec::from_iter([block.limit.name()])),
            Fate::Admitted | Fate::Refused | Fate::AllowListed(_) => return None,
        };
        Some(Self {
            decision: None,
            status: StatusCode::FORBIDDEN,
            kind: ABOUT_BLANK,
            title: "Forbidden",
            detail,
            violated,
            retry_after: None,
        })
    }

    /// Limits that would rather refuse than not count.
    pub(crate) fn by_outage(limits: &[&'l Limit]) -> Self {
        Self {
            decision: None,
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: REDUCED_CAPACITY,
            title: "Temporary Reduced Capacity",
            detail: "requests cannot be counted at the moment; try again shortly".to_owned(),
            violated: limits.iter().map(|limit| limit.name()).collect(),
            retry_after: Some(RetryAfter::shortly()),
        }
    }

    fn by_quota(decision: &'d Decision<'l>, retry_after: Option<RetryAfter>) -> Self {
        let refusing = |limit: &LimitOutcome<'_>| limit.is_binding() && !limit.outcome().is_admitted();
        let detail = match decider(decision) {
            Some(decider) => words::quota(&decider, retry_after),
            None => "too many requests".to_owned(),
        };
        Self {
            decision: Some(decision),
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: QUOTA_EXCEEDED,
            title: "Quota Exceeded",
            detail,
            violated: decision.limits().filter(refusing).map(|limit| limit.name()).collect(),
            retry_after,
        }
    }

    /// The decision that refused; `None` in an outage, when none could be made.
    pub const fn decision(&self) -> Option<&'d Decision<'l>> {
        self.decision
    }

    /// 429, 403 or 503.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Why, in plain words.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The limits that had no room, by the names that `RateLimit` has for them.
    pub fn violated(&self) -> impl ExactSizeIterator<Item = &'d str> {
        self.violated.iter().copied()
    }

    /// When to come back, where that helps.
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        self.retry_after
    }

    /// Status and body, in the form that the request's headers prefer.
    pub fn response(&self, request: &HeaderMap) -> Response<Bytes> {
        let form = Form::preferred(request);
        let body = match form {
            Form::Problem | Form::Json => Problem::of(self).to_json(),
            Form::Text => Bytes::from(format!("{}\n", self.detail)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
        response
    }

    /// The headers of a refusal, whoever wrote its body.
    pub fn write_headers(&self, headers: &mut HeaderMap, settings: &HeaderSettings) {
        let _full = headers.try_insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match (self.decision, self.retry_after) {
            (Some(decision), retry_after) => write_headers(headers, decision, settings, retry_after),
            (None, Some(retry_after)) => retry_after.write(headers),
            (None, None) => {}
        }
    }
}
