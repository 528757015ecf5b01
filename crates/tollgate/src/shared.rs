//! A limiter whose policy can be replaced at runtime.
//!
//! A request loads the current limiter when it arrives and keeps it to its end, so one policy
//! decides and writes the response. Requests after a [`replace`](SharedLimiter::replace) use the
//! new policy. No request waits for a replacement.
//!
//! Watching files is in the daemon.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_policy::Policy;
use tollgate_store::MemoryStore;

use crate::Limiter;

/// A limiter whose policy can be replaced at runtime.
///
/// Clones share the same limiter.
///
/// ```
/// # use tollgate::{Call, Limiter, Policy, SharedLimiter};
/// let limiter = Limiter::from_policy("limits: [{name: api, by: global, bucket: 5/minute}]")?;
/// let shared = SharedLimiter::from(limiter);
/// let left = |shared: &SharedLimiter| {
///     let limiter = shared.load();
///     limiter.check(&Call::new("GET", "/")).limiting().map(|limit| limit.outcome().remaining)
/// };
/// assert_eq!(left(&shared), Some(4));
/// shared.replace(Policy::parse("limits: [{name: api, by: global, bucket: 100/minute}]")?);
/// assert_eq!(left(&shared), Some(98));                 // earlier usage still counts
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct SharedLimiter<S = MemoryStore>(Arc<ArcSwap<Limiter<S>>>);

impl<S> SharedLimiter<S> {
    /// Returns the current limiter.
    pub fn load(&self) -> Arc<Limiter<S>> {
        self.0.load_full()
    }

    /// Replaces the policy and keeps the store. Limits that keep their name keep their usage.
    #[allow(clippy::needless_pass_by_value, reason = "a policy that is put in force is given away")]
    pub fn replace(&self, policy: Policy) {
        // Of two concurrent replacements, the later must build on the earlier, or usage counted
        // under the earlier policy would be lost.
        self.0.rcu(|current| current.with_policy(policy.clone()));
        self.load().update_lines();
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

impl<S> fmt::Debug for SharedLimiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}
