//! The address of PostgreSQL, and the deadline.
//!
//! Passwords are never shown: neither the settings nor their errors include a password in any text.
//!
//! - `url`: parses a URL.
//!
//! Not here: reading files (certificates and passwords are passed as values).

mod url;

use std::fmt;
use std::time::Duration;

pub use tollgate_store::server_url::{Address, SettingsError};
use tollgate_store::server_url::{AddressList, encode};

/// The settings of a [`PostgresStore`](crate::PostgresStore): how to reach PostgreSQL, and how to
/// use it.
///
/// ```
/// # use tollgate_postgres::{PostgresSettings, SettingsError};
/// let settings = PostgresSettings::parse("postgres://ann:s3cret@10.0.0.7/shop")?;
/// assert_eq!(settings.password.as_deref(), Some("s3cret"));
/// assert_eq!(settings.to_string(), "postgres://ann:***@10.0.0.7:5432/shop");
/// assert!(PostgresSettings::parse("http://10.0.0.7").is_err());
/// # Ok::<(), SettingsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The servers. Of several, the first is used that can be reached and accepts writes.
    pub hosts: Vec<Address>,
    /// The user, called a role by PostgreSQL.
    pub username: String,
    /// The password of the user.
    pub password: Option<String>,
    /// The name of the database.
    pub database: String,
    /// The TLS settings; `None`: no TLS.
    pub tls: Option<Tls>,
    /// The maximum time that a decision waits for PostgreSQL, including connecting.
    pub deadline: Duration,
    /// The prefix of the names of all tables, so that several deployments can share one database.
    pub prefix: String,
    /// The maximum number of connections for decisions. One more serves background work.
    pub connections: usize,
    /// Whether a decision waits until the server has written it to disk.
    pub synchronous_commit: bool,
}

/// The TLS settings of a connection. The certificate and the host name are always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA certificates (PEM) to trust instead of the public ones.
    pub ca: Option<Vec<u8>>,
}

/// The default number of connections for decisions. PostgreSQL has a process for each connection,
/// and permits a hundred by default.
const DEFAULT_CONNECTIONS: usize = 4;

impl PostgresSettings {
    /// Creates settings for one server, with defaults for the other fields.
    pub fn new(address: Address, username: &str, database: &str) -> Self {
        Self {
            hosts: vec![address],
            username: username.to_owned(),
            password: None,
            database: database.to_owned(),
            tls: None,
            deadline: Duration::from_millis(50),
            prefix: String::new(),
            connections: DEFAULT_CONNECTIONS,
            synchronous_commit: false,
        }
    }

    /// Parses a URL: `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST…][/DATABASE][?NAME=VALUE&…]`.
    ///
    /// The scheme `postgresql` is an alias. The database is named like the user if there is none. A
    /// host that begins with `%2F` is the folder of a Unix socket. The parameters are:
    ///
    /// - `sslmode`: `disable` (default), or `verify-full` for TLS. `require` and `verify-ca` are
    ///   the same as `verify-full`: TLS without verification is not supported.
    /// - `connections`: the maximum number of connections for decisions, 1 to 64.
    /// - `synchronous_commit`: `on`, or `off` (default).
    pub fn parse(url: &str) -> Result<Self, SettingsError> {
        url::parse(url).map_err(|wrong| SettingsError::new(0, wrong, url::URL_SHAPE))
    }
}

/// Formats the URL, with `***` for a password.
impl fmt::Display for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}", encode(&self.username))?;
        f.write_str(if self.password.is_some() { ":***@" } else { "@" })?;
        write!(f, "{}/{}", AddressList(&self.hosts), encode(&self.database))?;
        f.write_str(if self.tls.is_some() { "?sslmode=verify-full" } else { "" })
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("url", &self.to_string())
            .field("own_ca", &self.tls.as_ref().is_some_and(|tls| tls.ca.is_some()))
            .field("deadline", &self.deadline)
            .field("prefix", &self.prefix)
            .field("connections", &self.connections)
            .field("synchronous_commit", &self.synchronous_commit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the displayed URL (`Ok`) or a part of the error (`Err`). Neither contains a secret.
    #[track_caller]
    fn check(url: &str, expected: Result<&str, &str>) {
        let read = PostgresSettings::parse(url);
        match (&read, expected) {
            (Ok(settings), Ok(shown)) => assert_eq!(settings.to_string(), shown, "{url}"),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{url}: {error}");
                assert!(error.to_string().contains("://"), "{url}: how it should look: {error}");
            }
            (Ok(settings), Err(_)) => panic!("{url} is read as {settings}"),
            (Err(error), Ok(_)) => panic!("{url} is not read: {error}"),
        }
        let shown = match &read {
            Ok(settings) => format!("{settings} {settings:?} {settings:#?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains("hunter"), "{url}: {shown}");
    }

    #[test]
    fn urls_are_parsed() {
        check("postgres://ann@h", Ok("postgres://ann@h:5432/ann"));
        check("POSTGRESQL://ann@h/", Ok("postgres://ann@h:5432/ann"));
        check("postgresql://ann:hunter2@10.0.0.1:6432/shop", Ok("postgres://ann:***@10.0.0.1:6432/shop"));
        check("postgres://ann:@h/shop", Ok("postgres://ann@h:5432/shop"));
        check("postgres://ann@[::1]:1/shop", Ok("postgres://ann@[::1]:1/shop"));
        check("postgres://ann@a,b:1/shop", Ok("postgres://ann@a:5432,b:1/shop"));
        check("postgres://a%40b:hunter%2F2@h/d%20b", Ok("postgres://a%40b:***@h:5432/d%20b"));
        check("postgres://ann@%2Frun%2Fpostgresql/shop", Ok("postgres://ann@%2Frun%2Fpostgresql:5432/shop"));
        check("postgres://ann@h/d?sslmode=disable", Ok("postgres://ann@h:5432/d"));
        for mode in ["require", "verify-ca", "verify-full"] {
            check(
                &format!("postgres://ann@h/d?connections=2&sslmode={mode}"),
                Ok("postgres://ann@h:5432/d?sslmode=verify-full"),
            );
        }
    }

    #[test]
    fn parts_are_decoded() {
        let url = "postgres://a%3Ab:p%40%2f%25%C3%A9:x@h/d?connections=9&synchronous_commit=on";
        let settings = PostgresSettings::parse(url).unwrap();
        assert_eq!((&*settings.username, settings.password.as_deref()), ("a:b", Some("p@/%é:x")));
        assert_eq!((settings.connections, settings.synchronous_commit), (9, true));
        assert!(
            !PostgresSettings::parse("postgres://a@h?synchronous_commit=off").unwrap().synchronous_commit
        );
    }

    #[test]
    fn errors_name_the_mistake_and_the_expected_format() {
        check("", Err("there is no URL"));
        check("localhost:5432", Err("begins with `postgres://`"));
        check("ann:hunter2@localhost:5432", Err("begins with `postgres://`"));
        check("mysql://h", Err("`mysql://` is not a scheme of PostgreSQL"));
        check("hunter/2://h", Err("begins with `postgres://`"));
        check("postgres://h/d", Err("it names no user"));
        check("postgres://:hunter2@h/d", Err("it names no user"));
        check("postgres://ann@", Err("it names no host"));
        check("postgres://ann:hunter2@:5432", Err("it names no host"));
        check("postgres://ann@a,,b", Err("it names no host"));
        check("postgres://ann@h:0", Err("a port is a number"));
        check("postgres://ann@h:65536", Err("a port is a number"));
        check("postgres://ann@h:", Err("a port is a number"));
        check("postgres://ann@::1", Err("write an IPv6 address in brackets"));
        check("postgres://ann@[::1", Err("write an IPv6 address in brackets"));
        check("postgres://ann@[h]:1", Err("write an IPv6 address in brackets"));
        check("postgres://ann@a b", Err("`a b` is not a host"));
        check("postgres://ann@10.0.0", Err("`10.0.0` is not a host"));
        check("postgres://ann@%2frun:0", Err("a port is a number"));
        check("postgres://ann@h/a/b", Err("more than a database"));
        check("postgres://ann:hunt#er@h", Err("`#` is written `%23`"));
        check("postgres://ann:hunter/2@h", Err("`/` in a user or a password is written `%2F`"));
        check("postgres://ann:hunter?2@h", Err("`?` in a user or a password is written `%3F`"));
        check("postgres://ann:hunter@2@h", Err("`@` in a user or a password is written `%40`"));
        check("postgres://ann:hunter%2@h", Err("`%` itself is written `%25`"));
        check("postgres://ann:hunter%+2@h", Err("`%` itself is written `%25`"));
        check("postgres://ann:hunter%ff@h", Err("not UTF-8"));
        check("postgres://ann@h?sslmode=prefer", Err("`prefer` would use TLS without verifying"));
        check("postgres://ann@h?sslmode=on", Err("`sslmode` is `disable` or `verify-full`"));
        check("postgres://ann@h?ssl=true", Err("did you mean `sslmode=verify-full`?"));
        check("postgres://ann@h?connections=0", Err("`connections` is 1 to 64"));
        check("postgres://ann@h?connections=many", Err("`connections` is 1 to 64"));
        check("postgres://ann@h?synchronous_commit=local", Err("`synchronous_commit` is `on` or `off`"));
        check("postgres://ann@h?password=hunter2", Err("can follow `?`"));
        check("postgres://ann@h?hunter2", Err("can follow `?`"));
    }
}
