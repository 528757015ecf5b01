//! The ways to share a limit.

use serde::Serialize;

/// A way in which a fleet shares a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FleetMode {
    /// Each request is decided by the shared store.
    Exact,
    /// Nodes lease units from the shared store.
    Leased,
    /// Each node has its part of the limit.
    Split,
    /// Each node has a copy of the limit, and reconciles it at intervals.
    Sync,
}

impl FleetMode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Leased, Self::Split, Self::Sync];

    /// Returns the name on the command line, in tables and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
            Self::Split => "split",
            Self::Sync => "sync",
        }
    }

    /// Returns the mode with this name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }
}
