//! The failure of a transaction, shared by all of its requests.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};
use tollgate_store::StoreError;

/// The reason why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The deadline passed. If the request is charged nevertheless, it is undone.
    TimedOut(Duration),
    /// Nothing was written.
    Refused(Arc<str>),
    /// The connection broke while the transaction was committed, which may have happened.
    Failed(Arc<str>),
    /// A row holds a value that Tollgate did not write.
    Foreign(Arc<str>),
}

impl Failure {
    pub(crate) fn refused(why: impl Into<Arc<str>>) -> Self {
        Self::Refused(why.into())
    }

    pub(crate) fn failed(why: impl Into<Arc<str>>) -> Self {
        Self::Failed(why.into())
    }

    /// Classifies an error before the commit was sent: the server rolls the transaction back.
    pub(crate) fn before_commit(error: &Error, deadline: Duration) -> Self {
        match error.code() {
            // `statement_timeout`: another transaction holds a lock.
            Some(&SqlState::QUERY_CANCELED) => Self::TimedOut(deadline),
            _ => Self::refused(explain(error)),
        }
    }

    /// Classifies an error of a statement that was sent together with the commit.
    pub(crate) fn during_commit(error: &Error) -> Self {
        // After an error of a statement, the commit is a rollback. A server that ends the connection
        // may have committed before.
        if ends_connection(error) { Self::failed(explain(error)) } else { Self::refused(explain(error)) }
    }
}

/// Returns whether the connection has ended, by itself or by the server.
pub(crate) fn ends_connection(error: &Error) -> bool {
    let is_fatal = |it: Severity| matches!(it, Severity::Fatal | Severity::Panic);
    error.as_db_error().is_none_or(|it| it.parsed_severity().is_some_and(is_fatal))
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TimedOut(deadline) => Self::TimedOut(deadline),
            Failure::Refused(why) => Self::Refused((*why).into()),
            Failure::Failed(why) => Self::Failed((*why).into()),
            Failure::Foreign(name) => Self::Foreign((*name).into()),
        }
    }
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
