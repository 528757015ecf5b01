//! The usage of a key under the rules that its present rule has replaced.
//!
//! A reload that changes a rule's identity does not visit its keys. The first time that a
//! key is met under the new rule, its states under the old ones are expressed in the new
//! numbers ([`Rule::carry_over`](tollgate_core::Rule::carry_over)) and filed under the new
//! rule. Requests that are refused or only look do so too. Otherwise a key at its limit
//! would be carried over anew each time, and be refused for as long as the old rule
//! remembers, however fast the new one gives back.
//!
//! The old states stay. Units that the new rule admits are charged to them as well, so
//! that a rule which comes back finds what was spent meanwhile. A mark, filed under an id
//! made of both rules, says that a state was carried over to a rule, which then does not
//! count it twice.
//! Tested by `conformance::carrying` and `conformance::reloading`.

use tollgate_core::State;

/// An earlier life.
pub(super) trait PriorUsage {
    /// Whether there can have been one.
    const EXISTS: bool;
    /// The state it left, translated to the present rule; none if it left nothing.
    fn state(&self) -> Option<State>;
    /// The most that the present state can have spent: where the present rule is a raise of
    /// an earlier one, at least as much is available as under that one.
    fn bound(&self) -> Option<State>;
    /// The state has been filed under the present rule.
    fn carried(&self);
}

/// A key without one.
pub(super) struct NoPriorUsage;

impl PriorUsage for NoPriorUsage {
    const EXISTS: bool = false;

    #[inline]
    fn state(&self) -> Option<State> {
        None
    }

    fn bound(&self) -> Option<State> {
        None
    }

    fn carried(&self) {}
}
