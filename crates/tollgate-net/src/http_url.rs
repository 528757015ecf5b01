//! The URL of another HTTP service, as operators write it.
//!
//! `url` parses it. Browsers accept more than an operator means (`http:host`, `http:\\host`, blanks), so
//! such texts are refused. No error quotes the text: the path of a webhook is a secret.

use std::fmt;

use url::{ParseError, Url};

/// The URL of an HTTP service: `http://HOST:PORT/PATH`, or `https://`.
///
/// ```
/// use tollgate_net::{HttpUrl, HttpUrlError};
///
/// let url = HttpUrl::parse("https://example.com:8443/hooks/")?;
/// assert_eq!((url.host(), url.port(), url.is_secure()), ("example.com", 8443, true));
/// assert_eq!(url.target("/1"), "/hooks/1");
/// assert_eq!(HttpUrl::parse("example.com"), Err(HttpUrlError::Scheme));
/// # Ok::<(), HttpUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl(Url);

/// The reason why a text is not the URL of an HTTP service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpUrlError {
    /// The scheme is missing or unknown.
    #[error("it does not begin with http:// or https://")]
    Scheme,
    /// The URL has a user or a password.
    #[error("it holds a name or a password")]
    Credentials,
    /// The URL has a fragment, or characters that must be percent-encoded.
    #[error("it holds characters that no URL can")]
    Characters,
    /// The port is not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// The host is missing or invalid.
    #[error("it names no host")]
    Host,
}

impl HttpUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, HttpUrlError> {
        let scheme = text.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme));
        let (_, rest) = scheme.ok_or(HttpUrlError::Scheme)?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) || rest.contains(['#', '\\']) {
            return Err(HttpUrlError::Characters);
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(HttpUrlError::Credentials);
        }
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if authority.is_empty() || authority.starts_with(':') || !authority.bytes().all(is_host) {
            return Err(HttpUrlError::Host);
        }
        let url = Url::parse(text).map_err(|error| match error {
            ParseError::InvalidPort => HttpUrlError::Port,
            _ => HttpUrlError::Host,
        })?;
        // A colon without a port is the default port for browsers.
        if url.port() == Some(0) || authority.ends_with(':') {
            return Err(HttpUrlError::Port);
        }
        Ok(Self(url))
    }

    /// Whether the service uses TLS.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns the host without brackets, for connecting and for verifying the certificate.
    pub fn host(&self) -> &str {
        self.bracketed().trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// Returns the value of the `Host` header: the host, and the port if it is not the default.
    pub fn authority(&self) -> String {
        let host = self.bracketed();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns the scheme and the authority.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.0.scheme(), self.authority())
    }

    /// Returns the request target, with `below` appended to the path. A trailing slash of the path does
    /// not count.
    pub fn target(&self, below: &str) -> String {
        let (path, query) = (self.path(), self.0.query());
        let slash = if path.is_empty() && below.is_empty() { "/" } else { "" };
        let (mark, query) = query.map_or(("", ""), |query| ("?", query));
        format!("{path}{below}{slash}{mark}{query}")
    }

    /// Whether the URL has a query.
    pub fn has_query(&self) -> bool {
        self.0.query().is_some()
    }

    fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    fn bracketed(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }
}

/// The URL without a trailing slash and without its query.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path())
    }
}

/// Omits the path and the query, which may be secret.
impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_optionally_a_port_a_path_and_a_query() {
        for (text, host, port, target, authority) in [
            ("http://h", "h", 80, "/", "h"),
            ("https://h/", "h", 443, "/", "h"),
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/", "127.0.0.1:4318"),
            ("https://[::1]:8443/a/b?c=d", "::1", 8443, "/a/b?c=d", "[::1]:8443"),
            ("http://h?x", "h", 80, "/?x", "h"),
            ("http://a_b-c.d/x/", "a_b-c.d", 80, "/x", "a_b-c.d"),
        ] {
            let url = HttpUrl::parse(text).unwrap();
            assert_eq!((url.host(), url.port(), &*url.target("")), (host, port, target), "{text}");
            assert_eq!(url.authority(), authority, "{text}");
        }
        let url = HttpUrl::parse("http://h:1/a/?b").unwrap();
        assert_eq!(url.target("/v1"), "/a/v1?b");
        assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), ("http://h:1/a", "http://h:1"));
    }

    #[test]
    fn a_text_that_only_a_browser_accepts_is_refused() {
        for (text, wrong) in [
            ("", HttpUrlError::Scheme),
            ("h:80", HttpUrlError::Scheme),
            ("http:h", HttpUrlError::Scheme),
            ("ftp://h", HttpUrlError::Scheme),
            ("HTTP+x://h", HttpUrlError::Scheme),
            ("http://", HttpUrlError::Host),
            ("http:///h", HttpUrlError::Host),
            ("http://:80", HttpUrlError::Host),
            ("http://::1:80", HttpUrlError::Host),
            ("http://[::1", HttpUrlError::Host),
            ("http://a,b", HttpUrlError::Host),
            ("http://u@h", HttpUrlError::Credentials),
            ("http://u:p@h", HttpUrlError::Credentials),
            ("http://h:b", HttpUrlError::Port),
            ("http://h:", HttpUrlError::Port),
            ("http://h:0", HttpUrlError::Port),
            ("http://h:65536", HttpUrlError::Port),
            ("http://h/a b", HttpUrlError::Characters),
            ("http://h/\r\nx", HttpUrlError::Characters),
            ("http://h\\x", HttpUrlError::Characters),
            ("http://h/#x", HttpUrlError::Characters),
            ("http://hé", HttpUrlError::Characters),
        ] {
            assert_eq!(HttpUrl::parse(text), Err(wrong), "{text}");
        }
    }
}
