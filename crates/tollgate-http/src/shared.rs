//! A limiter whose policy can be replaced while it serves.
//!
//! A request takes the limiter that is in force when it arrives and keeps it to
//! its end, so one policy decides it and words its answer. Whoever comes after a
//! [`replace`](SharedLimiter::replace) gets the new one. Nobody waits.
//!
//! Not here: noticing that a file has changed (the binary).

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::{Limiter, MemoryStore, Policy};

/// A limiter whose policy can be replaced while it serves. Clones are the same limiter.
///
/// ```
/// # use tollgate::{Call, Limiter, Policy};
/// # use tollgate_http::SharedLimiter;
/// let limiter = Limiter::from_policy("limits: [{name: api, by: global, bucket: 5/minute}]")?;
/// let shared = SharedLimiter::from(limiter);
/// let left = |shared: &SharedLimiter| {
///     let limiter = shared.load();
///     limiter.check(&Call::new("GET", "/")).limiting().map(|limit| limit.outcome().remaining)
/// };
/// assert_eq!(left(&shared), Some(4));
/// shared.replace(Policy::parse("limits: [{name: api, by: global, bucket: 100/minute}]")?);
/// assert_eq!(left(&shared), Some(98));                 // what was spent still counts
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct SharedLimiter<S = MemoryStore>(Arc<ArcSwap<Limiter<S>>>);

impl<S> SharedLimiter<S> {
    /// The limiter in force.
    pub fn load(&self) -> Arc<Limiter<S>> {
        self.0.load_full()
    }

    /// Puts another policy in force, on the same store. Limits that keep their
    /// name keep what was spent.
    #[allow(clippy::needless_pass_by_value, reason = "a policy that is put in force is given away")]
    pub fn replace(&self, policy: Policy) {
        // Two replacements at once: the later one succeeds the earlier one, and
        // not the one before it, or usage under the earlier would be forgotten.
        self.0.rcu(|current| current.with_policy(policy.clone()));
    }
}

impl<S> From<Limiter<S>> for SharedLimiter<S> {
    fn from(limiter: Limiter<S>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(limiter)))
    }
}

impl<S> Clone for SharedLimiter<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
