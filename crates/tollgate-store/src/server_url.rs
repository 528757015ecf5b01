//! The parts that the URLs of all stores in other processes have: users, passwords and addresses.
//!
//! The `url` crate does not serve here. It rejects several hosts as soon as one of them has a port
//! or brackets (`a:7000,b:7001`: "invalid port number"). It accepts a `%` that encodes nothing, a
//! second `@` in a password, port 0 and the host `10.0.0`, all of which are mistakes in the URL of a
//! store. Its errors name neither the place of the mistake nor the correction.
//!
//! Not here: schemes, paths and parameters, which differ from store to store.
//!
//! Invariant: no error quotes text that may be part of a password.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};

/// The characters that RFC 3986 does not list as unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Error returned for a text that is not the URL of a store. It never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}; {expected}")]
#[non_exhaustive]
pub struct SettingsError {
    /// The index of the URL, from 0.
    pub index: usize,
    /// The mistake.
    pub wrong: String,
    /// The expected format, or the correction.
    pub expected: String,
}

impl SettingsError {
    /// Creates the error of the URL at `index`.
    pub fn new(index: usize, wrong: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { index, wrong: wrong.into(), expected: expected.into() }
    }
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The name or IP address of the host, without brackets, or the folder of a Unix socket.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Parses `host`, `host:port`, `[ip]` or `[ip]:port`. Names become lower case.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let brackets = || format!("write an IPv6 address in brackets: [::1]:{default_port}");
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (ip, port) = rest.split_once(']').ok_or_else(brackets)?;
            let ip: Ipv6Addr = ip.parse().map_err(|_| brackets())?;
            (ip.to_string(), (!port.is_empty()).then(|| port.strip_prefix(':').unwrap_or("")))
        } else {
            if text.matches(':').count() > 1 {
                return Err(brackets());
            }
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            if host.is_empty() {
                return Err("it names no host".to_owned());
            }
            if !is_host(host) {
                return Err(format!("`{host}` is not a host"));
            }
            (host.to_ascii_lowercase(), port)
        };
        Ok(Self { host, port: port.map_or(Ok(default_port), parse_port)? })
    }

    /// Parses addresses that are separated by commas.
    pub fn parse_list(text: &str, default_port: u16) -> Result<Vec<Self>, String> {
        text.split(',').map(|address| Self::parse(address, default_port)).collect()
    }

    /// Creates the address of an IP address and a port.
    pub fn of(ip: IpAddr, port: u16) -> Self {
        Self { host: ip.to_canonical().to_string(), port }
    }

    /// Returns the IP address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

/// Formats `host:port`, with brackets around an IPv6 address.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.starts_with('/') {
            write!(f, "{}:{port}", encode(host))
        } else if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// Formats addresses, separated by commas.
#[derive(Clone, Copy, Debug)]
pub struct AddressList<'a>(pub &'a [Address]);

impl fmt::Display for AddressList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            write!(f, "{}{address}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Parses a port. An error does not quote the text: if the host is missing, it is a password.
pub fn parse_port(text: &str) -> Result<u16, String> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_digits && *port > 0);
    port.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())
}

fn is_host(text: &str) -> bool {
    // Text that consists of digits and dots must be a valid IPv4 address.
    if text.bytes().all(|it| it.is_ascii_digit() || it == b'.') {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    text.len() <= 253 && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it))
}

/// The parts of a URL after its scheme.
#[derive(Clone)]
pub struct UrlParts<'u> {
    /// The user; `None` if it is empty.
    pub username: Option<String>,
    /// The password; `None` if it is empty.
    pub password: Option<String>,
    /// The addresses.
    pub hosts: &'u str,
    /// The path, without the slash before it.
    pub path: &'u str,
    /// The text after `?`. It may be part of a password, so messages do not quote it.
    pub query: &'u str,
}

impl<'u> UrlParts<'u> {
    /// Splits the text after `://`, and decodes user and password.
    pub fn parse(text: &'u str) -> Result<Self, String> {
        if text.contains('#') {
            return Err("a `#` is written `%23`".to_owned());
        }
        let (authority, behind) = text.split_at(text.find(['/', '?']).unwrap_or(text.len()));
        let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
        if path.contains('@') {
            return Err(must_encode('/'));
        }
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if credentials.contains('@') {
            let once =
                if credentials.contains(',') { "; write them once, before the first host" } else { "" };
            return Err(must_encode('@') + once);
        }
        let (username, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let some = |text: String| (!text.is_empty()).then_some(text);
        let (username, password) = (some(decode(username)?), some(decode(password)?));
        Ok(Self { username, password, hosts, path: path.strip_prefix('/').unwrap_or(path), query })
    }
}

/// Does not show the password, nor the query, which may be part of one.
impl fmt::Debug for UrlParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlParts").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Returns the message about a character that stands for itself in a user or a password.
pub fn must_encode(char: char) -> String {
    format!("`{char}` in a user or a password is written `%{:02X}`", u32::from(char))
}

/// Percent-decodes a text: `%40` is `@`.
pub fn decode(text: &str) -> Result<String, String> {
    let is_digits = |code: &[u8]| code.iter().all(u8::is_ascii_hexdigit);
    if !text.match_indices('%').all(|(at, _)| text.as_bytes().get(at + 1..at + 3).is_some_and(is_digits)) {
        return Err("a `%` is followed by two hexadecimal digits; a `%` itself is written `%25`".to_owned());
    }
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| "the percent-encoded text is not UTF-8".to_owned())
}

/// Percent-encodes a text: `@` is `%40`.
pub fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_formatted() {
        for (text, expected) in [
            ("A.example", "a.example:9"),
            ("a:1", "a:1"),
            ("10.0.0.1", "10.0.0.1:9"),
            ("[::1]", "[::1]:9"),
            ("[2001:DB8::0:1]:2", "[2001:db8::1]:2"),
        ] {
            assert_eq!(Address::parse(text, 9).unwrap().to_string(), expected);
        }
        for text in
            ["", ":1", "a:", "a:0", "a:+1", "a:65536", "10.0.0", "a b", "::1", "[::1", "[::1]1", "[a]:1"]
        {
            Address::parse(text, 9).unwrap_err();
        }
        let list = Address::parse_list("a,b:1", 9).unwrap();
        assert_eq!(AddressList(&list).to_string(), "a:9,b:1");
    }

    #[test]
    fn no_text_of_an_error_or_of_debug_output_is_a_password() {
        for text in ["u:hunter/2@h", "u:hunter@2@h", "u:hunter%2@h", "u:hunter%ff@h", "u:hunter#@h"] {
            let error = UrlParts::parse(text).unwrap_err();
            assert!(!error.contains("hunter"), "{error}");
        }
        let parts = UrlParts::parse("u:hunter2@h/p?q=hunter3").unwrap();
        assert_eq!((parts.password.as_deref(), parts.path, parts.query), (Some("hunter2"), "p", "q=hunter3"));
        assert!(!format!("{parts:?}").contains("hunter"));
    }
}
