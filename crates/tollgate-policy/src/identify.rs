//! Looks up a property of a request or descriptor: user, API key, tenant, plan.
//!
//! Values that the caller of Tollgate provides (`Properties::known`)
//! come first; then the places that `identify` lists, in order. An empty
//! value counts as no value. A place with several different values ends the search:
//! the property is ambiguous (`lookup`).

use std::borrow::Cow;
use std::fmt;

use crate::lookup::{Collector, EveryValue, Lookup, SingleValue};
use crate::properties::Properties;
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
    pub(crate) const fn is_verified(&self) -> bool {
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
    pub(crate) fn lookup<'r>(&self, source: &KeySource, view: &impl Properties<'r>) -> Lookup<'r> {
        match self.places(source, view) {
            Places::Known(value) => Lookup::Value(Cow::Borrowed(value.as_bytes())),
            Places::Listed { places, verified_only } => places
                .iter()
                .filter(|place| !verified_only || place.is_verified())
                .map(|place| single(|out| place.collect(view, out)))
                .find(|found| *found != Lookup::Missing)
                .unwrap_or(Lookup::Missing),
            Places::Own => single(|out| view.collect(source, out)),
        }
    }

    /// Visits every non-empty value of a property, in every place and in every reading.
    pub(crate) fn visit_values<'r>(
        &self,
        source: &KeySource,
        view: &impl Properties<'r>,
        mut visit: impl FnMut(&[u8]),
    ) {
        match self.places(source, view) {
            Places::Known(value) => visit(value.as_bytes()),
            Places::Listed { places, verified_only } => {
                let out = &mut EveryValue(visit);
                for place in places.iter().filter(|place| !verified_only || place.is_verified()) {
                    place.collect(view, out);
                }
            }
            Places::Own => view.collect(source, &mut EveryValue(visit)),
        }
    }

    fn places<'i, 'r>(&'i self, source: &KeySource, view: &impl Properties<'r>) -> Places<'i, 'r> {
        // In an identified request, only verified places add values. An API key is presented
        // rather than an identity, so it may still be presented.
        let (places, verified_only) = match source {
            KeySource::User => (&self.user, view.is_identified()),
            KeySource::ApiKey => (&self.api_key, false),
            KeySource::Tenant => (&self.tenant, view.is_identified()),
            _ => return Places::Own,
        };
        match view.known(source) {
            Some(value) if !value.is_empty() => Places::Known(value),
            _ => Places::Listed { places, verified_only },
        }
    }
}

fn single<'r>(collect: impl FnOnce(&mut SingleValue<'r>)) -> Lookup<'r> {
    let mut single = SingleValue::default();
    collect(&mut single);
    single.finish()
}

impl Credential {
    fn collect<'r>(&self, view: &impl Properties<'r>, out: &mut impl Collector<'r>) {
        match self {
            Self::Bearer => view.collect_bearer(out),
            // The reader accepts only headers, cookies, parameters and claims here.
            Self::Named(source) => view.collect(source, out),
        }
    }
}
