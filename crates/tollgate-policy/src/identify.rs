//! Finds a property of a request: who calls, from where, on which plan.
//!
//! What the caller of Tollgate has found out (`Request::user` and its siblings)
//! comes first; then the places that `identify` names, in its order. An empty
//! value is no value.

use std::borrow::Cow;
use std::fmt;

use crate::extract;
use crate::matcher;
use crate::path::Readings;
use crate::pattern::PathPattern;
use crate::request::Request;
use crate::source::KeySource;

/// More lines than a browser sends, and an end to how long a search may take.
const MOST_COOKIE_LINES: usize = 64;

/// Where a name of a caller may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// A header, cookie, parameter or claim.
    Named(KeySource),
}

impl Credential {
    /// Whether a caller cannot make it up: claims are of verified tokens.
    const fn is_verified(&self) -> bool {
        matches!(self, Self::Named(KeySource::Claim(_)))
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::Named(source) => source.fmt(f),
        }
    }
}

/// Where users, keys and tenants are named: the `identify` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identify {
    /// Where the user is named.
    pub user: Vec<Credential>,
    /// Where the API key stands.
    pub api_key: Vec<Credential>,
    /// Where the tenant is named.
    pub tenant: Vec<Credential>,
}

impl Default for Identify {
    fn default() -> Self {
        let header = |name: &str| Credential::Named(KeySource::Header(name.into()));
        Self {
            user: vec![header("x-user-id")],
            api_key: vec![header("x-api-key"), Credential::Bearer],
            tenant: vec![header("x-tenant-id")],
        }
    }
}

/// A request with one reading of its path and, where a limit asks, the pattern it matched.
pub(crate) struct View<'r, R: ?Sized> {
    pub(crate) request: &'r R,
    pub(crate) path: &'r str,
    /// The readings of its path, where there are several and lists are asked.
    pub(crate) readings: Option<&'r Readings<'r>>,
    pub(crate) pattern: Option<&'r PathPattern>,
}

impl Identify {
    /// The value of a property, if it has one. Addresses, and descriptors as a whole, are
    /// the business of `survey`.
    pub(crate) fn value<'r, R: Request + ?Sized>(
        &self,
        source: &KeySource,
        view: &View<'r, R>,
    ) -> Option<Cow<'r, [u8]>> {
        let request = view.request;
        let among = |known: Option<&'r str>, places: &[Credential], trusted_only: bool| match known {
            Some(value) if !value.is_empty() => Some(Cow::Borrowed(value.as_bytes())),
            _ => places
                .iter()
                .filter(|place| !trusted_only || place.is_verified())
                .find_map(|place| self.credential(place, view)),
        };
        // Once somebody has settled who calls, only what was verified adds to it. A
        // key is what a caller shows rather than what it is, and may still be shown.
        let known = |known, places| among(known, places, request.is_identified());
        let value = match source {
            KeySource::Ip | KeySource::Global | KeySource::Descriptor => None,
            KeySource::User => known(request.user(), &self.user),
            KeySource::ApiKey => among(request.api_key(), &self.api_key, false),
            KeySource::Tenant => known(request.tenant(), &self.tenant),
            KeySource::Header(name) => {
                unambiguous(request, name).map(|value| Cow::Borrowed(value.trim_ascii()))
            }
            KeySource::Cookie(name) => (0..MOST_COOKIE_LINES)
                .map_while(|index| request.header_line("cookie", index))
                .find_map(|line| extract::cookie(line, name)),
            KeySource::Query(name) => extract::query(request.query()?, name),
            KeySource::Path(name) => {
                let index = view.pattern?.position(name)?;
                matcher::segment(view.path, index).map(|segment| extract::decoded(segment.as_bytes(), false))
            }
            KeySource::Claim(name) => request.claim(name).map(|value| Cow::Borrowed(value.as_bytes())),
            KeySource::Entry(name) => {
                request.descriptor()?.value(name).map(|value| Cow::Borrowed(value.as_bytes()))
            }
        };
        value.filter(|value| !value.is_empty())
    }

    fn credential<'r, R: Request + ?Sized>(
        &self,
        place: &Credential,
        view: &View<'r, R>,
    ) -> Option<Cow<'r, [u8]>> {
        match place {
            Credential::Bearer => {
                let token = extract::bearer(unambiguous(view.request, "authorization")?)?;
                (!token.is_empty()).then_some(Cow::Borrowed(token))
            }
            // The reader lets only headers, cookies, parameters and claims in here, so this ends.
            Credential::Named(source) => self.value(source, view),
        }
    }
}

/// The value of a header that names somebody. Of two lines that differ nobody knows
/// which the service behind believes, and a caller who may choose one for each request
/// is never counted twice: that is as good as none.
fn unambiguous<'r, R: Request + ?Sized>(request: &'r R, name: &str) -> Option<&'r [u8]> {
    let first = request.header(name)?;
    let mut others = (1..).map_while(|index| request.header_line(name, index));
    others.all(|line| line == first).then_some(first)
}
