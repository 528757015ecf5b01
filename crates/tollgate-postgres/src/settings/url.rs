//! Parses a URL of PostgreSQL.
//!
//! The parser of `tokio_postgres` does not serve here. It accepts settings that the store sets
//! itself, an unverified TLS mode and a password with an `@`, and its errors name neither the place
//! of a mistake nor the correction.
//!
//! Invariant: no error quotes text that may be part of a password.

use tollgate_store::server_url::{Address, UrlParts, decode, must_encode, parse_port};

use super::{PostgresSettings, Tls};

/// The expected format of a URL.
pub(super) const URL_SHAPE: &str =
    "such as postgres://USER@HOST:5432/DATABASE, with ?sslmode=verify-full for TLS";
const DEFAULT_PORT: u16 = 5432;
const MAX_CONNECTIONS: usize = 64;

/// Parses a URL, or returns the mistake.
pub(super) fn parse(text: &str) -> Result<PostgresSettings, String> {
    if text.is_empty() {
        return Err("there is no URL".to_owned());
    }
    let begins = || "a URL of PostgreSQL begins with `postgres://`".to_owned();
    let (scheme, rest) = text.split_once("://").ok_or_else(begins)?;
    if !["postgres", "postgresql"].contains(&&*scheme.to_ascii_lowercase()) {
        // The text before `://` may be part of a password.
        let is_word = scheme.len() <= 16 && scheme.bytes().all(|it| it.is_ascii_alphabetic());
        return Err(if is_word { format!("`{scheme}://` is not a scheme of PostgreSQL") } else { begins() });
    }
    let UrlParts { username, password, hosts, path, query } = UrlParts::parse(rest)?;
    if query.contains('@') {
        return Err(must_encode('?'));
    }
    let Some(username) = username else { return Err("it names no user".to_owned()) };
    let mut hosts = hosts.split(',').map(read_address).collect::<Result<Vec<_>, _>>()?.into_iter();
    let Some(first) = hosts.next() else { return Err("it names no host".to_owned()) };
    let database = decode(path)?;
    if database.contains('/') {
        return Err("more than a database follows the host".to_owned());
    }
    let database = if database.is_empty() { username.clone() } else { database };
    let mut settings = PostgresSettings::new(first, &username, &database);
    settings.hosts.extend(hosts);
    settings.password = password;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        take_parameter(pair, &mut settings)?;
    }
    Ok(settings)
}

fn take_parameter(pair: &str, settings: &mut PostgresSettings) -> Result<(), String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    match (name, value) {
        ("sslmode", "disable") => settings.tls = None,
        ("sslmode", "require" | "verify-ca" | "verify-full") => settings.tls = Some(Tls::default()),
        ("sslmode", "prefer" | "allow") => {
            return Err(format!(
                "`{value}` would use TLS without verifying the server: write `sslmode=verify-full`, or `sslmode=disable`"
            ));
        }
        ("sslmode", _) => return Err("`sslmode` is `disable` or `verify-full`".to_owned()),
        ("ssl" | "tls" | "ssl_mode", _) => {
            return Err("an unknown parameter follows `?`: did you mean `sslmode=verify-full`?".to_owned());
        }
        ("connections", number) => {
            let number = number.parse().ok().filter(|it| (1..=MAX_CONNECTIONS).contains(it));
            let wrong = || format!("`connections` is 1 to {MAX_CONNECTIONS}");
            settings.connections = number.ok_or_else(wrong)?;
        }
        ("synchronous_commit", "on") => settings.synchronous_commit = true,
        ("synchronous_commit", "off") => settings.synchronous_commit = false,
        ("synchronous_commit", _) => return Err("`synchronous_commit` is `on` or `off`".to_owned()),
        // The text after a `?` may be part of a password, so it is not quoted.
        _ => {
            return Err("only `sslmode`, `connections` and `synchronous_commit` can follow `?`".to_owned());
        }
    }
    Ok(())
}

fn read_address(text: &str) -> Result<Address, String> {
    if !text.to_ascii_lowercase().starts_with("%2f") {
        return Address::parse(text, DEFAULT_PORT);
    }
    let (folder, port) = text.split_once(':').map_or((text, None), |(folder, port)| (folder, Some(port)));
    Ok(Address { host: decode(folder)?, port: port.map_or(Ok(DEFAULT_PORT), parse_port)? })
}
