//! What a key has spent before this table first saw it under its present rule.
//!
//! A reload that changes a limit's numbers does not visit its keys. Each key is
//! carried over when it next spends: its state under the old rule is read,
//! translated, filed under the new one, and forgotten under the old.

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
