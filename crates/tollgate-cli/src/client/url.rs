//! The URL of the API: `http://host:port` or `https://…`, optionally with a path before `/v1`.

use std::fmt::{self, Write};

use tollgate_daemon::Failure;

/// The URL of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Whether to use TLS.
    pub(super) secure: bool,
    /// `host:port`, for the `Host` header and for connecting.
    pub(super) authority: String,
    /// The path before `/v1`: empty, or `/tollgate`.
    pub(super) prefix: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |help: &str| Failure::with_help(format_args!("`{text}` is not the URL of an API"), help);
        let example = "such as http://127.0.0.1:7070";
        let (secure, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(wrong(example)),
            // `127.0.0.1:7070` without a scheme is unambiguous.
            None => (false, text),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let port = authority.rsplit_once(':').filter(|(host, port)| {
            let numeric = port.bytes().all(|it| it.is_ascii_digit()) && port.parse::<u16>().is_ok();
            // A host with colons is an IPv6 address, which needs brackets.
            numeric && (!host.contains(':') || host.ends_with(']'))
        });
        let fine = |it: &str| it.bytes().all(|byte| byte.is_ascii_graphic()) && !it.contains(['@', '?', '#']);
        if authority.is_empty()
            || !fine(rest)
            || (port.is_none() && authority.contains(':') && !authority.ends_with(']'))
        {
            return Err(wrong(example));
        }
        if port.is_some_and(|(host, _)| host.is_empty()) {
            return Err(wrong(example));
        }
        let usual = if secure { 443 } else { 80 };
        let authority = if port.is_some() { authority.to_owned() } else { format!("{authority}:{usual}") };
        Ok(Self { secure, authority, prefix: path.trim_end_matches('/').to_owned() })
    }

    /// Returns the host without port and brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(&*self.authority, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

/// Encodes text as one path segment (RFC 3986, section 3.3).
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    // A segment of only dots would be normalized away.
    if matches!(text, "." | "..") { out.replace('.', "%2E") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_optionally_a_port_and_a_path() {
        for (text, expected) in [
            ("http://127.0.0.1:7070", Some("http://127.0.0.1:7070")),
            ("http://127.0.0.1:7070/", Some("http://127.0.0.1:7070")),
            ("127.0.0.1:7070", Some("http://127.0.0.1:7070")),
            ("http://[::1]:7070/", Some("http://[::1]:7070")),
            ("http://[::1]", Some("http://[::1]:80")),
            ("http://tollgate/limits/", Some("http://tollgate:80/limits")),
            ("https://tollgate", Some("https://tollgate:443")),
            ("https://[::1]:7070/x/", Some("https://[::1]:7070/x")),
            ("ftp://tollgate", None),
            ("http://", None),
            ("http://:7070", None),
            ("http://a:b", None),
            ("http://a:70700", None),
            ("http://::1:80", None),
            ("http://user@host", None),
            ("http://host/?x", None),
            ("http://host/a b", None),
            ("http://host/\r\nx", None),
        ] {
            assert_eq!(Url::parse(text).ok().map(|url| url.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_certificate_name_is_the_host_without_the_port() {
        for (text, host) in
            [("https://[::1]:7070", "::1"), ("https://a.b", "a.b"), ("127.0.0.1:1", "127.0.0.1")]
        {
            assert_eq!(Url::parse(text).unwrap().host(), host, "{text}");
        }
    }

    #[test]
    fn any_name_is_encoded_as_one_segment() {
        assert_eq!(segment("a/b?c%ä"), "a%2Fb%3Fc%25%C3%A4");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("api-v1.search"), "api-v1.search");
    }
}
