//! The failure of a call to a store in another process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::StoreError;

/// The reason why a call to a store in another process has no answer, shared by all requests of the call.
///
/// It becomes a [`StoreError`] for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a store that classifies its errors has to know all of them")]
pub enum CallFailure {
    /// The deadline passed; the charge may have been applied, and is undone if the store can do so.
    TimedOut(Duration),
    /// Nothing was written.
    Refused(Arc<str>),
    /// The connection broke, or the reply is invalid; the charge may have been applied.
    Failed(Arc<str>),
    /// The key holds a value that Tollgate did not write.
    Foreign(Arc<str>),
    /// The keys are being moved to another node; nothing was written.
    Migrating(Arc<str>),
}

impl CallFailure {
    /// Creates the failure of a call that wrote nothing.
    pub fn refused(why: impl Into<Arc<str>>) -> Self {
        Self::Refused(why.into())
    }

    /// Creates the failure of a call that may have been applied.
    pub fn failed(why: impl Into<Arc<str>>) -> Self {
        Self::Failed(why.into())
    }

    /// Combines two failures of one request: if either may have been applied, the result may have
    /// been applied.
    #[must_use]
    pub fn or_worse(self, other: &Self) -> Self {
        match (&self, other) {
            (Self::Failed(_), _) => self,
            (_, Self::Failed(_)) => other.clone(),
            (Self::TimedOut(_), _) => self,
            (_, Self::TimedOut(_)) => other.clone(),
            _ => self,
        }
    }

    /// Returns the failure for a request that may have been applied.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Refused(why) | Self::Foreign(why) | Self::Migrating(why) => Self::Failed(why),
            failure => failure,
        }
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(deadline) => write!(f, "no answer within {deadline:?}"),
            Self::Refused(why) | Self::Failed(why) | Self::Foreign(why) | Self::Migrating(why) => {
                f.write_str(why)
            }
        }
    }
}

impl From<CallFailure> for StoreError {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::TimedOut(deadline) => Self::TimedOut(deadline),
            CallFailure::Refused(why) => Self::Refused((*why).into()),
            CallFailure::Failed(why) => Self::Failed((*why).into()),
            CallFailure::Foreign(name) => Self::Foreign((*name).into()),
            CallFailure::Migrating(why) => Self::Migrating((*why).into()),
        }
    }
}
