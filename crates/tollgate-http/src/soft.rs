//! Marks: telling the service behind that an allowance is nearly spent.
//!
//! A limit with a `soft` threshold says so before it refuses. The service behind may then
//! do less: leave out what is dear, answer from a cache, sort last. It reads the limits'
//! names in the request header `Tollgate-Soft`, or, in Rust, a [`SoftNotice`] in the
//! request's extensions.
//!
//! A client cannot say so of itself. What it sends under that name is removed, whether a
//! limit applies or not. Of two layers one behind the other, the inner one tells what the
//! outer one set from what a client sent by the extension, which nobody can send.
//!
//! Not here: holding requests back (`tarpit`).
//!
//! Invariant: a service behind a layer sees no `Tollgate-Soft` but the layers' own. Held by
//! `tests/soft.rs`.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate::{Decision, Span};

/// The header that names the limits whose soft threshold is reached.
pub static TOLLGATE_SOFT: HeaderName = HeaderName::from_static("tollgate-soft");

/// What stands between two names.
const SEPARATOR: &str = ", ";

/// The names of the limits whose soft threshold an admitted request has reached, in the
/// order of the policy. None for what is refused: that is beyond every threshold.
pub fn soft_limits<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = &'d str> {
    reached(decision).map(|(name, _)| name)
}

/// The same names as the value of `Tollgate-Soft`; `None` where there are none.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::soft_value;
/// let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 2/minute, soft: 80%}]")?;
/// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
/// assert_eq!(soft_value(&limiter.check(&call)), None);
/// assert_eq!(soft_value(&limiter.check(&call)).unwrap(), "api");      // all of it is spent
/// assert_eq!(soft_value(&limiter.check(&call)), None);                // and this is a refusal
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn soft_value(decision: &Decision<'_>) -> Option<HeaderValue> {
    joined(soft_limits(decision))
}

/// Each limit once, with how long it holds requests back.
fn reached<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = (&'d str, Span)> {
    let allowed = decision.is_allowed();
    let soft = decision.limits().filter(move |limit| allowed && limit.is_soft());
    let mut known = SmallVec::<[&str; 4]>::new();
    soft.filter_map(move |it| {
        let (name, tarpit) = (it.limit().name(), it.limit().soft()?.tarpit);
        let is_new = !known.contains(&name);
        known.push(name);
        is_new.then_some((name, tarpit))
    })
}

/// Names of limits are letters, digits, `.`, `_` and `-`: always fit for a header.
fn joined<'n>(names: impl Iterator<Item = &'n str>) -> Option<HeaderValue> {
    let mut line = String::new();
    for name in names {
        if !line.is_empty() {
            line.push_str(SEPARATOR);
        }
        line.push_str(name);
    }
    if line.is_empty() { None } else { HeaderValue::try_from(line).ok() }
}

/// In the extensions of a request that has reached a soft threshold: which, and how long
/// it was held back for it.
///
/// ```
/// # use tollgate_http::SoftNotice;
/// # fn rows(request: http::Request<()>) -> usize {
/// match request.extensions().get::<SoftNotice>() {
///     Some(soft) if soft.limits().any(|name| name == "search") => 10,     // less, and soon more again
///     _ => 100,
/// }
/// # }
/// # assert_eq!(rows(http::Request::new(())), 100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftNotice {
    names: HeaderValue,
    held: Duration,
}

impl SoftNotice {
    /// The limits whose threshold is reached; with layers one behind the other, of all so far.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        self.names.to_str().unwrap_or_default().split(SEPARATOR)
    }

    /// How long the request had to wait for it. Zero where it was only marked.
    pub const fn held(&self) -> Duration {
        self.held
    }
}

/// What a decision that is soft asks for.
pub(crate) struct Soft {
    names: HeaderValue,
    /// The longest that one of the limits wants it held back.
    pub(crate) tarpit: Duration,
}

impl Soft {
    /// Nearly no decision is, and that is found out without allocating.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        let names = soft_value(decision)?;
        let longest = reached(decision).map(|(_, tarpit)| tarpit).max().unwrap_or(Span::ZERO);
        Some(Self { names, tarpit: Duration::from_micros(longest.as_micros()) })
    }

    /// Marks the request, which was held back for so long.
    pub(crate) fn mark(self, parts: &mut Parts, held: Duration) {
        let softened = match parts.extensions.remove::<SoftNotice>() {
            Some(outer) => outer.and(&self.names, held),
            None => SoftNotice { names: self.names, held },
        };
        // A map that is full of headers has no room for one more.
        let _full = parts.headers.try_insert(&TOLLGATE_SOFT, softened.names.clone());
        parts.extensions.insert(softened);
    }
}

impl SoftNotice {
    /// What the outer layer said, and then what this one says.
    fn and(self, more: &HeaderValue, held: Duration) -> Self {
        let is_new = |name: &&str| self.limits().all(|it| it != *name);
        let more = more.to_str().unwrap_or_default().split(SEPARATOR).filter(is_new);
        let names = joined(self.limits().chain(more)).unwrap_or_else(|| self.names.clone());
        Self { names, held: self.held.saturating_add(held) }
    }
}

/// Removes what a client says of itself.
#[inline]
pub(crate) fn forget_claims(parts: &mut Parts) {
    if parts.headers.contains_key(&TOLLGATE_SOFT) && parts.extensions.get::<SoftNotice>().is_none() {
        parts.headers.remove(&TOLLGATE_SOFT);
    }
}
