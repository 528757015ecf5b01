//! The failure of a call, shared by all requests of the call.

use redis::{ErrorKind, RedisError, ServerErrorKind};
pub(crate) use tollgate_store::CallFailure as Failure;

/// Classifies an error of the client library for a call that was sent.
pub(crate) fn classify(error: &RedisError) -> Failure {
    let text = explain(error);
    match error.kind() {
        // A script that fails may already have written.
        ErrorKind::Server(ServerErrorKind::ResponseError) => Failure::failed(text),
        ErrorKind::Server(ServerErrorKind::TryAgain) => Failure::Migrating(text.into()),
        ErrorKind::Server(_) | ErrorKind::AuthenticationFailed | ErrorKind::ClusterConnectionNotFound => {
            Failure::refused(text)
        }
        // An error code of the server: the command was not executed.
        ErrorKind::Extension => Failure::refused(text),
        _ => Failure::failed(text),
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
