//! Builds policies in Rust instead of reading them from a file.
//!
//! Built limits are matched and keyed by the same code as limits from a file. Types rule out
//! many of the mistakes that a file can contain.

mod error;

use std::sync::Arc;

use tollgate_core::{Quota, Rule, RuleId, Span};

use crate::adaptive::AdaptiveSlots;
use crate::cost::{Cost, Settle};
use crate::descriptor::index::Index;
use crate::descriptor::{DescriptorPattern, EntryPattern, MAX_ENTRIES, domain};
use crate::envoy_match::EnvoyMatch;
use crate::limit::{Limit, LimitDefinition, MAX_TARPIT, Missing, Mode, Soft, is_limit_name};
use crate::limit_group::LimitGroups;
use crate::matcher::Matcher;
use crate::pattern::PathPattern;
use crate::policy::Policy;
use crate::priority::PriorityClass;
use crate::settings::{Dialect, PathSettings};
use crate::slot_queue::SlotQueue;
use crate::source::KeySource;

pub use error::BuildError;

/// A builder for one limit.
///
/// ```
/// # use tollgate_core::{Bucket, Rate};
/// # use tollgate_policy::{KeySource, LimitBuilder, Policy};
/// let search = LimitBuilder::new("search")
///     .endpoint("/api/v1/search")
///     .by(KeySource::ApiKey)
///     .quota(Bucket::new(Rate::per_minute(1_000))?.with_burst(200)?);
/// assert_eq!(Policy::of([search])?.limits()[0].name(), "search");
///
/// let without_key = LimitBuilder::new("no-key").quota(Bucket::new(Rate::per_minute(1))?);
/// assert!(Policy::of([without_key]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimitBuilder {
    name: String,
    endpoints: Vec<String>,
    except: Vec<String>,
    methods: Vec<Box<str>>,
    by: Vec<KeySource>,
    quotas: Vec<Quota>,
    adaptive: Option<AdaptiveSlots>,
    missing: Missing,
    cost: u64,
    settle: Option<Settle>,
    mode: Mode,
    count_denied: bool,
    dialects: Vec<Dialect>,
    soft: Option<Soft>,
    slot_queue: Option<SlotQueue>,
    envoy_match: Option<EnvoyMatch>,
    descriptor: Vec<String>,
    domains: Vec<String>,
    ahead: Option<u64>,
}

impl LimitBuilder {
    /// Creates a limit with this name that covers every request.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            endpoints: Vec::new(),
            except: Vec::new(),
            methods: Vec::new(),
            by: Vec::new(),
            quotas: Vec::new(),
            adaptive: None,
            missing: Missing::default(),
            cost: 1,
            settle: None,
            mode: Mode::default(),
            count_denied: false,
            dialects: Vec::new(),
            soft: None,
            slot_queue: None,
            envoy_match: None,
            descriptor: Vec::new(),
            domains: Vec::new(),
            ahead: None,
        }
    }

    /// Excludes the limit from request matching: callers look it up by name. The domain and the
    /// entries are shown to operators as its match; an entry without a value matches any value.
    #[must_use]
    pub fn envoy_match<'e>(
        mut self,
        domain: &str,
        entries: impl IntoIterator<Item = (&'e str, Option<&'e str>)>,
    ) -> Self {
        self.envoy_match = Some(EnvoyMatch::new(domain, entries));
        self
    }

    /// Excludes the limit from request matching, as [`envoy_match`](Self::envoy_match) does. Limits may share the
    /// entries of their matches.
    #[must_use]
    pub fn matched_by(mut self, envoy_match: EnvoyMatch) -> Self {
        self.envoy_match = Some(envoy_match);
        self
    }

    /// Covers this path pattern: `/exact`, `/users/{id}`, `/files/**`. Repeated calls add patterns.
    #[must_use]
    pub fn endpoint(mut self, pattern: impl Into<String>) -> Self {
        self.endpoints.push(pattern.into());
        self
    }

    /// Excludes the paths of this pattern. Repeated calls add patterns.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Rate};
    /// # use tollgate_policy::{Call, Checks, KeySource, LimitBuilder, Policy};
    /// let site = LimitBuilder::new("site").except("/healthz").by(KeySource::Ip);
    /// let policy = Policy::of([site.quota(Bucket::new(Rate::per_minute(100))?)])?;
    /// let mut checks = Checks::new();
    /// policy.match_request(&Call::new("GET", "/healthz"), &mut checks);
    /// assert!(checks.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn except(mut self, pattern: impl Into<String>) -> Self {
        self.except.push(pattern.into());
        self
    }

    /// Covers descriptors with these entries, and no other requests: `plan=gold`, `user`,
    /// `path=/v1/*`. Counts by all entries, unless `by` is set.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Rate};
    /// # use tollgate_policy::{Checks, Descriptor, KeySource, LimitBuilder, Policy};
    /// let gold = LimitBuilder::new("gold")
    ///     .descriptor(["plan=gold", "user"])
    ///     .by(KeySource::Entry("user".into()))
    ///     .quota(Bucket::new(Rate::per_minute(600))?);
    /// let policy = Policy::of([gold])?;
    /// let mut checks = Checks::new();
    /// policy.match_descriptor(&Descriptor::new("edge", &[("plan", "gold"), ("user", "ann")]), &mut checks);
    /// assert_eq!(checks[0].key.display().to_string(), "ann");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn descriptor(mut self, entries: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.descriptor = entries.into_iter().map(Into::into).collect();
        self
    }

    /// Covers descriptors of this domain. Repeated calls add domains; the default is all domains.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domains.push(domain.into());
        self
    }

    /// Grants up to this many additional units with an admitted response, for a proxy to admit locally.
    #[must_use]
    pub const fn ahead(mut self, units: u64) -> Self {
        self.ahead = Some(units);
        self
    }

    /// Covers this method. Repeated calls add methods; the default is all methods.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.methods.push(method.to_ascii_uppercase().into());
        self
    }

    /// Counts by this key source. Repeated calls make a key of several parts.
    #[must_use]
    pub fn by(mut self, source: KeySource) -> Self {
        self.by.push(source);
        self
    }

    /// Adds a quota. With several quotas, the limit has several windows and enforces all of them.
    #[must_use]
    pub fn quota(mut self, quota: impl Into<Quota>) -> Self {
        self.quotas.push(quota.into());
        self
    }

    /// Limits concurrent requests to a number that is learned from latency, in place of a quota. Each node
    /// learns for itself.
    ///
    /// ```
    /// # use tollgate_policy::{AdaptiveSlots, KeySource, LimitBuilder, Policy};
    /// let slots = AdaptiveSlots { max: 200, ..AdaptiveSlots::default() };
    /// let policy = Policy::of([LimitBuilder::new("database").by(KeySource::Global).adaptive_slots(slots)])?;
    /// assert_eq!(policy.limits()[0].adaptive(), Some(&slots));
    /// # Ok::<(), tollgate_policy::BuildError>(())
    /// ```
    #[must_use]
    pub const fn adaptive_slots(mut self, slots: AdaptiveSlots) -> Self {
        self.adaptive = Some(slots);
        self
    }

    /// Sets the handling of requests that lack a part of the key.
    #[must_use]
    pub const fn missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// Sets the cost of a request; with [`settle`](Self::settle), the cost that is reserved on arrival.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the source of the final cost of a request. Not available for descriptors and slots.
    #[must_use]
    pub fn settle(mut self, settle: Settle) -> Self {
        self.settle = Some(settle);
        self
    }

    /// Sets the mode, which says whether the limit refuses requests.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Charges refused requests as well.
    #[must_use]
    pub const fn count_denied(mut self) -> Self {
        self.count_denied = true;
        self
    }

    /// Adds a dialect to responses that this limit decides. Repeated calls add dialects; the first
    /// one that has a body writes the body of refusals.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialects.push(dialect);
        self
    }

    /// Marks requests from this percentage of the allowance on, and delays them by `tarpit`; zero
    /// marks without a delay. Values are clamped to 1–100 % and to at most 10 seconds.
    #[must_use]
    pub fn soft(mut self, at: u8, tarpit: Span) -> Self {
        self.soft = Some(Soft { at: at.clamp(1, 100), tarpit: tarpit.min(MAX_TARPIT) });
        self
    }

    /// Lets requests wait for a slot. Has no effect on a limit without slots.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_core::Concurrency;
    /// # use tollgate_policy::{KeySource, LimitBuilder, Policy, SlotQueue};
    /// let db = LimitBuilder::new("db").by(KeySource::Global);
    /// let db = db.quota(Concurrency::new(100, Duration::from_secs(60))?);
    /// let queue = SlotQueue::new(200, Duration::from_secs(1)).fair_by(KeySource::Tenant);
    /// let policy = Policy::of([db.slot_queue(queue)])?;
    /// assert!(policy.has_slot_queues());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn slot_queue(mut self, queue: SlotQueue) -> Self {
        self.slot_queue = Some(queue);
        self
    }

    /// Returns the descriptor pattern and the domains of the limit.
    fn described(&mut self) -> Result<(Option<DescriptorPattern>, Vec<Box<str>>), String> {
        let said = |mistake: tollgate_document::Mistake| mistake.into_message();
        let entries: Vec<_> = self
            .descriptor
            .iter()
            .map(|it| EntryPattern::parse(it))
            .collect::<Result<_, _>>()
            .map_err(said)?;
        let domains: Vec<_> =
            self.domains.iter().map(|it| domain(it)).collect::<Result<_, _>>().map_err(said)?;
        if entries.is_empty() {
            let of_descriptors = !domains.is_empty()
                || self.ahead.is_some()
                || self.by.iter().any(KeySource::is_of_descriptor);
            return if of_descriptors && self.envoy_match.is_none() {
                Err("the entries are missing".to_owned())
            } else {
                Ok((None, domains))
            };
        }
        if entries.len() > MAX_ENTRIES {
            return Err(format!("a descriptor has at most {MAX_ENTRIES} entries"));
        }
        if !(self.endpoints.is_empty() && self.methods.is_empty()) {
            return Err("it covers paths or methods already".to_owned());
        }
        if self.adaptive.is_some() || self.quotas.iter().any(|quota| matches!(quota, Quota::Concurrency(_))) {
            return Err(
                "a proxy does not report the end of a request, so slots would never be released".to_owned()
            );
        }
        let pattern = DescriptorPattern::new(entries);
        if self.by.is_empty() {
            self.by.push(KeySource::Descriptor);
        }
        for source in &self.by {
            match source {
                KeySource::Descriptor | KeySource::Global if self.by.len() == 1 => {}
                KeySource::Entry(entry) if pattern.count(entry) == 1 => {}
                KeySource::Entry(entry) => {
                    return Err(format!("no descriptor has exactly one entry `{entry}` to count by"));
                }
                other => return Err(format!("descriptors cannot be counted by `{other}`")),
            }
        }
        Ok((Some(pattern), domains))
    }

    pub(crate) fn build(mut self) -> Result<Limit, BuildError> {
        if !is_limit_name(&self.name) {
            return Err(BuildError::Name(self.name));
        }
        let described = self.described();
        let name = self.name;
        let (descriptor, domains) = match described {
            Ok(described) => described,
            Err(why) => return Err(BuildError::Descriptor { name, why }),
        };
        if self.by.is_empty() {
            return Err(BuildError::NoKey(name));
        }
        if self.settle.is_some() {
            let why = if descriptor.is_some() || self.envoy_match.is_some() {
                Some("a proxy does not report the response")
            } else if self.adaptive.is_some()
                || self.quotas.iter().any(|quota| matches!(quota, Quota::Concurrency(_)))
            {
                Some("every request takes one slot")
            } else if let Some(Settle::Time(Span::ZERO)) = self.settle {
                Some("the time must be longer than zero")
            } else {
                None
            };
            if let Some(why) = why {
                return Err(BuildError::Settle { name, why: why.to_owned() });
            }
        }
        let (mut endpoints, except) = (patterns(&name, self.endpoints)?, patterns(&name, self.except)?);
        if endpoints.is_empty() && self.envoy_match.is_none() && descriptor.is_none() {
            endpoints.push(PathPattern::everything());
        }
        for parameter in self.by.iter().filter_map(KeySource::path_parameter) {
            if let Some(lacking) = endpoints.iter().find(|it| it.position(parameter).is_none()) {
                let (endpoint, parameter) = (lacking.to_string(), parameter.to_owned());
                return Err(BuildError::NoSuchParameter { name, endpoint, parameter });
            }
        }
        let has_slots = self.quotas.iter().any(|quota| matches!(quota, Quota::Concurrency(_)));
        let rules = match self.adaptive {
            Some(slots) if !self.quotas.is_empty() || slots.min == 0 || slots.min > slots.max => {
                return Err(BuildError::Adaptive(name));
            }
            Some(_) => Vec::new(),
            None => rules(&name, &self.by, self.quotas)?,
        };
        let definition = LimitDefinition {
            slot_queue: self.slot_queue.filter(|_| has_slots).map(Box::new),
            rules,
            adaptive: self.adaptive,
            name: name.into(),
            soft: self.soft,
            endpoints,
            except,
            methods: self.methods,
            descriptor,
            domains,
            envoy_match: self.envoy_match,
            rlqs: None,
            ahead: self.ahead,
            by: self.by,
            missing: self.missing,
            cost: Cost::Fixed(self.cost),
            settle: self.settle,
            count_denied: self.count_denied,
            dialects: self.dialects,
            ..LimitDefinition::blank()
        };
        Ok(Limit::new(definition, self.mode))
    }
}

fn patterns(name: &str, written: Vec<String>) -> Result<Vec<PathPattern>, BuildError> {
    let parse = |endpoint: String| {
        PathPattern::parse(&endpoint).map_err(|mistake| {
            let why = mistake.into_message();
            BuildError::Endpoint { name: name.to_owned(), endpoint, why }
        })
    };
    written.into_iter().map(parse).collect()
}

/// Returns one rule per window, identified by the limit's name, key and numbers.
fn rules(name: &str, by: &[KeySource], quotas: Vec<Quota>) -> Result<Vec<Rule>, BuildError> {
    if quotas.is_empty() {
        return Err(BuildError::NoQuota(name.into()));
    }
    let by = by.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let several = quotas.len() > 1;
    let mut rules: Vec<Rule> = Vec::with_capacity(quotas.len());
    for quota in quotas {
        let length = quota.period().to_string();
        let window = if several { format!("{name}/{length}") } else { name.to_owned() };
        if rules.iter().any(|rule| *rule.name == *window) {
            return Err(BuildError::SameWindow { name: name.into(), length });
        }
        let id = RuleId::of([&*window, &by, &quota.identity()]);
        rules.push(Rule { name: window.into(), id, quota, before: None, lease: None, far: None });
    }
    Ok(rules)
}

impl Policy {
    /// Adds limits that are not found by the path of a request (see
    /// [`LimitBuilder::envoy_match`]). An error names the limit, and no limit is added.
    pub fn extended(self, limits: impl IntoIterator<Item = LimitBuilder>) -> Result<Self, BuildError> {
        let mut all = self.matched_limits().to_vec();
        let mut names: foldhash::HashSet<_> = all.iter().map(|limit| limit.name.clone()).collect();
        for limit in limits {
            let limit = limit.build()?;
            if !names.insert(limit.name.clone()) || self.groups.place(&limit.name).is_some() {
                return Err(BuildError::SameName(limit.name.to_string()));
            }
            all.push(limit);
        }
        Ok(self.with_limits(all))
    }

    /// Returns this policy with other path settings.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Rate};
    /// # use tollgate_policy::{Call, Checks, KeySource, LimitBuilder, PathSettings, Policy};
    /// let login = LimitBuilder::new("login").endpoint("/login").by(KeySource::Ip);
    /// let policy = Policy::of([login.quota(Bucket::new(Rate::per_minute(3))?)])?;
    /// let policy = policy.with_paths(PathSettings { ignore_case: true, ..PathSettings::default() });
    /// let mut checks = Checks::new();
    /// policy.match_request(&Call::new("POST", "/Login"), &mut checks);
    /// assert_eq!(checks.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_paths(mut self, paths: PathSettings) -> Self {
        self.paths = paths;
        if !paths.ignore_case {
            return self;
        }
        let mut limits = self.matched_limits().to_vec();
        for limit in &mut limits {
            let definition = limit.definition_mut();
            definition.endpoints.iter_mut().chain(&mut definition.except).for_each(PathPattern::fold_case);
        }
        self.priorities.iter_mut().flat_map(PriorityClass::patterns_mut).for_each(PathPattern::fold_case);
        self.with_limits(limits)
    }

    /// Replaces the limits of this policy outside of groups.
    fn with_limits(self, limits: Vec<Limit>) -> Self {
        let (routes, matcher, descriptors) = (Vec::new(), Matcher::default(), Index::default());
        let groups = self.groups().to_vec();
        let (limits, without) = (Arc::new(limits), LimitGroups::default());
        let policy = Self { limits, routes, matcher, descriptors, groups: without, ..self }.indexed();
        policy.put_groups(groups)
    }

    /// Creates a policy from limits built in Rust, with the defaults of the file format.
    pub fn of(limits: impl IntoIterator<Item = LimitBuilder>) -> Result<Self, BuildError> {
        Self::default().extended(limits)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Bucket, Concurrency, FixedWindow, Rate};

    use super::*;
    use crate::{Call, Checks};

    fn hourly() -> Bucket {
        Bucket::new(Rate::per_hour(5)).unwrap()
    }

    #[test]
    fn a_built_limit_and_a_written_one_find_the_same_keys() {
        let built = LimitBuilder::new("users")
            .endpoint("/users/{id}")
            .method("get")
            .by(KeySource::Path("id".into()))
            .quota(hourly())
            .quota(FixedWindow::epoch(Rate::per_day(20)).unwrap());
        let built = Policy::of([built]).unwrap();
        let written = "limits: [{name: users, endpoint: '/users/{id}', method: GET, by: path:id, windows: [5/hour, 20/day]}]";
        let written = Policy::parse(written).unwrap();
        let found = |policy: &Policy| {
            let mut checks = Checks::new();
            policy.match_request(&Call::new("GET", "/users/7"), &mut checks);
            checks.iter().map(|it| (it.rule.name.clone(), it.key.clone(), it.cost)).collect::<Vec<_>>()
        };
        assert_eq!(found(&built), found(&written));
        assert_eq!(found(&built).len(), 2);
    }

    #[test]
    fn invalid_limits_are_reported() {
        let good = || LimitBuilder::new("good").by(KeySource::Ip).quota(hourly());
        let message = |limits: Vec<LimitBuilder>| Policy::of(limits).unwrap_err().to_string();
        for (limits, expected) in [
            (vec![LimitBuilder::new("a b").by(KeySource::Ip).quota(hourly())], "`a b` cannot name a limit"),
            (vec![good(), good()], "two limits are called `good`"),
            (vec![LimitBuilder::new("x").quota(hourly())], "limit `x` has no key"),
            (vec![LimitBuilder::new("x").by(KeySource::Ip)], "limit `x` has no quota"),
            (vec![good().quota(hourly())], "two windows of limit `good` are 1h long"),
            (vec![good().endpoint("users")], "limit `good` cannot cover `users`"),
            (
                vec![
                    LimitBuilder::new("x")
                        .descriptor(["a"])
                        .quota(Concurrency::new(2, Span::from_secs(60)).unwrap()),
                ],
                "limit `x` cannot cover descriptors: a proxy does not report the end",
            ),
            (vec![good().by(KeySource::Path("id".into()))], "no request to `/**` has the key `path:id`"),
        ] {
            let said = message(limits);
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
