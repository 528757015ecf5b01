//! The failure of a transaction, shared by all of its requests.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};
pub(crate) use tollgate_store::CallFailure as Failure;

/// Classifies an error before the commit was sent: the server rolls the transaction back.
pub(crate) fn before_commit(error: &Error, deadline: Duration) -> Failure {
    match error.code() {
        // `statement_timeout`: another transaction holds a lock.
        Some(&SqlState::QUERY_CANCELED) => Failure::TimedOut(deadline),
        _ => Failure::refused(explain(error)),
    }
}

/// Classifies an error of a statement that was sent together with the commit.
pub(crate) fn during_commit(error: &Error) -> Failure {
    // After an error of a statement, the commit is a rollback. A server that ends the connection
    // may have committed before.
    if ends_connection(error) { Failure::failed(explain(error)) } else { Failure::refused(explain(error)) }
}

/// Returns whether the connection has ended, by itself or by the server.
pub(crate) fn ends_connection(error: &Error) -> bool {
    let is_fatal = |it: Severity| matches!(it, Severity::Fatal | Severity::Panic);
    error.as_db_error().is_none_or(|it| it.parsed_severity().is_some_and(is_fatal))
}

/// Formats an error with its causes, and with advice.
pub(crate) fn explain(error: &Error) -> String {
    let Some(db) = error.as_db_error() else {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {inner}");
            cause = inner.source();
        }
        return text;
    };
    let message = db.message();
    let help = match *db.code() {
        SqlState::INVALID_PASSWORD => "user or password is wrong: see `store`",
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION if message.contains("no encryption") => {
            "the server may require TLS: add `?sslmode=verify-full` to the URL"
        }
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => "see `pg_hba.conf` of the server",
        SqlState::INVALID_CATALOG_NAME => "create it, or name another database in the URL",
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "this user lacks privileges that Tollgate needs: see the documentation of the store"
        }
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::FEATURE_NOT_SUPPORTED
            if message.contains("read-only") || message.contains("read-write") =>
        {
            "this is a standby, or a database that is read-only: name the primary"
        }
        SqlState::TOO_MANY_CONNECTIONS => {
            "raise `max_connections` of the server, or lower `?connections=` in the URL"
        }
        SqlState::OUT_OF_MEMORY => "raise `max_locks_per_transaction` of the server",
        SqlState::DISK_FULL => "the disk of the server is full",
        SqlState::CANNOT_CONNECT_NOW => "the server is starting or stopping",
        _ => return message.to_owned(),
    };
    format!("{message} ({help})")
}
