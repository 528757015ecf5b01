//! The failure of a call, shared by all requests of the call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate_store::StoreError;

/// The reason why a call has no reply.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The deadline passed; the charge may have been applied.
    TimedOut(Duration),
    /// Nothing was written.
    Refused(Arc<str>),
    /// The connection broke or the reply is invalid; the charge may have been applied.
    Failed(Arc<str>),
    /// The key holds a value that Tollgate did not write.
    Foreign(Arc<str>),
    /// The slot of the keys is being moved to another node; nothing was written.
    Migrating(Arc<str>),
}

impl Failure {
    pub(crate) fn refused(why: impl Into<Arc<str>>) -> Self {
        Self::Refused(why.into())
    }

    pub(crate) fn failed(why: impl Into<Arc<str>>) -> Self {
        Self::Failed(why.into())
    }

    /// Combines two failures of one request: if either may have been applied, the result may have
    /// been applied.
    pub(crate) fn or_worse(self, other: &Self) -> Self {
        match (&self, other) {
            (Self::Failed(_), _) => self,
            (_, Self::Failed(_)) => other.clone(),
            (Self::TimedOut(_), _) => self,
            (_, Self::TimedOut(_)) => other.clone(),
            _ => self,
        }
    }

    /// Returns the failure for a request that may have been applied.
    pub(crate) fn in_doubt(self) -> Self {
        match self {
            Self::Refused(why) | Self::Foreign(why) | Self::Migrating(why) => Self::Failed(why),
            failure => failure,
        }
    }

    /// Classifies an error of the client library for a call that was sent.
    pub(crate) fn of(error: &RedisError) -> Self {
        let text = explain(error);
        match error.kind() {
            // A script that fails may already have written.
            ErrorKind::Server(ServerErrorKind::ResponseError) => Self::failed(text),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::Migrating(text.into()),
            ErrorKind::Server(_) | ErrorKind::AuthenticationFailed | ErrorKind::ClusterConnectionNotFound => {
                Self::refused(text)
            }
            // An error code of the server: the command was not executed.
            ErrorKind::Extension => Self::refused(text),
            _ => Self::failed(text),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(deadline) => write!(f, "no answer within {deadline:?}"),
            Self::Refused(why) | Self::Failed(why) | Self::Foreign(why) | Self::Migrating(why) => {
                f.write_str(why)
            }
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TimedOut(deadline) => Self::TimedOut(deadline),
            Failure::Refused(why) => Self::Refused((*why).into()),
            Failure::Failed(why) => Self::Failed((*why).into()),
            Failure::Foreign(name) => Self::Foreign((*name).into()),
            Failure::Migrating(why) => Self::Migrating((*why).into()),
        }
    }
}

/// Formats an error with advice.
pub(crate) fn explain(error: &RedisError) -> String {
    let help = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            "user or password is wrong: see `store`"
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => {
            "this user lacks permissions that Tollgate needs: see the ACL in the documentation of the store"
        }
        (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
            "this is a replica: name the primary, or let Sentinel or Cluster find it"
        }
        (ErrorKind::Server(ServerErrorKind::ClusterDown) | ErrorKind::ClusterConnectionNotFound, _) => {
            "some slots of the cluster are not covered: see `CLUSTER INFO`"
        }
        (ErrorKind::Server(ServerErrorKind::TryAgain), _) => "the slot is being moved to another node",
        (_, Some("OOM")) => "Redis is out of memory and cannot evict keys: give it more memory",
        (_, Some("BUSY")) => "a script blocks the server: see `SCRIPT KILL`",
        (_, Some("MISCONF")) => "Redis cannot write its snapshot to disk and refuses writes",
        (ErrorKind::MasterNameNotFoundBySentinel, _) => "the sentinels do not know a primary of that name",
        _ => return error.to_string(),
    };
    format!("{error} ({help})")
}
