//! The reason why another node gave no answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_store::StoreError;

/// The reason why another node gave no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The deadline passed. A charge that is made later is undone.
    TimedOut(Duration),
    /// Nothing was done.
    Refused(Arc<str>),
    /// The partition has moved to another node. Nothing was done.
    Moved(Arc<str>),
    /// The call may have been executed.
    Failed(Arc<str>),
}

impl Failure {
    pub(crate) fn refused(why: impl Into<Arc<str>>) -> Self {
        Self::Refused(why.into())
    }

    pub(crate) fn failed(why: impl Into<Arc<str>>) -> Self {
        Self::Failed(why.into())
    }

    /// Combines two failures of one request: if either may have been executed, the request may.
    pub(crate) fn or_worse(self, other: &Self) -> Self {
        match (&self, other) {
            (Self::Failed(_), _) => self,
            (_, Self::Failed(_)) => other.clone(),
            (Self::TimedOut(_), _) => self,
            (_, Self::TimedOut(_)) => other.clone(),
            _ => self,
        }
    }

    /// Returns the failure for a request that may have been executed.
    pub(crate) fn in_doubt(self) -> Self {
        match self {
            Self::Refused(why) | Self::Moved(why) => Self::Failed(why),
            failure => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(deadline) => write!(f, "no answer within {deadline:?}"),
            Self::Refused(why) | Self::Moved(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

/// A node without an answer is an outage of its keys, not of the store.
impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::Part(Box::new(match failure {
            Failure::TimedOut(deadline) => Self::TimedOut(deadline),
            Failure::Refused(why) | Failure::Moved(why) => Self::Refused((*why).into()),
            Failure::Failed(why) => Self::Failed((*why).into()),
        }))
    }
}
