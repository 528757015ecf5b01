//! Settings of the policy file that other crates act on.
//!
//! This crate parses and checks them with the rest of the file, and passes them on as
//! plain data.

use std::borrow::Cow;

use crate::net::NetSet;
use crate::path;

/// The `client` section, which determines the client address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Peers whose forwarding header is trusted. Empty: none.
    pub trusted_proxies: NetSet,
    /// The header that those proxies write.
    pub header: ForwardedHeader,
    /// The number of leading bits of an IPv4 address that identify a client.
    pub ipv4_prefix: u8,
    /// The number of leading bits of an IPv6 address that identify a client. One customer owns at
    /// least a /64.
    pub ipv6_prefix: u8,
}

impl Default for ClientAddress {
    fn default() -> Self {
        Self {
            trusted_proxies: NetSet::default(),
            header: ForwardedHeader::XForwardedFor,
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        }
    }
}

/// The header in which proxies pass on the client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// No header is read: the peer is the client.
    None,
}

/// The `headers` section, which selects the rate limit headers of responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderSettings {
    /// The format of `X-RateLimit-*`.
    pub x_ratelimit: XRateLimit,
    /// The version of `RateLimit` and `RateLimit-Policy`.
    pub ietf: IetfHeaders,
    /// The maximum random extension of `Retry-After` in percent, so that refused
    /// callers do not all retry at the same time.
    pub retry_after_jitter: u8,
    /// Dialects of other services, added to every response.
    pub dialects: Vec<Dialect>,
    /// Names of the limits that single-limit headers describe on an admitted response: the first one
    /// that applied. If empty, or if none applied, the headers describe the rate closest to refusing.
    pub describe: Vec<Box<str>>,
}

impl Default for HeaderSettings {
    fn default() -> Self {
        Self {
            x_ratelimit: XRateLimit::Epoch,
            ietf: IetfHeaders::Draft11,
            retry_after_jitter: 0,
            dialects: Vec::new(),
            describe: Vec::new(),
        }
    }
}

/// The format of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XRateLimit {
    /// Seconds since 1970.
    Epoch,
    /// Seconds from now.
    Delta,
    /// No `X-RateLimit-*` headers.
    Off,
}

/// The version of the IETF draft of the `RateLimit` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IetfHeaders {
    /// `RateLimit` and `RateLimit-Policy` as structured fields.
    Draft11,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset`.
    Draft6,
    /// No IETF headers.
    Off,
}

/// Headers and refusal bodies in the format of another service, for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `X-RateLimit-Bucket`, `-Reset-After`, `-Scope`; `retry_after` and `global` in the body.
    Discord,
    /// `x-ratelimit-limit-requests` and related headers; an `error` object.
    OpenAi,
    /// `Stripe-Should-Retry`; an `error` object.
    Stripe,
    /// `x-amzn-ErrorType`, and the name of the error in JSON or XML, where the AWS SDKs look for it.
    Aws,
    /// A `message` about a secondary rate limit.
    GitHub,
    /// `x-envoy-ratelimited`, without a body.
    Envoy,
}

/// How keys appear in logs and records: the `privacy` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyPrivacy {
    /// In plain text.
    #[default]
    Plain,
    /// As a keyed hash.
    Hashed,
    /// Their first characters.
    Truncated,
}

/// The `paths` section, which describes how upstream servers interpret paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathSettings {
    /// The characters that separate segments.
    pub reading: PathReading,
    /// Whether a path that servers may interpret differently is refused.
    pub refuse_ambiguous: bool,
    /// Whether `/Login` and `/login` are one path.
    pub ignore_case: bool,
}

impl PathSettings {
    /// Returns the value of a path parameter as it appears in keys.
    pub(crate) fn path_value(self, value: &str) -> Cow<'_, str> {
        if self.ignore_case { Cow::Owned(path::fold_text(value)) } else { Cow::Borrowed(value) }
    }
}

/// The characters of a path that separate segments, and those that are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathReading {
    /// Unknown: limits apply under every reading that a server may use.
    #[default]
    Any,
    /// `/` separates segments. `%2F`, `\` and `;` are text.
    Literal,
    /// Escapes are decoded first, so `%2F` separates segments too: nginx, WSGI, ASGI, PHP.
    Decoded,
    /// `;` and the rest of its segment are removed, then escapes are decoded: servlet containers.
    Servlet,
}

impl PathReading {
    /// Whether the policy declares how the servers read paths.
    pub(crate) const fn is_declared(self) -> bool {
        !matches!(self, Self::Any)
    }
}
