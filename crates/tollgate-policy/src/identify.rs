//! Finds a property of a request: who calls, from where, on which plan.
//!
//! What the caller of Tollgate has found out (`Request::user` and its siblings)
//! comes first; then the places that `identify` names, in its order. An empty
//! value is no value.

use std::borrow::Cow;
use std::fmt;

use crate::extract;
use crate::matcher;
use crate::pattern::PathPattern;
use crate::request::Request;
use crate::source::KeySource;

/// Where a name of a caller may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// A header, cookie, parameter or claim.
    Named(KeySource),
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

/// A request with its path in normal form and, where a limit asks, the pattern it matched.
pub(crate) struct View<'r, R: ?Sized> {
    pub(crate) request: &'r R,
    pub(crate) path: &'r str,
    pub(crate) pattern: Option<&'r PathPattern>,
}

impl Identify {
    /// The value of a property, if it has one. Addresses are the business of `survey`.
    pub(crate) fn value<'r, R: Request + ?Sized>(
        &self,
        source: &KeySource,
        view: &View<'r, R>,
    ) -> Option<Cow<'r, [u8]>> {
        let request = view.request;
        let known = |known: Option<&'r str>, places: &[Credential]| match known {
            Some(value) if !value.is_empty() => Some(Cow::Borrowed(value.as_bytes())),
            _ => places.iter().find_map(|place| self.credential(place, view)),
        };
        let value = match source {
            KeySource::Ip | KeySource::Global => None,
            KeySource::User => known(request.user(), &self.user),
            KeySource::ApiKey => known(request.api_key(), &self.api_key),
            KeySource::Tenant => known(request.tenant(), &self.tenant),
            KeySource::Header(name) => request.header(name).map(|value| Cow::Borrowed(value.trim_ascii())),
            KeySource::Cookie(name) => extract::cookie(request.header("cookie")?, name),
            KeySource::Query(name) => extract::query(request.query()?, name),
            KeySource::Path(name) => {
                let index = view.pattern?.position(name)?;
                matcher::segment(view.path, index).map(|segment| Cow::Borrowed(segment.as_bytes()))
            }
            KeySource::Claim(name) => request.claim(name).map(|value| Cow::Borrowed(value.as_bytes())),
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
                let token = extract::bearer(view.request.header("authorization")?)?;
                (!token.is_empty()).then_some(Cow::Borrowed(token))
            }
            // The reader lets only headers, cookies, parameters and claims in here, so this ends.
            Credential::Named(source) => self.value(source, view),
        }
    }
}
