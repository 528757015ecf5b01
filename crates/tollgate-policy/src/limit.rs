//! A compiled limit: its coverage, its key and its amounts.
//!
//! The fields are in `definition`, the written form is in `file_format`, the search for limits in `matcher`, the derivation of
//! keys from requests in `match_request`.

mod definition;

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

use tollgate_core::{Quota, Rule, RuleId, Span};

use crate::adaptive::AdaptiveSlots;
use crate::bucket_pattern::BucketPattern;
use crate::cost::{Cost, Settle};
use crate::descriptor::DescriptorPattern;
use crate::envoy_match::EnvoyMatch;
use crate::key::Key;
use crate::lookup::members;
use crate::pattern::{HostPattern, PathPattern};
use crate::priority::PriorityClass;
use crate::request::Request;
use crate::settings::Dialect;
use crate::slot_queue::SlotQueue;
use crate::source::KeySource;

pub(crate) use definition::LimitDefinition;

/// A compiled limit of a [`Policy`](crate::Policy).
///
/// ```
/// # use tollgate_policy::{Mode, Policy};
/// let policy = Policy::parse("limits: [{endpoint: /login, by: ip, windows: [1/s, 20/hour]}]")?;
/// let limit = &policy.limits()[0];
/// assert_eq!((limit.name(), limit.mode()), ("login-by-ip", Mode::Enforce));
/// let rules: Vec<_> = limit.rules().iter().map(|rule| &*rule.name).collect();
/// assert_eq!(rules, ["login-by-ip/1s", "login-by-ip/1h"]);
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limit {
    /// The index of the limit in its policy.
    pub(crate) place: usize,
    /// The index of the live limit, if this is a candidate.
    pub(crate) candidate_of: Option<usize>,
    pub(crate) mode: Mode,
    /// Whether the learned number of slots stays as it is, by order of an operator.
    pub(crate) is_frozen: bool,
    /// Shared by all policies that have the limit, so that a new policy costs little for unchanged limits.
    pub(crate) definition: Arc<LimitDefinition>,
}

impl Deref for Limit {
    type Target = LimitDefinition;

    #[inline]
    fn deref(&self) -> &LimitDefinition {
        &self.definition
    }
}

/// The amount that a plan or an override grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// These rules instead of the limit's own, one per window.
    Rules(Vec<Rule>),
    /// Every request passes without a check.
    Unlimited,
    /// Every request is refused.
    Blocked,
}

impl Allowance {
    /// Returns the rules, which are empty for unlimited and blocked keys.
    pub(crate) fn rules(&self) -> &[Rule] {
        if let Self::Rules(rules) = self { rules } else { &[] }
    }
}

/// The share of a region in a limit that regions share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionShare {
    /// The name of the region.
    pub region: Box<str>,
    /// The share in percent.
    pub percent: u8,
}

/// Whom the amount of a limit is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each region for itself.
    #[default]
    Region,
    /// All regions together.
    Global,
}

/// A header that a request must have for a limit to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// The name in lower case.
    pub name: Box<str>,
    /// The required value; `None` accepts any value.
    pub value: Option<Box<str>>,
}

impl HeaderMatch {
    /// Whether a line of the header has the value, as a whole or as a member of a list.
    pub(crate) fn matches<R: Request + ?Sized>(&self, request: &R) -> bool {
        let Some(wanted) = self.value.as_deref().map(str::as_bytes) else {
            let mut found = request.header(&self.name).is_some();
            request.visit_lookalikes(&self.name, &mut |_| found = true);
            return found;
        };
        let mut found = false;
        let mut visit = |line: &[u8]| {
            found |= line.trim_ascii() == wanted || members(line).any(|member| member == wanted);
        };
        request.visit_header(&self.name, &mut visit);
        request.visit_lookalikes(&self.name, &mut visit);
        found
    }
}

/// The handling of requests that lack a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The request is counted by client address instead.
    #[default]
    Ip,
    /// The request is refused.
    Refuse,
    /// All such requests share one allowance.
    Shared,
    /// The limit does not apply to the request.
    Skip,
}

/// Whether a limit refuses requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The limit refuses requests.
    #[default]
    Enforce,
    /// The limit counts requests and reports the refusals that it would have caused.
    Shadow,
    /// The limit is ignored.
    Off,
}

/// The behavior of a limit while its store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnOutage {
    /// This node counts on its own.
    #[default]
    Local,
    /// All requests pass.
    Allow,
    /// All requests are refused.
    Deny,
}

/// The handling of a slot whose caller disconnects before the end of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnHangup {
    /// The slot is held until the upstream service has answered or closed the connection, or until `ttl`.
    #[default]
    Hold,
    /// The upstream request is canceled and the slot is released. For services that stop work when
    /// their connection is closed.
    Release,
}

/// When a limit on descriptors is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChargeTime {
    /// When a request arrives, if the units are available.
    #[default]
    OnArrival,
    /// When the cost is known. A call with hits reports units that have been spent, and is never refused; a
    /// call without hits has the cost of the limit, by default zero.
    Afterwards,
}

/// The maximum delay of a [`Soft`] threshold. A caller that waits longer gives up and retries.
pub(crate) const MAX_TARPIT: Span = Span::from_secs(10);

/// The `soft` threshold of a limit, above which requests are marked or delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    /// The threshold in percent of the allowance (1 to 100).
    pub at: u8,
    /// The delay of requests above the threshold. Zero marks them without a delay.
    pub tarpit: Span,
}

/// The maximum length of a limit's name, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 64;

/// Whether a text is a valid name for a limit. Names appear in headers and metrics.
pub(crate) fn is_limit_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_in_limit_name)
}

/// Whether a character is allowed in the name of a limit.
pub(crate) fn is_in_limit_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || "._-".contains(char)
}

impl Limit {
    /// Creates the limit for ad-hoc rules, without options. Its name is invalid in a policy file, so it
    /// cannot collide.
    pub(crate) fn ad_hoc() -> Self {
        Self::new(LimitDefinition::ad_hoc(), Mode::default())
    }

    /// Creates a limit that is no candidate. Its place is set when a policy is built.
    pub(crate) fn new(definition: LimitDefinition, mode: Mode) -> Self {
        let definition = Arc::new(definition);
        Self { place: usize::MAX, candidate_of: None, mode, is_frozen: false, definition }
    }

    /// Returns the definition for a change. It is copied if another policy shares it.
    pub(crate) fn definition_mut(&mut self) -> &mut LimitDefinition {
        Arc::make_mut(&mut self.definition)
    }

    /// Whether two limits share one definition.
    pub(crate) fn shares_definition(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.definition, &other.definition)
    }

    /// Whether calls with hits report a cost that has been spent: they are charged in full and never
    /// refused ([`ChargeTime::Afterwards`]).
    pub fn charges_afterwards(&self) -> bool {
        matches!(self.charge, ChargeTime::Afterwards)
    }

    /// Returns the key of the descriptor entry that names the owner of a slot.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns the name, which is unique in the policy and valid in headers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name for records that outlive the policy.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns the index of the limit in the policy.
    pub const fn place(&self) -> usize {
        self.place
    }

    /// Whether the limit belongs to `shed`: it protects the service from overload, and its refusals
    /// are answered with 503.
    pub fn is_shed(&self) -> bool {
        self.sheds
    }

    /// Returns the index of the live limit, if this limit is its `candidate`.
    pub const fn candidate_of(&self) -> Option<usize> {
        self.candidate_of
    }

    /// Returns the `soft` threshold.
    pub fn soft(&self) -> Option<&Soft> {
        self.soft.as_ref()
    }

    /// Returns the path patterns; empty for a limit on descriptors.
    pub fn endpoints(&self) -> &[PathPattern] {
        &self.endpoints
    }

    /// Returns the patterns of paths that the limit excludes from its endpoints.
    pub fn except(&self) -> &[PathPattern] {
        &self.except
    }

    /// Returns the host patterns; empty means all hosts.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    /// Returns the methods in upper case; empty means all methods. `GET` also covers `HEAD`.
    pub fn methods(&self) -> impl Iterator<Item = &str> {
        self.methods.iter().map(|method| &**method)
    }

    /// Returns the headers that a request must have.
    pub fn headers(&self) -> &[HeaderMatch] {
        &self.headers
    }

    /// Returns the descriptor pattern. A limit with a pattern covers only requests with a descriptor.
    pub fn descriptor(&self) -> Option<&DescriptorPattern> {
        self.descriptor.as_ref()
    }

    /// Returns the descriptor domains; empty means all domains.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.iter().map(|domain| &**domain)
    }

    /// Returns the coverage of a limit that requests are not matched against.
    pub fn envoy_match(&self) -> Option<&EnvoyMatch> {
        self.envoy_match.as_ref()
    }

    /// Returns the buckets that the limit covers. Proxies count the requests of such a limit, under
    /// assignments that divide it.
    pub fn bucket_pattern(&self) -> Option<&BucketPattern> {
        self.rlqs.as_ref()
    }

    /// Returns the maximum number of additional units that an admitted response grants, for a proxy
    /// to admit locally. They are charged when they are granted.
    pub fn ahead(&self) -> Option<u64> {
        self.ahead
    }

    /// Returns the parts of the key.
    pub fn by(&self) -> &[KeySource] {
        &self.by
    }

    /// Returns the handling of requests that lack a part of the key.
    pub fn missing(&self) -> Missing {
        self.missing
    }

    /// Returns the cost that is charged when a request arrives.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Returns the source of the final cost. `None`: the cost charged on arrival is final.
    pub fn settle(&self) -> Option<&Settle> {
        self.settle.as_ref()
    }

    /// Returns the mode.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the learned number of slots (`slots: adaptive`) stays as it is, by order of an operator.
    pub const fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Whether refused requests are charged.
    pub fn count_denied(&self) -> bool {
        self.count_denied
    }

    /// Returns the behavior of the limit while its store does not answer.
    pub fn on_outage(&self) -> OnOutage {
        self.on_outage
    }

    /// Returns the share of this region, if regions share the limit. Rules have the numbers of the share.
    pub fn region_share(&self) -> Option<&RegionShare> {
        self.region_share.as_ref()
    }

    /// Returns the handling of a slot whose caller disconnects.
    pub fn on_hangup(&self) -> OnHangup {
        self.on_hangup
    }

    /// Returns the queue of requests that wait for a slot.
    pub fn slot_queue(&self) -> Option<&SlotQueue> {
        self.slot_queue.as_deref()
    }

    /// Returns the dialects of responses that this limit decides, besides those of all responses.
    pub fn dialects(&self) -> &[Dialect] {
        &self.dialects
    }

    /// Returns the rules for keys without a plan or override, one per window.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the bounds of the number of slots, if the limit learns it (`slots: adaptive`). Such a limit
    /// has no rules: each node counts its own requests in flight, and the store is not asked.
    pub fn adaptive(&self) -> Option<&AdaptiveSlots> {
        self.adaptive.as_ref()
    }

    /// Returns the rules of the priority classes of a shedder, the most important class first. All of
    /// them count in the state of [`rules`](Self::rules), each with its own maximum. Empty for other
    /// limits and without `priorities`.
    pub fn class_rules(&self) -> &[Rule] {
        &self.class_rules
    }

    /// Returns the rules for keys without a plan or override, of a request of this class.
    #[inline]
    pub(crate) fn rules_of(&self, class: Option<&PriorityClass>) -> &[Rule] {
        let of_class = class.and_then(|class| self.class_rules.get(usize::from(class.rank)));
        of_class.map_or(&self.rules, std::slice::from_ref)
    }

    /// Returns the rule for all keys and plans of a request of this class. `None` if there are several windows, plans or
    /// overrides, a queue for slots, or a learned number of slots.
    #[inline]
    pub(crate) fn only_rule(&self, class: Option<&PriorityClass>) -> Option<&Rule> {
        let depends = !self.plans.is_empty() || !self.overrides.is_empty() || self.slot_queue.is_some();
        match self.rules_of(class) {
            [rule] if !depends => Some(rule),
            _ => None,
        }
    }

    /// Returns the allowance of a plan, if the limit defines one.
    pub fn plan(&self, name: &str) -> Option<&Allowance> {
        self.plans.get(name)
    }

    /// Returns the plans in unspecified order.
    pub fn plans(&self) -> impl Iterator<Item = (&str, &Allowance)> {
        self.plans.iter().map(|(name, allowance)| (&**name, allowance))
    }

    /// Returns the override for a key, if there is one.
    pub fn override_for(&self, key: &Key) -> Option<&Allowance> {
        if self.overrides.is_empty() { None } else { self.overrides.get(key) }
    }

    /// Returns all overrides in unspecified order.
    pub fn overrides(&self) -> impl Iterator<Item = (&Key, &Allowance)> {
        self.overrides.iter()
    }

    /// Returns all rules of the limit: its own, those of classes, plans and overrides.
    pub fn every_rule(&self) -> impl Iterator<Item = &Rule> {
        let others = self.plans.values().chain(self.overrides.values());
        self.rules.iter().chain(&self.class_rules).chain(others.flat_map(Allowance::rules))
    }

    /// Whether requests above the rate wait for a computed time (`algorithm: leaky-queue`).
    pub fn has_leaky_queue(&self) -> bool {
        self.every_rule().any(|rule| matches!(&rule.quota, Quota::Bucket(it) if it.queue().is_some()))
    }

    /// Whether the limit counts concurrent requests: a number of slots, or a learned one.
    pub fn counts_concurrency(&self) -> bool {
        self.adaptive.is_some() || self.every_rule().any(|rule| matches!(rule.quota, Quota::Concurrency(_)))
    }

    /// Returns the rule that now holds the charges made to a key under `id`: the rule with
    /// that id, or the rule that has replaced it.
    ///
    /// Overrides of one period may share an id. The override of the key and the rules of the limit
    /// come first, otherwise the strictest rule is returned.
    pub fn rule_after(&self, id: RuleId, key: &Key) -> Option<&Rule> {
        let of_key = self.override_for(key).map_or(&[][..], Allowance::rules);
        let own = || of_key.iter().chain(&self.rules);
        let of_plans = || self.plans.values().flat_map(Allowance::rules);
        // A request that named several keys was charged under the override of one of them.
        let of_others = || self.overrides.values().flat_map(Allowance::rules);
        let has_id = |rule: &&Rule| rule.id == id;
        let replaces_id = |rule: &&Rule| rule.predecessors().any(|before| before.id == id);
        own()
            .find(has_id)
            .or_else(|| of_plans().filter(has_id).min_by(|one, other| by_strictness(one, other)))
            .or_else(|| of_others().filter(has_id).min_by(|one, other| by_strictness(one, other)))
            .or_else(|| own().find(replaces_id))
            .or_else(|| of_plans().filter(replaces_id).min_by(|one, other| by_strictness(one, other)))
    }

    /// Whether the limit covers only some of the requests to its endpoints.
    #[inline]
    pub(crate) fn is_conditional(&self) -> bool {
        !(self.methods.is_empty() && self.headers.is_empty() && self.except.is_empty())
    }

    /// Whether `except` covers one reading of a path.
    pub(crate) fn excepts(&self, path: &str) -> bool {
        self.except.iter().any(|pattern| pattern.covers(path))
    }

    /// Whether a part of the key is a segment of the path.
    pub(crate) fn counts_by_path(&self) -> bool {
        self.by.iter().any(|part| part.path_parameter().is_some())
    }

    /// Whether the limit covers a method. The comparison ignores case, because some servers accept
    /// `get` for `GET`. A limit on `GET` covers `HEAD`, which runs the same handler and would
    /// otherwise bypass the limit.
    pub(crate) fn covers_method(&self, method: &str) -> bool {
        cover_method(&self.methods, method)
    }
}

/// Whether these methods, in upper case, cover a method. No methods cover all.
pub(crate) fn cover_method(methods: &[Box<str>], method: &str) -> bool {
    methods.is_empty()
        || methods.iter().any(|known| {
            known.eq_ignore_ascii_case(method) || (&**known == "GET" && method.eq_ignore_ascii_case("HEAD"))
        })
}

/// Whether a rule has a smaller rate than another, or the same and a smaller capacity.
pub(crate) fn is_stricter(one: &Rule, other: &Rule) -> bool {
    compare_amounts(one, other).is_lt()
}

/// Orders rules, the strictest first. Rules of equal amounts have a fixed order, too, so that the
/// order of a map decides nothing.
pub(crate) fn by_strictness(one: &Rule, other: &Rule) -> Ordering {
    let described = |rule: &Rule| (rule.id.0, rule.quota.to_string());
    compare_amounts(one, other).then_with(|| described(one).cmp(&described(other)))
}

fn compare_amounts(one: &Rule, other: &Rule) -> Ordering {
    let [one, other] = [one, other]
        .map(|rule| (u128::from(rule.quota.capacity()), u128::from(rule.quota.period().as_micros().max(1))));
    (one.0 * other.1).cmp(&(other.0 * one.1)).then(one.0.cmp(&other.0))
}
