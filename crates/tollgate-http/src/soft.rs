//! Marks requests that have reached a soft threshold.
//!
//! A limit with a `soft` threshold warns before it refuses. The inner service may then do less:
//! omit expensive parts, answer from a cache, or lower the priority. It reads the names of the
//! limits from the request header `Tollgate-Soft` or, in Rust, from a [`SoftNotice`] in the
//! request's extensions.
//!
//! Clients cannot set the mark: the header of a client is removed, whether a limit applies or not.
//! An inner layer recognizes the mark of an outer layer by the extension, which clients cannot
//! send.
//!
//! Not here: delaying requests (`tarpit`).
//!
//! Invariant: a service behind a layer sees only `Tollgate-Soft` headers that layers wrote.
//! `tests/soft.rs` checks this.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate::{Decision, Span};

/// The header that names the limits whose soft threshold is reached.
pub static TOLLGATE_SOFT: HeaderName = HeaderName::from_static("tollgate-soft");

/// The separator between names.
const SEPARATOR: &str = ", ";

/// Iterates over the limits whose soft threshold an admitted request has reached, in policy order.
///
/// A refused request yields no names.
pub fn soft_limits<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = &'d str> {
    reached(decision).map(|(name, _)| name)
}

/// Returns the value of `Tollgate-Soft` for a decision; `None` if no soft threshold is reached.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::soft_value;
/// let limiter = Limiter::from_policy("limits: [{name: api, by: ip, bucket: 2/minute, soft: 80%}]")?;
/// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
/// assert_eq!(soft_value(&limiter.check(&call)), None);
/// assert_eq!(soft_value(&limiter.check(&call)).unwrap(), "api");      // the bucket is now empty
/// assert_eq!(soft_value(&limiter.check(&call)), None);                // refused
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn soft_value(decision: &Decision<'_>) -> Option<HeaderValue> {
    // Most requests reach no threshold.
    if !decision.limits().any(|limit| limit.is_soft()) {
        return None;
    }
    joined(soft_limits(decision))
}

/// Iterates over the limits, each once, with the delay that it asks for.
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

/// Joins names of limits. They consist of letters, digits, `.`, `_` and `-`, so they are valid in a
/// header.
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

/// The soft thresholds that a request has reached, in the extensions of the request.
///
/// ```
/// # use tollgate_http::SoftNotice;
/// # fn rows(request: http::Request<()>) -> usize {
/// match request.extensions().get::<SoftNotice>() {
///     Some(soft) if soft.limits().any(|name| name == "search") => 10,     // fewer rows for now
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
    /// The limits whose threshold is reached, including those of outer layers.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        self.names.to_str().unwrap_or_default().split(SEPARATOR)
    }

    /// How long the request was delayed; zero if it was only marked.
    pub const fn held(&self) -> Duration {
        self.held
    }
}

/// The soft thresholds that a decision reached.
pub(crate) struct Soft {
    names: HeaderValue,
    /// The longest delay that one of the limits asks for.
    pub(crate) tarpit: Duration,
}

impl Soft {
    /// Returns `None` without allocating if no threshold is reached, which is the common case.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        let names = soft_value(decision)?;
        let longest = reached(decision).map(|(_, tarpit)| tarpit).max().unwrap_or(Span::ZERO);
        Some(Self { names, tarpit: Duration::from_micros(longest.as_micros()) })
    }

    /// Returns the value of `Tollgate-Soft`.
    pub(crate) fn into_value(self) -> HeaderValue {
        self.names
    }

    /// Marks the request, which was delayed for `held`.
    pub(crate) fn mark(self, parts: &mut Parts, held: Duration) {
        let softened = match parts.extensions.remove::<SoftNotice>() {
            Some(outer) => outer.and(&self.names, held),
            None => SoftNotice { names: self.names, held },
        };
        // A full header map stays unchanged.
        let _full = parts.headers.try_insert(&TOLLGATE_SOFT, softened.names.clone());
        parts.extensions.insert(softened);
    }
}

impl SoftNotice {
    /// Appends the names of this layer to those of the outer layer.
    fn and(self, more: &HeaderValue, held: Duration) -> Self {
        let is_new = |name: &&str| self.limits().all(|it| it != *name);
        let more = more.to_str().unwrap_or_default().split(SEPARATOR).filter(is_new);
        let names = joined(self.limits().chain(more)).unwrap_or_else(|| self.names.clone());
        Self { names, held: self.held.saturating_add(held) }
    }
}

/// Removes the marks that a client sent.
#[inline]
pub(crate) fn remove_client_marks(parts: &mut Parts) {
    if parts.headers.contains_key(&TOLLGATE_SOFT) && parts.extensions.get::<SoftNotice>().is_none() {
        parts.headers.remove(&TOLLGATE_SOFT);
    }
}
