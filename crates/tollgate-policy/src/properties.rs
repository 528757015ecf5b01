//! The properties of a request or descriptor that limits and lists read.
//!
//! Matching is written once, over [`Properties`]. A [`View`] of a request and a [`Descriptor`] have them.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::descriptor::Descriptor;
use crate::extract;
use crate::limit::Limit;
use crate::lists::ListKind;
use crate::lookup::{Collector, Readers};
use crate::matcher;
use crate::path::Readings;
use crate::pattern::{HostPattern, PathPattern};
use crate::request::Request;
use crate::source::KeySource;

const AUTHORIZATION: &str = "authorization";

/// The properties of an input. Each has a value, several or none.
pub(crate) trait Properties<'r> {
    /// Returns the client address.
    fn client(&self) -> Option<IpAddr>;

    /// Returns the user, API key or tenant, if the caller of Tollgate provides it.
    fn known(&self, source: &KeySource) -> Option<&'r str>;

    /// Returns the plan, if the caller of Tollgate provides it.
    fn plan(&self) -> Option<&'r str>;

    /// Returns the units that a limit charges.
    fn cost(&self, limit: &Limit) -> u64;

    /// Adds the values that the input itself has for this source.
    fn collect(&self, source: &KeySource, out: &mut impl Collector<'r>);

    /// Whether user, tenant and plan are final.
    fn is_identified(&self) -> bool {
        false
    }

    /// Adds the tokens of `Authorization: Bearer`.
    fn collect_bearer(&self, _: &mut impl Collector<'r>) {}

    /// Returns the entries of a descriptor.
    fn entries(&self) -> Option<&'r [(&'r str, &'r str)]> {
        None
    }

    /// Whether a list with these patterns covers the path, if there is one.
    fn is_covered(&self, _patterns: &[PathPattern], _kind: ListKind) -> bool {
        false
    }

    /// Returns the method, if there is one.
    fn method(&self) -> Option<&str> {
        None
    }

    /// Whether a list with these patterns covers the host, if there is one.
    fn is_host_covered(&self, _patterns: &[HostPattern], _kind: ListKind) -> bool {
        false
    }
}

/// A request with one reading of its path and, if a limit needs it, the pattern that matched.
pub(crate) struct View<'r, R: ?Sized> {
    pub(crate) request: &'r R,
    pub(crate) path: &'r str,
    /// The readings of its path, if there are several and lists are matched.
    pub(crate) readings: Option<&'r Readings<'r>>,
    pub(crate) pattern: Option<&'r PathPattern>,
}

impl<'r, R: Request + ?Sized> Properties<'r> for View<'r, R> {
    fn client(&self) -> Option<IpAddr> {
        self.request.client()
    }

    #[inline]
    fn known(&self, source: &KeySource) -> Option<&'r str> {
        match source {
            KeySource::User => self.request.user(),
            KeySource::ApiKey => self.request.api_key(),
            KeySource::Tenant => self.request.tenant(),
            _ => None,
        }
    }

    fn plan(&self) -> Option<&'r str> {
        self.request.plan()
    }

    // Inlined: for most requests and limits it is a constant.
    #[inline(always)]
    fn cost(&self, limit: &Limit) -> u64 {
        self.request.cost().unwrap_or_else(|| limit.cost.of(self.request))
    }

    fn collect(&self, source: &KeySource, out: &mut impl Collector<'r>) {
        let request = self.request;
        match source {
            KeySource::Ip
            | KeySource::Global
            | KeySource::Descriptor
            | KeySource::Entry(_)
            | KeySource::User
            | KeySource::ApiKey
            | KeySource::Tenant => {}
            KeySource::Header(name) => {
                request.visit_header(name, &mut |line| out.add_line(line));
                request.visit_lookalikes(name, &mut |line| {
                    out.add(Cow::Borrowed(line.trim_ascii()), Readers::Some);
                });
            }
            KeySource::Cookie(name) => {
                let mut in_quotes = false;
                request.visit_header("cookie", &mut |line| extract::cookie(line, name, &mut in_quotes, out));
            }
            KeySource::Query(name) => {
                if let Some(query) = request.query() {
                    extract::query(query, name, out);
                }
            }
            KeySource::Path(name) => {
                let index = self.pattern.and_then(|pattern| pattern.position(name));
                if let Some(segment) = index.and_then(|index| matcher::segment(self.path, index)) {
                    out.add(extract::decoded(segment.as_bytes(), false), Readers::All);
                }
            }
            KeySource::Claim(name) => {
                request
                    .visit_claim(name, &mut |value| out.add(Cow::Borrowed(value.as_bytes()), Readers::All));
            }
        }
    }

    fn is_identified(&self) -> bool {
        self.request.is_identified()
    }

    fn collect_bearer(&self, out: &mut impl Collector<'r>) {
        self.request.visit_header(AUTHORIZATION, &mut |line| extract::authorization(line, out));
    }

    fn is_covered(&self, patterns: &[PathPattern], kind: ListKind) -> bool {
        let covers = |path: &str| patterns.iter().any(|pattern| pattern.covers(path));
        match (self.readings, kind) {
            (None, _) => covers(self.path),
            (Some(readings), ListKind::Deny) => readings.iter().any(covers),
            (Some(readings), ListKind::Allow) => readings.iter().all(covers),
        }
    }

    fn method(&self) -> Option<&str> {
        Some(self.request.method())
    }

    fn is_host_covered(&self, patterns: &[HostPattern], kind: ListKind) -> bool {
        let covers = |host: &str| patterns.iter().any(|pattern| pattern.covers(host));
        let mut hosts = self.request.host().into_iter().chain(self.request.other_host()).peekable();
        match kind {
            ListKind::Deny => hosts.any(covers),
            ListKind::Allow => hosts.peek().is_some() && hosts.all(covers),
        }
    }
}

/// An input without the values that its client chooses freely: headers, cookies and query parameters,
/// and credentials that are read from them.
pub(crate) struct TrustedProperties<'v, V>(pub(crate) &'v V);

impl<'r, V: Properties<'r>> Properties<'r> for TrustedProperties<'_, V> {
    fn client(&self) -> Option<IpAddr> {
        self.0.client()
    }

    fn known(&self, source: &KeySource) -> Option<&'r str> {
        self.0.known(source)
    }

    fn plan(&self) -> Option<&'r str> {
        self.0.plan()
    }

    fn cost(&self, limit: &Limit) -> u64 {
        self.0.cost(limit)
    }

    fn collect(&self, source: &KeySource, out: &mut impl Collector<'r>) {
        if !source.is_claim() {
            self.0.collect(source, out);
        }
    }

    fn is_identified(&self) -> bool {
        self.0.is_identified()
    }

    fn entries(&self) -> Option<&'r [(&'r str, &'r str)]> {
        self.0.entries()
    }

    fn is_covered(&self, patterns: &[PathPattern], kind: ListKind) -> bool {
        self.0.is_covered(patterns, kind)
    }

    fn method(&self) -> Option<&str> {
        self.0.method()
    }

    fn is_host_covered(&self, patterns: &[HostPattern], kind: ListKind) -> bool {
        self.0.is_host_covered(patterns, kind)
    }
}

/// User, API key, tenant and plan are the entries of these names.
impl<'r> Properties<'r> for Descriptor<'r> {
    fn client(&self) -> Option<IpAddr> {
        self.client()
    }

    fn known(&self, source: &KeySource) -> Option<&'r str> {
        match source {
            KeySource::User => self.value("user"),
            KeySource::ApiKey => self.value("api_key"),
            KeySource::Tenant => self.value("tenant"),
            _ => None,
        }
    }

    fn plan(&self) -> Option<&'r str> {
        self.value("plan")
    }

    fn cost(&self, limit: &Limit) -> u64 {
        self.cost.unwrap_or_else(|| limit.cost.without_request())
    }

    fn collect(&self, source: &KeySource, out: &mut impl Collector<'r>) {
        let KeySource::Entry(name) = source else { return };
        for (_, value) in self.entries.iter().filter(|(known, _)| *known == &**name) {
            out.add(Cow::Borrowed(value.as_bytes()), Readers::All);
        }
    }

    fn entries(&self) -> Option<&'r [(&'r str, &'r str)]> {
        Some(self.entries)
    }
}
