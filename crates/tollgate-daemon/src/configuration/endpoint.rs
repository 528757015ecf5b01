//! The URL of a receiver, `http://` or `https://`.
//!
//! Its path may be a secret (a webhook URL is its only credential), so it is not shown.

use std::fmt;

use tollgate_document::{Node, Problems};

/// The URL of a receiver.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    secure: bool,
    host: String,
    port: u16,
    /// The path with its leading `/` and without a trailing one: empty, or `/hooks/1`.
    path: String,
    /// The query with its `?`, or empty.
    query: String,
}

impl Endpoint {
    /// Parses a URL. Messages never repeat it.
    pub(super) fn read(node: &Node, what: &str, problems: &mut Problems) -> Option<Self> {
        let text = node.word(what, problems)?.value;
        Self::parse(text)
            .map_err(|(message, label)| {
                problems
                    .error(node.place, format!("{what} {message}"))
                    .label(label)
                    .help("such as http://127.0.0.1:4318 or https://example.com/hooks/1");
            })
            .ok()
    }

    /// Parses a URL, or returns the mistake and a label for it.
    fn parse(text: &str) -> Result<Self, (&'static str, &'static str)> {
        let scheme = (text.split_once("://")).filter(|(scheme, _)| ["http", "https"].contains(scheme));
        let Some((scheme, rest)) = scheme else {
            return Err(("is a URL that begins with http:// or https://", "this does not"));
        };
        let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err((
                "holds a name and a password, which are not sent",
                "take out what is before the `@`",
            ));
        }
        if path.contains('#') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(("holds characters that no URL can", "write them as %20 and the like"));
        }
        let secure = scheme == "https";
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, port.parse().ok().filter(|port| *port != 0).ok_or(("has no port that can be", ""))?)
            }
            Some(_) => return Err(("has a port that is not a number", "write HOST:PORT")),
            None => (authority, if secure { 443 } else { 80 }),
        };
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let fine = if let Some(address) = bare {
            address.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            (1..=253).contains(&host.len()) && host.bytes().all(is_named)
        };
        if !fine {
            return Err(("names no host", "write HOST:PORT"));
        }
        let (path, query) = path.find('?').map_or((path, ""), |at| path.split_at(at));
        let (path, query) = (path.trim_end_matches('/').to_owned(), query.to_owned());
        Ok(Self { secure, host: bare.unwrap_or(host).to_owned(), port, path, query })
    }

    /// Whether to use TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns the host, for connecting and for verifying the certificate.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the request target, with `after` appended to the path.
    pub(crate) fn target(&self, after: &str) -> String {
        let path = format!("{}{after}", self.path);
        format!("{}{}", if path.is_empty() { "/" } else { &path }, self.query)
    }

    /// Returns the value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.secure { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }
}

/// Omits the path and query, which may be secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(
            f,
            "{scheme}://{}{}",
            self.authority(),
            if self.path.is_empty() && self.query.is_empty() { "" } else { "/…" }
        )
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        for (text, host, port, target, authority) in [
            ("http://h", "h", 80, "/", "h"),
            ("https://h/", "h", 443, "/", "h"),
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/", "127.0.0.1:4318"),
            ("https://[::1]:8443/a/b?c=d", "::1", 8443, "/a/b?c=d", "[::1]:8443"),
            ("http://h?x", "h", 80, "/?x", "h"),
        ] {
            let it = Endpoint::parse(text).unwrap();
            assert_eq!((it.host(), it.port(), &*it.target("")), (host, port, target), "{text}");
            assert_eq!(it.authority(), authority, "{text}");
        }
        for (text, target) in [
            ("http://h/otlp/", "/otlp/v1/traces"),
            ("http://h/otlp/?key=1/", "/otlp/v1/traces?key=1/"),
            ("http://h?key=1", "/v1/traces?key=1"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().target("/v1/traces"), target, "{text}");
        }
        for text in [
            "",
            "h:1",
            "ftp://h",
            "http://",
            "http://u:p@h",
            "http://h:x",
            "http://h:0",
            "http://h/a b",
            "http://[::1",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn path_and_query_are_not_shown() {
        let it = Endpoint::parse("https://hooks.test/services/T0/B0/hunter2").unwrap();
        assert_eq!(format!("{it} {it:?}"), "https://hooks.test/… https://hooks.test/…");
        assert_eq!(
            Endpoint::parse("https://hooks.test?token=hunter2").unwrap().to_string(),
            "https://hooks.test/…"
        );
    }
}
