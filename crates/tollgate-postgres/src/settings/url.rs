//! Parses a URL of PostgreSQL.
//!
//! The parser of `tokio_postgres` does not serve here. It accepts settings that the store sets
//! itself, an unverified TLS mode and a password with an `@`, and its errors name neither the place
//! of a mistake nor the correction.
//!
//! Invariant: no error quotes text that may be part of a password.

use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;

use super::{Address, PostgresSettings, Tls};

const URL_SHAPE: &str = "such as postgres://USER@HOST:5432/DATABASE, with ?sslmode=verify-full for TLS";
const DEFAULT_PORT: u16 = 5432;
const MAX_CONNECTIONS: usize = 64;

/// The mistake, and the expected format.
type UrlError = (String, String);

pub(super) fn parse(text: &str) -> Result<PostgresSettings, UrlError> {
    let wrong = |wrong: String| (wrong, URL_SHAPE.to_owned());
    if text.is_empty() {
        return Err(wrong("there is no URL".to_owned()));
    }
    let begins = || wrong("a URL of PostgreSQL begins with `postgres://`".to_owned());
    let (scheme, rest) = text.split_once("://").ok_or_else(begins)?;
    if !["postgres", "postgresql"].contains(&&*scheme.to_ascii_lowercase()) {
        // The text before `://` may be part of a password.
        let is_word = scheme.len() <= 16 && scheme.bytes().all(|it| it.is_ascii_alphabetic());
        return Err(if is_word {
            wrong(format!("`{scheme}://` is not spoken by PostgreSQL"))
        } else {
            begins()
        });
    }
    parse_rest(rest).map_err(wrong)
}

fn parse_rest(rest: &str) -> Result<PostgresSettings, String> {
    if rest.contains('#') {
        return Err("a `#` is written `%23`".to_owned());
    }
    let must = |char: char, code: &str| format!("`{char}` in a user or a password is written `{code}`");
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
    if path.contains('@') {
        return Err(must('/', "%2F"));
    }
    if query.contains('@') {
        return Err(must('?', "%3F"));
    }
    let Some((credentials, hosts)) = authority.rsplit_once('@') else {
        return Err("it names no user".to_owned());
    };
    if credentials.contains('@') {
        return Err(must('@', "%40"));
    }
    let (username, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let (username, password) = (decoded(username)?, decoded(password)?);
    if username.is_empty() {
        return Err("it names no user".to_owned());
    }
    let mut hosts = hosts.split(',').map(read_address).collect::<Result<Vec<_>, _>>()?.into_iter();
    let Some(first) = hosts.next() else { return Err("it names no host".to_owned()) };
    let database = decoded(path.strip_prefix('/').unwrap_or(path))?;
    if database.contains('/') {
        return Err("more than a database follows the host".to_owned());
    }
    let database = if database.is_empty() { username.clone() } else { database };
    let mut settings = PostgresSettings::new(first, &username, &database);
    settings.hosts.extend(hosts);
    settings.password = (!password.is_empty()).then_some(password);
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
    let brackets = || "write an IPv6 address in brackets: [::1]:5432".to_owned();
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(brackets)?;
        host.parse::<Ipv6Addr>().map_err(|_| brackets())?;
        (host.to_owned(), (!port.is_empty()).then(|| port.strip_prefix(':').unwrap_or(port)))
    } else {
        if text.matches(':').count() > 1 {
            return Err(brackets());
        }
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        (decoded(host)?, port)
    };
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    let fits = |it: u8| it.is_ascii_alphanumeric() || b"-._:".contains(&it);
    if !host.starts_with('/') && !host.bytes().all(fits) {
        return Err("the host has a character that no host has".to_owned());
    }
    let port = match port {
        None => DEFAULT_PORT,
        // Not quoted: if the host is missing, the password is parsed as the port.
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| "a port is a number from 1 to 65535".to_owned())?,
    };
    Ok(Address { host, port })
}

/// Percent-decodes a text: `%40` is `@`.
fn decoded(text: &str) -> Result<String, String> {
    let is_digits = |code: &[u8]| code.iter().all(u8::is_ascii_hexdigit);
    if !text.match_indices('%').all(|(at, _)| text.as_bytes().get(at + 1..at + 3).is_some_and(is_digits)) {
        return Err("a `%` is followed by two hexadecimal digits; a `%` itself is written `%25`".to_owned());
    }
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| "the percent-encoded text is not UTF-8".to_owned())
}
