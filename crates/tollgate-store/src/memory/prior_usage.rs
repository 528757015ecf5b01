//! The usage of a key under the rules that its present rule has replaced.
//!
//! A reload that changes the identity of a rule does not visit its keys. At the first access to a
//! key under the new rule, its states under the old ones are converted to the new numbers
//! ([`Rule::carry_over`](tollgate_core::Rule::carry_over)) and stored under the new rule. Refused
//! requests and reads do so too. Otherwise a key at its limit would be carried over again each
//! time, and be refused until its old state expires, however fast the new rule refills.
//!
//! The old states stay. Units that the new rule admits are charged to them as well, so that a rule
//! that returns finds the usage of the meantime. A mark, stored under an id derived from both
//! rules, records that a state was carried over to a rule, which then does not count it twice.
//! Tested by `conformance::carrying` and `conformance::reloading`.

use tollgate_core::State;

/// The usage of a key under replaced rules.
pub(super) trait PriorUsage {
    /// Whether there can be any.
    const EXISTS: bool;
    /// Returns the earlier state, converted to the present rule, if there is one.
    fn state(&self) -> Option<State>;
    /// Returns the highest usage that the present state can have: if the present rule is a raise of
    /// an earlier one, at least as much is available as under that one.
    fn bound(&self) -> Option<State>;
    /// Called when the state has been stored under the present rule.
    fn carried(&self);
}

/// A key without prior usage.
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
