//! What a key has spent before this table first saw it under its present rule.
//!
//! A reload that changes a limit's numbers does not visit its keys. Each key is
//! carried over when it is next met: its state under the old rule is read,
//! translated, filed under the new one, and forgotten under the old.
//!
//! That is so for whoever is refused or only looks, too. Were it carried over anew each
//! time until somebody is admitted, a key at its limit would be refused for as long as
//! the old rule remembers, however fast the new one gives back.
//! Held by `conformance::carrying`.

use tollgate_core::State;

/// An earlier life.
pub(super) trait Past {
    /// Whether there can have been one.
    const EXISTS: bool;
    /// The state it left, translated to the present rule; none if it left nothing.
    fn state(&self) -> Option<State>;
    /// It has been carried over and must not count again.
    fn forget(&self);
}

/// A key without one.
pub(super) struct NoPast;

impl Past for NoPast {
    const EXISTS: bool = false;

    #[inline]
    fn state(&self) -> Option<State> {
        None
    }

    fn forget(&self) {}
}
