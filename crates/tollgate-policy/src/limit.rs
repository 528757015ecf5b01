//! One limit as it works: what it covers, whom it counts, what it grants.
//!
//! Not here: how it was written (`file_format`), how it is found (`matcher`), how
//! keys are taken from requests (`match_request`).

use foldhash::HashMap;
use tollgate_core::{Rule, RuleId, Span};

use crate::cost::{Cost, Settle};
use crate::descriptor::DescriptorPattern;
use crate::envoy_match::EnvoyMatch;
use crate::key::Key;
use crate::lookup::members;
use crate::pattern::{HostPattern, PathPattern};
use crate::request::Request;
use crate::settings::Dialect;
use crate::source::KeySource;

/// A limit that can be served.
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
    pub(crate) name: Box<str>,
    /// Where it stands in its policy.
    pub(crate) place: usize,
    /// The place of the limit that it is tried beside.
    pub(crate) candidate_of: Option<usize>,
    pub(crate) soft: Option<Soft>,
    pub(crate) endpoints: Vec<PathPattern>,
    /// Paths of its endpoints that it does not cover.
    pub(crate) except: Vec<PathPattern>,
    pub(crate) hosts: Vec<HostPattern>,
    /// In upper case; empty means all.
    pub(crate) methods: Vec<Box<str>>,
    pub(crate) headers: Vec<HeaderMatch>,
    /// Then it has no endpoints, hosts, methods and headers.
    pub(crate) descriptor: Option<DescriptorPattern>,
    /// Of descriptors; empty means all.
    pub(crate) domains: Vec<Box<str>>,
    /// What it covers, if no request finds it of itself.
    pub(crate) envoy_match: Option<EnvoyMatch>,
    pub(crate) ahead: Option<u64>,
    pub(crate) by: Vec<KeySource>,
    pub(crate) missing: Missing,
    pub(crate) cost: Cost,
    pub(crate) settle: Option<Settle>,
    pub(crate) mode: Mode,
    pub(crate) count_denied: bool,
    pub(crate) on_outage: OnOutage,
    pub(crate) on_hangup: OnHangup,
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) plans: HashMap<Box<str>, Allowance>,
    pub(crate) overrides: HashMap<Key, Allowance>,
    /// Whether an override blocks its key.
    pub(crate) blocks_keys: bool,
}

/// What a plan or an override grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// These rules instead of the limit's own, one for each of its windows.
    Rules(Vec<Rule>),
    /// No check at all.
    Unlimited,
    /// No request at all.
    Blocked,
}

impl Allowance {
    /// What it counts by, if it counts.
    pub(crate) fn rules(&self) -> &[Rule] {
        if let Self::Rules(rules) = self { rules } else { &[] }
    }
}

/// A header that must be there for a limit to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// In lower case.
    pub name: Box<str>,
    /// `None`: any value will do.
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

/// What happens to requests that lack a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// They are counted by client address instead.
    #[default]
    Ip,
    /// They are refused.
    Refuse,
    /// They share one allowance.
    Shared,
    /// The limit does not apply to them.
    Skip,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts, and says what it would have done.
    Shadow,
    /// It is not looked at.
    Off,
}

/// What a limit does while its store gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnOutage {
    /// Counts on this node alone.
    #[default]
    Local,
    /// Lets everything pass.
    Allow,
    /// Refuses everything.
    Deny,
}

/// What becomes of the slot of a request whose caller hangs up before the answer has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnHangup {
    /// The slot is held until the service behind has answered or closed the connection, or until `ttl`.
    #[default]
    Hold,
    /// The request to the service is canceled and the slot is released: the service stops work when
    /// its connection is closed.
    Release,
}

/// What happens before a limit refuses: the `soft` threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    /// From how much of the allowance on, in per cent (1 to 100).
    pub at: u8,
    /// How long requests are held back from then on. Zero: they are only marked.
    pub tarpit: Span,
}

/// How answers call a limit that stands in no policy.
const AD_HOC_NAME: &str = "(unwritten)";

/// The longest name of a limit.
pub(crate) const MAX_NAME_BYTES: usize = 64;

/// Whether a limit may be called this: names go into headers and metrics.
pub(crate) fn is_limit_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_in_limit_name)
}

/// Whether a character may stand in a limit's name.
pub(crate) fn is_in_limit_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || "._-".contains(char)
}

impl Limit {
    /// For rules that stand in no policy. Its name is none that a policy can give.
    pub(crate) fn ad_hoc() -> Self {
        Self {
            name: AD_HOC_NAME.into(),
            place: usize::MAX,
            candidate_of: None,
            soft: None,
            endpoints: Vec::new(),
            except: Vec::new(),
            hosts: Vec::new(),
            methods: Vec::new(),
            headers: Vec::new(),
            descriptor: None,
            domains: Vec::new(),
            envoy_match: None,
            ahead: None,
            by: vec![KeySource::Global],
            missing: Missing::default(),
            cost: Cost::Fixed(1),
            settle: None,
            mode: Mode::default(),
            count_denied: false,
            on_outage: OnOutage::default(),
            on_hangup: OnHangup::default(),
            dialects: Vec::new(),
            rules: Vec::new(),
            plans: HashMap::default(),
            overrides: HashMap::default(),
            blocks_keys: false,
        }
    }

    /// Unique in its policy; fit for headers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its place in the policy, from zero.
    pub const fn place(&self) -> usize {
        self.place
    }

    /// The place of the limit beside which it is tried: what `candidate` says would be
    /// instead of that one.
    pub const fn candidate_of(&self) -> Option<usize> {
        self.candidate_of
    }

    /// What happens before it refuses.
    pub const fn soft(&self) -> Option<&Soft> {
        self.soft.as_ref()
    }

    /// The paths it covers; none of a limit on descriptors.
    pub fn endpoints(&self) -> &[PathPattern] {
        &self.endpoints
    }

    /// The paths among those of its endpoints that it does not cover.
    pub fn except(&self) -> &[PathPattern] {
        &self.except
    }

    /// The hosts it covers; none means all.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    /// The methods it covers, in upper case; none means all. `GET` covers `HEAD` too.
    pub fn methods(&self) -> impl Iterator<Item = &str> {
        self.methods.iter().map(|method| &**method)
    }

    /// The headers a request must have.
    pub fn headers(&self) -> &[HeaderMatch] {
        &self.headers
    }

    /// The descriptors it covers. A limit that has such covers no request that has none.
    pub const fn descriptor(&self) -> Option<&DescriptorPattern> {
        self.descriptor.as_ref()
    }

    /// The domains whose descriptors it covers; none means all.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.iter().map(|domain| &**domain)
    }

    /// What a limit covers that no request finds of itself.
    pub const fn envoy_match(&self) -> Option<&EnvoyMatch> {
        self.envoy_match.as_ref()
    }

    /// How much more is handed out with an admitted answer, at most, for a proxy to admit
    /// by itself. It is charged when it is handed out.
    pub const fn ahead(&self) -> Option<u64> {
        self.ahead
    }

    /// The parts of its key.
    pub fn by(&self) -> &[KeySource] {
        &self.by
    }

    /// What happens to requests that lack a part.
    pub const fn missing(&self) -> Missing {
        self.missing
    }

    /// What is taken when a request comes.
    pub const fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Where it is found what a request cost in the end. `None`: what was taken is final.
    pub const fn settle(&self) -> Option<&Settle> {
        self.settle.as_ref()
    }

    /// Whether it refuses.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether a refused request is charged all the same.
    pub const fn count_denied(&self) -> bool {
        self.count_denied
    }

    /// What it does while its store gives no answer.
    pub const fn on_outage(&self) -> OnOutage {
        self.on_outage
    }

    /// What becomes of the slot of a request whose caller hangs up.
    pub const fn on_hangup(&self) -> OnHangup {
        self.on_hangup
    }

    /// In whose words answers speak of it, besides those for all answers.
    pub fn dialects(&self) -> &[Dialect] {
        &self.dialects
    }

    /// What it grants to a key without plan or override: one rule for each window.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What it grants to a plan, if it says so.
    pub fn plan(&self, name: &str) -> Option<&Allowance> {
        self.plans.get(name)
    }

    /// The plans it knows, in no order.
    pub fn plans(&self) -> impl Iterator<Item = (&str, &Allowance)> {
        self.plans.iter().map(|(name, allowance)| (&**name, allowance))
    }

    /// What it grants to one key, if it makes an exception.
    pub fn override_for(&self, key: &Key) -> Option<&Allowance> {
        if self.overrides.is_empty() { None } else { self.overrides.get(key) }
    }

    /// The keys it makes an exception for, in no order.
    pub fn overrides(&self) -> impl Iterator<Item = (&Key, &Allowance)> {
        self.overrides.iter()
    }

    /// Every rule that it counts by: its own, those of plans and those of overrides.
    pub fn every_rule(&self) -> impl Iterator<Item = &Rule> {
        let others = self.plans.values().chain(self.overrides.values());
        self.rules.iter().chain(others.flat_map(Allowance::rules))
    }

    /// The rule that now counts what a key was charged under `id`: the one of
    /// that id, or the one that has replaced it since.
    pub fn rule_after(&self, id: RuleId, key: &Key) -> Option<&Rule> {
        let of_key = self.override_for(key).map_or(&[][..], Allowance::rules);
        let of_plans = self.plans.values().flat_map(Allowance::rules);
        let mut all = of_key.iter().chain(&self.rules).chain(of_plans);
        all.clone()
            .find(|rule| rule.id == id)
            .or_else(|| all.find(|rule| rule.predecessors().any(|before| before.id == id)))
    }

    /// Whether it makes an exception for a path in one of its readings.
    #[inline]
    pub(crate) fn excepts(&self, path: &str) -> bool {
        !self.except.is_empty() && self.except.iter().any(|pattern| pattern.covers(path))
    }

    /// Whether a part of its key is a segment of the path.
    pub(crate) fn counts_by_path(&self) -> bool {
        self.by.iter().any(|part| part.path_parameter().is_some())
    }

    /// Whether it covers a method. In any case of letters: servers exist that
    /// take `get` for `GET`. A limit on `GET` covers `HEAD`, which runs the same
    /// handler and must not be a way around it.
    pub(crate) fn covers_method(&self, method: &str) -> bool {
        self.methods.is_empty()
            || self.methods.iter().any(|known| {
                known.eq_ignore_ascii_case(method)
                    || (&**known == "GET" && method.eq_ignore_ascii_case("HEAD"))
            })
    }
}
