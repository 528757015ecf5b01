//! The decision of a request that is held, for the case that the request loses its place.
//!
//! A surface that holds a request keeps the prepared headers of its response and not its decision, which borrows from
//! the limiter. A request that a more important one can displace has to be refused later, so its decision is kept in a
//! form without the borrow.

use std::fmt;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_policy::{DetachedChecks, Input, Matched};
use tollgate_store::Outcomes;

use super::{Decision, Fate};
use crate::id::DecisionId;
use crate::limiter::Limiter;
use crate::observer::NotHeld;
use crate::outage::LocalDecision;

/// The decision of an admitted request that is held for its [wait](Decision::wait), without a borrow of its limiter.
pub struct HeldDecision<S> {
    limiter: Limiter<S>,
    checks: DetachedChecks,
    outcomes: Outcomes,
    at: Option<Timestamp>,
    wall_ahead: i64,
    id: DecisionId,
    degraded: Option<Box<LocalDecision>>,
}

impl<S> Limiter<S> {
    /// Keeps the decision of an admitted request that is held and may be displaced. `id` is that of the decision.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter, NotHeld};
    /// let limiter = Limiter::from_policy(
    ///     "limits: [{by: user, algorithm: leaky-queue, rate: 10/second, queue: {length: 1}}]",
    /// )?;
    /// let call = Call::new("GET", "/").user("ann");
    /// assert!(limiter.check(&call).wait().is_zero());
    /// let second = limiter.check(&call);
    /// let held = limiter.hold_decision(&second, limiter.id_of(&second));
    /// let refused = held.displace(Some(&call));
    /// assert!(!refused.is_allowed() && refused.not_held() == Some(NotHeld::Displaced));
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn hold_decision(&self, decision: &Decision<'_>, id: DecisionId) -> HeldDecision<S> {
        HeldDecision {
            limiter: self.clone(),
            checks: self.policy().detach(Matched::Applies, decision.checks.clone()),
            outcomes: decision.outcomes.clone(),
            at: decision.at,
            wall_ahead: decision.wall_ahead,
            id,
            degraded: decision.degraded.clone(),
        }
    }
}

impl<S> HeldDecision<S> {
    /// Returns the limiter that decided.
    pub const fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Refuses the request because a more important one took its place, and reports that to the observer. `input` is
    /// the one that was decided. The caller releases the [place](Limiter::queue_place) of the request.
    pub fn displace(&self, input: Option<&dyn Input>) -> Decision<'_> {
        let mut decision = Decision::undecided();
        let _applies = self.limiter.policy().attach(&self.checks, &mut decision.checks);
        decision.outcomes.clone_from(&self.outcomes);
        (decision.fate, decision.at, decision.wall_ahead) = (Fate::Admitted, self.at, self.wall_ahead);
        (decision.id, decision.degraded) = (Some(self.id), self.degraded.clone());
        self.limiter.refuse_wait(input, &mut decision, Duration::ZERO, NotHeld::Displaced);
        decision
    }
}

impl<S> fmt::Debug for HeldDecision<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldDecision").field("checks", &self.checks).finish_non_exhaustive()
    }
}
