//! The response to a refused request: status, detail and body.
//!
//! | reason | status | retry? |
//! |---|---|---|
//! | a limit has no room | 429 | `Retry-After` |
//! | the queue of a limit is full, or the wait in it too long | 429 | `Retry-After`: when there is room |
//! | the request would have to wait, and the waiting room is full | 429, without a violated policy | `Retry-After`: its wait |
//! | all slots are taken | 429 | `Retry-After: 1`: a slot may be released at any moment |
//! | the request costs more than a limit ever holds | 429 | no: the detail says that waiting does not help |
//! | deny-listed | 403 | no; the entry is not shown |
//! | key or plan is blocked by a limit | 403 | no |
//! | the request lacks the key of a limit that refuses such requests | 403 | with the key; the detail says which |
//! | the request has several different keys, and the policy refuses such requests | 400 | with one key |
//! | servers may interpret the path differently, and the policy refuses such requests | 400 | with another path |
//! | the store does not answer and a limit says `deny` | 503 | `Retry-After: 1` |
//! | overload: a shedder refuses the priority class of the request | 503 | `Retry-After`, 2 or 3 seconds, at random |
//!
//! A missing key is not 401: that status requires a challenge for credentials (RFC 9110, 15.5.2),
//! and the key may be a header, a cookie or a claim.
//!
//! The body is `application/problem+json` (RFC 9457) with the types of the IETF draft, unless the
//! caller prefers another format or the policy names a dialect. The first dialect that has a body
//! writes it. The body names limits but never keys. Its `instance` ends in the decision ID, which
//! is also in `Tollgate-Decision`. Caches must not store a refusal (RFC 6585, 4).

mod accept;
mod dialects;
mod problem;
mod problem_type;
mod words;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;
use tollgate::policy::{BlockReason, Dialect, HeaderSettings};
use tollgate::{Decision, DecisionId, Fate, Limit, LimitOutcome, NotHeld};

use self::accept::Form;
use self::problem_type::ProblemType;
pub use self::words::promise;
use crate::header_lines::HeaderLines;
use crate::headers::{Kind, RetryAfter, covers_everything, is_primary, spoken, write_headers};

/// The initial capacity of the header map of a refusal.
const INITIAL_HEADERS: usize = 12;

/// The initial capacity of a body in bytes; most bodies are smaller.
const INITIAL_BODY_BYTES: usize = 512;

/// A refusal, ready to be turned into a response.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::{Rejection, RetryAfter};
/// let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 1/minute}]")?;
/// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
/// let admitted = limiter.check(&call);
/// assert!(Rejection::of(&admitted, limiter.id_of(&admitted), None).is_none());
/// let refused = limiter.check(&call);
/// let id = limiter.id_of(&refused);
/// let rejection = Rejection::of(&refused, id, RetryAfter::of(&refused, 0, 0)).expect("it was refused");
/// assert_eq!(rejection.status(), 429);
/// assert_eq!(rejection.detail(), "limit `api` allows 1 per minute; try again in 1 min");
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rejection<'d, 'l> {
    decision: &'d Decision<'l>,
    id: DecisionId,
    /// The dialects of the limit that refused.
    own_dialects: &'d [Dialect],
    status: StatusCode,
    problem: &'static ProblemType,
    detail: String,
    violated: SmallVec<[&'d str; 4]>,
    retry_after: Option<RetryAfter>,
}

impl<'d, 'l: 'd> Rejection<'d, 'l> {
    /// Returns the refusal of a decision; `None` if the decision admits the request.
    pub fn of(decision: &'d Decision<'l>, id: DecisionId, retry_after: Option<RetryAfter>) -> Option<Self> {
        match decision.fate() {
            Fate::Admitted | Fate::AllowListed(_) => None,
            Fate::Uncountable => Some(Self::by_outage(decision, id, retry_after)),
            Fate::Shed(_) => Some(Self::by_shedding(decision, id, retry_after)),
            Fate::DenyListed(_) => {
                Some(Self::uncounted(decision, id, "this caller is on the deny list".to_owned(), None))
            }
            Fate::AmbiguousPath => {
                let detail = "servers may take this path for different places; write it without encoded \
                              slashes, backslashes, `;` and dot segments";
                let rejection = Self::uncounted(decision, id, detail.to_owned(), None);
                Some(Self {
                    status: StatusCode::BAD_REQUEST,
                    problem: &problem_type::BAD_REQUEST,
                    ..rejection
                })
            }
            Fate::Blocked(block) => {
                let rejection = Self::uncounted(decision, id, words::block(block), Some(block.limit));
                Some(match block.reason {
                    BlockReason::Ambiguous => Self {
                        status: StatusCode::BAD_REQUEST,
                        problem: &problem_type::BAD_REQUEST,
                        ..rejection
                    },
                    _ => rejection,
                })
            }
            _ => {
                if matches!(decision.not_held(), Some(NotHeld::NoPlace | NotHeld::Displaced)) {
                    return Some(Self::by_full_room(decision, id, retry_after));
                }
                let limiting = decision.limiting();
                Some(if limiting.is_some_and(|it| it.limit().is_shed()) {
                    Self::by_shedding(decision, id, retry_after)
                } else {
                    Self::by_quota(decision, id, limiting, retry_after)
                })
            }
        }
    }

    /// Returns the refusal of a request that could have waited, if the waiting room had not been full. It is no quota
    /// that refuses, so no violated policy is named.
    pub fn by_full_room(decision: &'d Decision<'l>, id: DecisionId, retry_after: Option<RetryAfter>) -> Self {
        let limiting = decision.limiting();
        let retry_after = retry_after.unwrap_or(RetryAfter::shortly());
        Self {
            decision,
            id,
            own_dialects: limiting.map_or(&[], |limit| limit.limit().dialects()),
            status: StatusCode::TOO_MANY_REQUESTS,
            problem: &problem_type::TOO_MANY_REQUESTS,
            detail: words::full_room(limiting.as_ref(), decision.not_held(), retry_after),
            violated: SmallVec::new(),
            retry_after: Some(retry_after),
        }
    }

    /// Creates a refusal that did not count.
    fn uncounted(
        decision: &'d Decision<'l>,
        id: DecisionId,
        detail: String,
        limit: Option<&'l Limit>,
    ) -> Self {
        Self {
            decision,
            id,
            own_dialects: limit.map_or(&[], Limit::dialects),
            status: StatusCode::FORBIDDEN,
            problem: &problem_type::FORBIDDEN,
            detail,
            violated: limit.map(Limit::name).into_iter().collect(),
            retry_after: None,
        }
    }

    /// Creates the refusal of limits with `on_outage: deny`.
    fn by_outage(decision: &'d Decision<'l>, id: DecisionId, retry_after: Option<RetryAfter>) -> Self {
        Self {
            decision,
            id,
            own_dialects: decision.uncountable().next().map_or(&[], Limit::dialects),
            status: StatusCode::SERVICE_UNAVAILABLE,
            problem: &problem_type::REDUCED_CAPACITY,
            detail: "requests cannot be counted at the moment; try again shortly".to_owned(),
            violated: decision.uncountable().map(|limit| -> &'d str { limit.name() }).collect(),
            retry_after: Some(retry_after.unwrap_or(RetryAfter::shortly())),
        }
    }

    /// Creates the refusal of a shedder: the service is overloaded, and the quota of the caller has
    /// room.
    fn by_shedding(decision: &'d Decision<'l>, id: DecisionId, retry_after: Option<RetryAfter>) -> Self {
        let retry_after = retry_after.unwrap_or(RetryAfter::shortly());
        let violated = match decision.fate() {
            Fate::Shed(shed) => std::iter::once(shed.name()).collect(),
            _ => each_once(refusing(decision).map(|limit| limit.name())),
        };
        Self {
            decision,
            id,
            own_dialects: &[],
            status: StatusCode::SERVICE_UNAVAILABLE,
            problem: &problem_type::REDUCED_CAPACITY,
            detail: words::shed(decision.priority(), retry_after),
            violated,
            retry_after: Some(retry_after),
        }
    }

    fn by_quota(
        decision: &'d Decision<'l>,
        id: DecisionId,
        limiting: Option<LimitOutcome<'d>>,
        retry_after: Option<RetryAfter>,
    ) -> Self {
        let detail = match &limiting {
            Some(limiting) => words::quota(limiting, retry_after),
            None => "too many requests".to_owned(),
        };
        Self {
            decision,
            id,
            own_dialects: limiting.map_or(&[], |limiting| limiting.limit().dialects()),
            status: StatusCode::TOO_MANY_REQUESTS,
            problem: &problem_type::QUOTA_EXCEEDED,
            detail,
            violated: each_once(refusing(decision).map(|limit| limit.name())),
            retry_after,
        }
    }

    /// The decision that refused the request.
    pub const fn decision(&self) -> &'d Decision<'l> {
        self.decision
    }

    /// Replaces the status, for proxies that understand only some statuses.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The ID of the decision.
    pub const fn id(&self) -> DecisionId {
        self.id
    }

    /// The status: 429, 403, 400 or 503.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The reason as a sentence for humans.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The names of the limits that had no room, as in `RateLimit`.
    pub fn violated(&self) -> impl ExactSizeIterator<Item = &'d str> {
        self.violated.iter().copied()
    }

    /// The wait before a retry, if waiting helps.
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        self.retry_after
    }

    /// Whether the request was refused as ambiguous: its path has several readings, or a credential
    /// has several different values.
    pub fn is_ambiguous(&self) -> bool {
        match self.decision.fate() {
            Fate::AmbiguousPath => true,
            Fate::Blocked(block) => block.reason == BlockReason::Ambiguous,
            _ => false,
        }
    }

    /// Whether the request was refused because of overload, not because of its caller's quota.
    pub fn is_shed(&self) -> bool {
        self.decision.is_shed()
    }

    /// Whether the refusal affects every request of the caller, not only one endpoint.
    fn is_global(&self) -> bool {
        self.decision.limiting().is_some_and(|limiting| covers_everything(&limiting))
    }

    /// The unit of the limit that refused.
    fn kind(&self) -> Option<Kind> {
        self.decision.limiting().map(|limiting| Kind::of(&limiting))
    }

    /// Whether the main quota of the caller is used up.
    fn is_primary(&self, settings: &HeaderSettings) -> bool {
        is_primary(self.decision, settings)
    }

    /// Creates status and body in the dialects of the policy, or in the format that the `Accept`
    /// header of the request prefers.
    pub fn response(&self, request: &impl HeaderLines, settings: &HeaderSettings) -> Response<Bytes> {
        let content = self.content(request, settings);
        let (status, content_type) = (content.status(), content.content_type());
        let mut response = Response::new(content.into_bytes());
        *response.status_mut() = status;
        *response.headers_mut() = HeaderMap::with_capacity(INITIAL_HEADERS);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }

    /// Returns status, content type and body. The body is written later.
    pub(crate) fn content(
        &self,
        request: &impl HeaderLines,
        settings: &HeaderSettings,
    ) -> RejectionContent<'_, 'd, 'l> {
        // Dialects describe limits; an ambiguous request gets the plain format.
        let is_malformed = self.is_ambiguous();
        let mut in_dialects = spoken(self.own_dialects, &settings.dialects).filter(|_| !is_malformed);
        match in_dialects.find_map(|it| dialects::body(it, self, request, settings)) {
            Some(rejection) => RejectionContent::Dialect(rejection),
            None => RejectionContent::Plain(self, Form::preferred(request)),
        }
    }

    /// Writes the headers of a refusal, for any body.
    pub fn write_headers(&self, headers: &mut HeaderMap, settings: &HeaderSettings) {
        let _full = headers.try_insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        write_headers(headers, self.decision, self.id, settings, self.retry_after);
    }
}

/// Status, content type and body of a refusal.
pub(crate) enum RejectionContent<'r, 'd, 'l> {
    /// As another service would write them.
    Dialect(dialects::DialectRejection),
    Plain(&'r Rejection<'d, 'l>, Form),
}

impl RejectionContent<'_, '_, '_> {
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Dialect(imitation) => imitation.status,
            Self::Plain(rejection, _) => rejection.status,
        }
    }

    pub(crate) const fn content_type(&self) -> &'static str {
        match self {
            Self::Dialect(imitation) => imitation.content_type,
            Self::Plain(_, form) => form.content_type(),
        }
    }

    /// Whether the response is the most frequent one: a refusal by a quota, as a problem document.
    pub(crate) fn is_plain_quota(&self) -> bool {
        self.status() == StatusCode::TOO_MANY_REQUESTS && matches!(self, Self::Plain(_, Form::Problem))
    }

    /// Appends the body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Dialect(imitation) => out.extend_from_slice(&imitation.body),
            Self::Plain(rejection, Form::Problem | Form::Json) => problem::write_json(rejection, out),
            Self::Plain(rejection, Form::Text) => {
                out.extend_from_slice(rejection.detail.as_bytes());
                out.push(b'\n');
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        if let Self::Dialect(imitation) = self {
            return imitation.body;
        }
        let mut body = Vec::with_capacity(INITIAL_BODY_BYTES);
        self.write(&mut body);
        body.into()
    }
}

/// Returns the limits that refuse the request.
fn refusing<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = LimitOutcome<'d>> {
    decision.limits().filter(|limit| limit.is_binding() && !limit.outcome().is_admitted())
}

/// Removes duplicates: a limit may refuse several requests that were decided together.
fn each_once<'n>(names: impl Iterator<Item = &'n str>) -> SmallVec<[&'n str; 4]> {
    let mut once = SmallVec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}
