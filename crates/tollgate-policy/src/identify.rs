//! Looks up a property of a request: user, API key, tenant, plan.
//!
//! Values that the caller of Tollgate provides (`Request::user` and related methods)
//! come first; then the places that `identify` lists, in order. An empty
//! value counts as no value. A place with several different values ends the search:
//! the property is ambiguous (`lookup`).

use std::borrow::Cow;
use std::fmt;

use crate::extract;
use crate::lookup::{Collector, EveryValue, Lookup, Readers, SingleValue};
use crate::matcher;
use crate::path::Readings;
use crate::pattern::PathPattern;
use crate::request::Request;
use crate::source::KeySource;

/// A place in a request that may identify the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// A header, cookie, parameter or claim.
    Named(KeySource),
}

impl Credential {
    /// Whether the caller cannot forge the value: claims come from verified tokens.
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

/// The `identify` section: the places of users, API keys and tenants in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identify {
    /// The places of the user.
    pub user: Vec<Credential>,
    /// The places of the API key.
    pub api_key: Vec<Credential>,
    /// The places of the tenant.
    pub tenant: Vec<Credential>,
    /// The handling of requests with several different values of a credential.
    pub ambiguous: OnAmbiguous,
}

/// The handling of a request that gives several different values for a part of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnAmbiguous {
    /// It is counted by client address.
    #[default]
    Address,
    /// It is refused: over HTTP with status 400.
    Refuse,
}

impl Default for Identify {
    fn default() -> Self {
        let header = |name: &str| Credential::Named(KeySource::Header(name.into()));
        Self {
            user: vec![header("x-user-id")],
            api_key: vec![header("x-api-key"), Credential::Bearer],
            tenant: vec![header("x-tenant-id")],
            ambiguous: OnAmbiguous::default(),
        }
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

/// The places of a property.
enum Places<'i, 'r> {
    /// The caller of Tollgate provides the value.
    Known(&'r str),
    /// The first of these places that has a value.
    Listed { places: &'i [Credential], verified_only: bool },
    /// The request itself.
    Own,
}

impl Identify {
    /// Looks up the single value of a property. `match_request` handles addresses, and
    /// descriptors as a whole.
    pub(crate) fn lookup<'r, R: Request + ?Sized>(
        &self,
        source: &KeySource,
        view: &View<'r, R>,
    ) -> Lookup<'r> {
        match self.places(source, view.request) {
            Places::Known(value) => Lookup::Value(Cow::Borrowed(value.as_bytes())),
            Places::Listed { places, verified_only } => places
                .iter()
                .filter(|place| !verified_only || place.is_verified())
                .map(|place| single(|out| place.collect(view, out)))
                .find(|found| *found != Lookup::Missing)
                .unwrap_or(Lookup::Missing),
            Places::Own => single(|out| source.collect(view, out)),
        }
    }

    /// Visits every non-empty value of a property, in every place and in every reading.
    pub(crate) fn visit_values<R: Request + ?Sized>(
        &self,
        source: &KeySource,
        view: &View<'_, R>,
        mut visit: impl FnMut(&[u8]),
    ) {
        match self.places(source, view.request) {
            Places::Known(value) => visit(value.as_bytes()),
            Places::Listed { places, verified_only } => {
                let out = &mut EveryValue(visit);
                for place in places.iter().filter(|place| !verified_only || place.is_verified()) {
                    place.collect(view, out);
                }
            }
            Places::Own => source.collect(view, &mut EveryValue(visit)),
        }
    }

    fn places<'i, 'r, R: Request + ?Sized>(&'i self, source: &KeySource, request: &'r R) -> Places<'i, 'r> {
        // In an identified request, only verified places add values. An API key is presented
        // rather than an identity, so it may still be presented.
        let settled = request.is_identified();
        let (known, places, verified_only) = match source {
            KeySource::User => (request.user(), &self.user, settled),
            KeySource::ApiKey => (request.api_key(), &self.api_key, false),
            KeySource::Tenant => (request.tenant(), &self.tenant, settled),
            _ => return Places::Own,
        };
        match known {
            Some(value) if !value.is_empty() => Places::Known(value),
            _ => Places::Listed { places, verified_only },
        }
    }
}

const AUTHORIZATION: &str = "authorization";

fn single<'r>(collect: impl FnOnce(&mut SingleValue<'r>)) -> Lookup<'r> {
    let mut single = SingleValue::default();
    collect(&mut single);
    single.finish()
}

impl Credential {
    fn collect<'r, R: Request + ?Sized>(&self, view: &View<'r, R>, out: &mut impl Collector<'r>) {
        match self {
            Self::Bearer => {
                view.request.visit_header(AUTHORIZATION, &mut |line| extract::authorization(line, out));
            }
            // The reader accepts only headers, cookies, parameters and claims here.
            Self::Named(source) => source.collect(view, out),
        }
    }
}

impl KeySource {
    /// Adds the values that the request itself has for this source.
    fn collect<'r, R: Request + ?Sized>(&self, view: &View<'r, R>, out: &mut impl Collector<'r>) {
        let request = view.request;
        match self {
            Self::Ip | Self::Global | Self::Descriptor | Self::User | Self::ApiKey | Self::Tenant => {}
            Self::Header(name) => {
                request.visit_header(name, &mut |line| out.add_line(line));
                request.visit_lookalikes(name, &mut |line| {
                    out.add(Cow::Borrowed(line.trim_ascii()), Readers::Some);
                });
            }
            Self::Cookie(name) => {
                let mut in_quotes = false;
                request.visit_header("cookie", &mut |line| extract::cookie(line, name, &mut in_quotes, out));
            }
            Self::Query(name) => {
                if let Some(query) = request.query() {
                    extract::query(query, name, out);
                }
            }
            Self::Path(name) => {
                let index = view.pattern.and_then(|pattern| pattern.position(name));
                if let Some(segment) = index.and_then(|index| matcher::segment(view.path, index)) {
                    out.add(extract::decoded(segment.as_bytes(), false), Readers::All);
                }
            }
            Self::Claim(name) => {
                request
                    .visit_claim(name, &mut |value| out.add(Cow::Borrowed(value.as_bytes()), Readers::All));
            }
            Self::Entry(name) => {
                let entries = request.descriptor().map_or(&[][..], |descriptor| descriptor.entries);
                for (_, value) in entries.iter().filter(|(known, _)| *known == &**name) {
                    out.add(Cow::Borrowed(value.as_bytes()), Readers::All);
                }
            }
        }
    }
}
