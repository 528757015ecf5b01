//! Settings of the policy file that other crates act on.
//!
//! They are parsed and checked here, with the rest of the file, and carried as
//! plain data: this crate sees no sockets and words no answers.

use std::borrow::Cow;

use crate::net::NetSet;
use crate::path;

/// Which address is the client's: the `client` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Peers whose forwarding header is believed. Empty: nobody's.
    pub trusted_proxies: NetSet,
    /// The header they write.
    pub header: ForwardedHeader,
    /// How many bits of an IPv4 address tell clients apart.
    pub ipv4_prefix: u8,
    /// How many bits of an IPv6 address tell clients apart. One customer owns a /64 at least.
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

/// The header in which proxies pass on whom they speak for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// None is read: the peer is the client.
    None,
}

/// Which headers an answer carries: the `headers` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderSettings {
    /// `X-RateLimit-*`.
    pub x_ratelimit: XRateLimit,
    /// `RateLimit` and `RateLimit-Policy`.
    pub ietf: IetfHeaders,
    /// By up to how many percent `Retry-After` is stretched, so that refused
    /// callers do not come back all at once.
    pub retry_after_jitter: u8,
    /// Words of other services, in addition, on every answer.
    pub dialects: Vec<Dialect>,
    /// The limits that headers with room for one limit describe on an admitted answer, by name:
    /// the first that applied. Empty, or where none applied: the rate closest to refusing.
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

/// How `X-RateLimit-Reset` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XRateLimit {
    /// Seconds since 1970.
    Epoch,
    /// Seconds from now.
    Delta,
    /// No `X-RateLimit-*` headers.
    Off,
}

/// Which version of the IETF draft is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IetfHeaders {
    /// `RateLimit` and `RateLimit-Policy` as structured fields.
    Draft11,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset`.
    Draft6,
    /// Neither.
    Off,
}

/// Words of another service that its clients read, in headers and in the body of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `X-RateLimit-Bucket`, `-Reset-After`, `-Scope`; `retry_after` and `global` in the body.
    Discord,
    /// `x-ratelimit-limit-requests` and its siblings; an `error` object.
    OpenAi,
    /// `Stripe-Should-Retry`; an `error` object.
    Stripe,
    /// `x-amzn-ErrorType`, and the error's name in JSON or XML, as its SDKs look for it.
    Aws,
    /// A `message` about a secondary rate limit.
    GitHub,
    /// `x-envoy-ratelimited`; no body of its own.
    Envoy,
}

/// How keys appear in logs and records: the `privacy` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyPrivacy {
    /// As they are.
    #[default]
    Plain,
    /// As a keyed hash.
    Hashed,
    /// Their first characters only.
    Truncated,
}

/// How the servers behind read paths: the `paths` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathSettings {
    /// Which characters separate segments.
    pub reading: PathReading,
    /// Whether a path that servers may take for different places is refused.
    pub refuse_ambiguous: bool,
    /// Whether `/Login` and `/login` are one path.
    pub ignore_case: bool,
}

impl PathSettings {
    /// The value of a path parameter, as keys have it.
    pub(crate) fn path_value(self, value: &str) -> Cow<'_, str> {
        if self.ignore_case { Cow::Owned(path::fold_text(value)) } else { Cow::Borrowed(value) }
    }
}

/// Which characters of a path separate segments, and which are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathReading {
    /// Not known: limits apply under every reading that a server may take.
    #[default]
    Any,
    /// `/` separates segments. `%2F`, `\` and `;` are text.
    Literal,
    /// Escapes are decoded first, so `%2F` separates segments too: nginx, WSGI, ASGI, PHP.
    Decoded,
    /// `;` and what follows in a segment is removed, then escapes are decoded: servlet containers.
    Servlet,
}

impl PathReading {
    /// Whether the policy says how the servers read paths.
    pub(crate) const fn is_declared(self) -> bool {
        !matches!(self, Self::Any)
    }
}
