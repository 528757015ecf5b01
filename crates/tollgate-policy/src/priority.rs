//! The priority classes of a policy.
//!
//! A class has conditions on the request, or none: then it is everything else. `match_request::classify`
//! finds the class of a request.

use crate::limit::cover_method;
use crate::lists::{Conditions, ListKind};
use crate::pattern::{HostPattern, PathPattern};
use crate::policy::{PlanName, Policy};
use crate::properties::Properties;
use crate::source::KeySource;

/// A priority class of a [`Policy`].
///
/// Classes are ordered by importance. When capacity is short, requests of the last class are refused
/// first.
///
/// ```
/// # use tollgate_policy::{Call, Checks, Policy};
/// let policy = Policy::parse("
/// priorities:
///   - {name: critical, endpoint: /payments/**}
///   - {name: normal}
///   - {name: bulk, headers: {x-priority: bulk}}
/// limits: []
/// ")?;
/// let class = |call: Call<'_>| {
///     let mut checks = Checks::new();
///     policy.match_request(&call, &mut checks);
///     checks.priority().map(|class| (class.name(), class.rank()))
/// };
/// assert_eq!(class(Call::new("POST", "/payments/7")), Some(("critical", 0)));
/// assert_eq!(class(Call::new("GET", "/")), Some(("normal", 1)));
/// assert_eq!(class(Call::new("GET", "/").header("x-priority", "bulk")), Some(("bulk", 2)));
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug)]
pub struct PriorityClass {
    pub(crate) name: Box<str>,
    pub(crate) rank: u8,
    /// `None`: the class of all requests that no other class matches.
    pub(crate) conditions: Option<ClassConditions>,
    pub(crate) trusts_headers: bool,
}

/// The conditions of a class, which must all hold.
#[derive(Clone, Debug)]
pub(crate) struct ClassConditions {
    /// Empty means all, and inputs without a path.
    pub(crate) endpoints: Vec<PathPattern>,
    pub(crate) except: Vec<PathPattern>,
    /// In upper case; empty means all.
    pub(crate) methods: Vec<Box<str>>,
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) plans: Vec<Box<str>>,
    pub(crate) properties: Conditions,
}

/// Compares classes by name and rank, which identify them in a policy.
impl PartialEq for PriorityClass {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.rank) == (&other.name, other.rank)
    }
}

impl Eq for PriorityClass {}

impl PriorityClass {
    /// Returns the name, which is unique in the policy and valid in headers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rank. The most important class has rank 0.
    pub const fn rank(&self) -> u8 {
        self.rank
    }

    /// Whether the class has conditions. A class without conditions is everything else.
    pub const fn has_conditions(&self) -> bool {
        self.conditions.is_some()
    }

    /// Whether a client may satisfy a condition of the class by text that it chooses freely, and the
    /// class does not trust it. Such text may only lower the class of a request.
    pub(crate) fn is_claimable(&self) -> bool {
        let may_be_claimed = |source: &KeySource| source.is_claim() || is_identity(source);
        !self.trusts_headers && (self.reads_plan() || self.sources().any(may_be_claimed))
    }

    /// Whether the class has a condition on a header, a cookie or a query parameter, and does not trust
    /// it: a class that clients ask for.
    pub(crate) fn is_claimable_directly(&self) -> bool {
        !self.trusts_headers && self.sources().any(KeySource::is_claim)
    }

    fn reads_plan(&self) -> bool {
        self.conditions.as_ref().is_some_and(|it| !it.plans.is_empty())
    }

    /// Whether all conditions hold; false for the class without conditions.
    pub(crate) fn holds<'r>(&self, kind: ListKind, policy: &Policy, view: &impl Properties<'r>) -> bool {
        self.conditions.as_ref().is_some_and(|it| it.hold(kind, policy, view))
    }

    /// Returns the properties that the conditions read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &KeySource> {
        self.conditions.iter().flat_map(|it| it.properties.sources())
    }

    /// Returns every path pattern of the conditions.
    pub(crate) fn patterns_mut(&mut self) -> impl Iterator<Item = &mut PathPattern> {
        self.conditions.iter_mut().flat_map(|it| it.endpoints.iter_mut().chain(&mut it.except))
    }
}

/// Whether a property identifies a caller, and may be read from a header.
pub(crate) const fn is_identity(source: &KeySource) -> bool {
    matches!(source, KeySource::User | KeySource::ApiKey | KeySource::Tenant)
}

impl ClassConditions {
    /// Whether all conditions hold for one reading of the path: certainly (`Allow`), or for one of
    /// several values of a property (`Deny`).
    fn hold<'r>(&self, kind: ListKind, policy: &Policy, view: &impl Properties<'r>) -> bool {
        let Policy { identify, default_plan, .. } = policy;
        (self.endpoints.is_empty() || view.is_covered(&self.endpoints, kind))
            && (self.except.is_empty() || !view.is_covered(&self.except, kind))
            && (self.methods.is_empty() || view.method().is_some_and(|it| cover_method(&self.methods, it)))
            && (self.hosts.is_empty() || view.is_host_covered(&self.hosts, kind))
            && self.properties.hold(kind, identify, view)
            && (self.plans.is_empty() || {
                let lists = |plan: &str| self.plans.iter().any(|known| **known == *plan);
                match policy.plan_of(view) {
                    PlanName::One(plan) => lists(&plan),
                    PlanName::Missing => default_plan.as_deref().is_some_and(lists),
                    PlanName::Ambiguous => kind == ListKind::Deny,
                }
            })
    }
}
