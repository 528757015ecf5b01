//! Finds the priority class of a request or descriptor.
//!
//! The first class whose conditions hold is the class of the request. The class without conditions is
//! everything else, wherever it stands; if every class has conditions, the last one is.
//!
//! A caller must not raise its class by its spelling or by a claim:
//!
//! - A path with several readings gets the least important class of its readings.
//! - A condition on a property with several different values does not hold for certain. If it may hold,
//!   the request gets no more important class than that.
//! - A class with a condition on a header, a cookie or a query parameter only lowers the class that the
//!   request has without such classes, unless it says `trust_headers`.
//!
//! Tested by `tests/priorities.rs`.

use crate::lists::ListKind;
use crate::path::Readings;
use crate::policy::Policy;
use crate::priority::PriorityClass;
use crate::properties::{Properties, View};
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
        let mut rank = self.rank_among(view, |_| true);
        if self.priorities.iter().any(PriorityClass::is_claimable) {
            rank = rank.max(self.rank_among(view, |class| !class.is_claimable()));
        }
        self.priorities.get(rank)
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

    /// Returns the rank of an input, with regard to some of the classes.
    fn rank_among<'r>(&self, view: &impl Properties<'r>, regards: impl Fn(&PriorityClass) -> bool) -> usize {
        let mut rank = self.rank_of_others();
        for (at, class) in self.priorities.iter().enumerate() {
            let Some(conditions) = class.conditions.as_ref().filter(|_| regards(class)) else { continue };
            if conditions.hold(ListKind::Allow, self, view) {
                return at;
            }
            if conditions.hold(ListKind::Deny, self, view) {
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
