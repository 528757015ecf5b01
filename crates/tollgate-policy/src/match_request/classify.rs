//! Finds the priority class of a request or descriptor.
//!
//! The first class whose conditions hold is the class of the request. The class without conditions is
//! everything else, wherever it stands; if every class has conditions, the last one is.
//!
//! A caller must not raise its class by its spelling or by a claim, and may lower it:
//!
//! - A path with several readings gets the least important class of its readings.
//! - A condition on a property with several different values does not hold for certain. If it may hold,
//!   the request gets no more important class than that.
//! - A request gets no more important class than it has without its headers, cookies and query
//!   parameters. This includes users, API keys, tenants and plans that are read from them. Classes
//!   that say `trust_headers` read these values as all others.
//! - A class with a condition on a header, a cookie or a query parameter lowers the class of a request
//!   that satisfies it, also if an earlier class matches. Users, keys, tenants and plans describe the
//!   caller and ask for no class, so classes by them only take part in the first match.
//!
//! Tested by `tests/priorities.rs`.

use crate::lists::ListKind;
use crate::path::Readings;
use crate::policy::Policy;
use crate::priority::PriorityClass;
use crate::properties::{Properties, TrustedProperties, View};
use crate::request::Request;

use super::Checks;

impl Policy {
    /// Sets the class of an input, if the policy has classes. Of inputs that are decided together, the
    /// least important class remains in `out`. Returns the class of this input.
    #[inline]
    pub(super) fn add_class<'p>(
        &'p self,
        out: &mut Checks<'p>,
        classify: impl FnOnce() -> Option<&'p PriorityClass>,
    ) -> Option<&'p PriorityClass> {
        if self.priorities.is_empty() {
            return None;
        }
        let class = classify();
        out.priority = out.priority.max_by_rank(class);
        class
    }

    /// Returns the class of an input whose path has one reading, or that has no path.
    #[inline(never)]
    pub(super) fn classify<'r>(&self, view: &impl Properties<'r>) -> Option<&PriorityClass> {
        let mut rank = self.first_match(|class, kind| class.holds(kind, self, view));
        if self.priorities.iter().any(PriorityClass::is_claimable) {
            let verified = TrustedProperties(view);
            let without_claims = self.first_match(|class, kind| {
                if class.trusts_headers {
                    class.holds(kind, self, view)
                } else {
                    class.holds(kind, self, &verified)
                }
            });
            rank = rank.max(without_claims).max(self.claimed_rank(view));
        }
        self.priorities.get(rank)
    }

    /// Returns the rank of the least important class that the request claims for itself, or 0.
    fn claimed_rank<'r>(&self, view: &impl Properties<'r>) -> usize {
        let is_claimed =
            |class: &PriorityClass| class.is_claimable_directly() && class.holds(ListKind::Deny, self, view);
        self.priorities.iter().rposition(is_claimed).unwrap_or(0)
    }

    /// Returns the class of a request whose path has several readings.
    pub(super) fn classify_readings<R: Request + ?Sized>(
        &self,
        request: &R,
        readings: &Readings<'_>,
    ) -> Option<&PriorityClass> {
        // Such a path is refused.
        if readings.is_excessive() {
            return self.priorities.last();
        }
        let class = |path| self.classify(&View { request, path, readings: None, pattern: None });
        readings.iter().fold(None, |least: Option<&PriorityClass>, path| least.max_by_rank(class(path)))
    }

    /// Returns the rank of the first class that `holds` certainly (`Allow`), but no more important one
    /// than the classes before it that may hold (`Deny`).
    fn first_match(&self, holds: impl Fn(&PriorityClass, ListKind) -> bool) -> usize {
        let mut rank = self.rank_of_others();
        for (at, class) in self.priorities.iter().enumerate().filter(|(_, class)| class.has_conditions()) {
            if holds(class, ListKind::Allow) {
                return at;
            }
            if holds(class, ListKind::Deny) {
                rank = rank.max(at);
            }
        }
        rank
    }

    /// Returns the rank of requests that no class with conditions matches.
    pub(crate) fn rank_of_others(&self) -> usize {
        let everything_else = self.priorities.iter().position(|class| class.conditions.is_none());
        everything_else.unwrap_or(self.priorities.len().saturating_sub(1))
    }
}

/// The less important of two classes.
trait MaxByRank {
    fn max_by_rank(self, other: Self) -> Self;
}

impl MaxByRank for Option<&PriorityClass> {
    fn max_by_rank(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(other)) if one.rank > other.rank => Some(one),
            (one, other) => other.or(one),
        }
    }
}
