//! Tells the service behind a layer the priority class of a request.
//!
//! The service reads the name of the class from the request header `Tollgate-Priority` or, in Rust,
//! from a [`RequestPriority`] in the request's extensions.
//!
//! Clients cannot set it: the header of a client is removed, whether the policy has classes or not. An
//! inner layer without classes keeps the header of an outer layer, which it recognizes by the extension.
//!
//! Invariant: a service behind a layer sees only `Tollgate-Priority` headers that layers wrote.
//! `tests/priority.rs` checks this.

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use tollgate::Decision;

/// The header that names the priority class of a request.
pub static TOLLGATE_PRIORITY: HeaderName = HeaderName::from_static("tollgate-priority");

/// The priority class of a request, in the extensions of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPriority(HeaderValue);

impl RequestPriority {
    /// The name of the class.
    pub fn name(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Returns `None` if the policy has no classes.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Box<Self>> {
        priority_value(decision).map(|value| Box::new(Self(value)))
    }

    /// Marks the request.
    pub(crate) fn mark(self, parts: &mut Parts) {
        // A full header map stays unchanged.
        let _full = parts.headers.try_insert(&TOLLGATE_PRIORITY, self.0.clone());
        parts.extensions.insert(self);
    }
}

/// Returns the value of `Tollgate-Priority` for a decision; `None` if the policy has no classes.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// # use tollgate_http::priority_value;
/// let limiter = Limiter::from_policy("
/// priorities: [{name: critical, endpoint: /payments/**}, {name: normal}]
/// limits: [{by: ip, bucket: 5/minute}]
/// ")?;
/// assert_eq!(priority_value(&limiter.check(&Call::new("POST", "/payments/1"))).unwrap(), "critical");
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn priority_value(decision: &Decision<'_>) -> Option<HeaderValue> {
    // Names of classes consist of letters, digits, `.`, `_` and `-`, so they are valid in a header.
    HeaderValue::from_str(decision.priority()?.name()).ok()
}

/// Removes the class that a client sent.
#[inline]
pub(crate) fn remove_client_priority(parts: &mut Parts) {
    if parts.headers.contains_key(&TOLLGATE_PRIORITY) && parts.extensions.get::<RequestPriority>().is_none() {
        parts.headers.remove(&TOLLGATE_PRIORITY);
    }
}
