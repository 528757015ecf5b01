//! A compiled policy: indexed and immutable.
//!
//! Request matching is in `match_request`, deciding in `tollgate`.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use foldhash::HashMap;
use tollgate_document::Diagnostics;
#[cfg(feature = "yaml")]
use tollgate_document::{Document, Problems};

#[cfg(feature = "yaml")]
use crate::compile::compile;
use crate::descriptor::index::Index;
use crate::identify::Identify;
use crate::input::Subject;
use crate::key::Key;
use crate::key_display::KeyDisplay;
use crate::key_text;
use crate::limit::{Allowance, Limit, Mode};
use crate::limit_group::LimitGroups;
use crate::lint::Lint;
use crate::lists::{List, ListKind};
use crate::lookup::Lookup;
use crate::matcher::Matcher;
use crate::net::Net;
use crate::priority::PriorityClass;
use crate::properties::{Properties, View};
use crate::read_headers;
use crate::request::Request;
use crate::settings::{ClientAddress, HeaderSettings, KeyPrivacy, PathSettings};
use crate::shed::NodeShedSettings;
use crate::source::KeySource;

/// A compiled policy file.
///
/// A `Policy` is valid by construction: every limit has a valid quota, a unique
/// name and a key that requests can have.
///
/// ```
/// # use tollgate_policy::Policy;
/// let policy = Policy::parse("
/// limits:
///   - by: ip
///     bucket: 10/minute
/// ")?;
/// assert_eq!(policy.limits()[0].name(), "everything-by-ip");
///
/// let wrong = Policy::parse("limits:\n  - by: ip\n    bucket: 0/minute\n").unwrap_err();
/// assert_eq!(wrong[0].message, "a rate of zero admits no request");
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[allow(clippy::struct_excessive_bools, reason = "each says which work a request can skip")]
#[derive(Clone, Debug)]
pub struct Policy {
    /// First the limits that requests, descriptors and buckets are matched against, then those of `groups`.
    pub(crate) limits: Arc<Vec<Limit>>,
    /// The limits outside of groups by name.
    pub(crate) by_name: Arc<HashMap<Arc<str>, usize>>,
    pub(crate) groups: LimitGroups,
    /// Index of the limit and of its pattern for each route, in file order.
    pub(crate) routes: Vec<(u32, u32)>,
    pub(crate) matcher: Matcher,
    pub(crate) descriptors: Index,
    pub(crate) allow: List,
    pub(crate) deny: List,
    /// The most important class first.
    pub(crate) priorities: Vec<PriorityClass>,
    pub(crate) identify: Identify,
    pub(crate) default_plan: Option<Box<str>>,
    pub(crate) plan_from: Option<KeySource>,
    pub(crate) client: ClientAddress,
    pub(crate) paths: PathSettings,
    pub(crate) headers: HeaderSettings,
    /// Boxed, because most policies have none.
    pub(crate) node_shed: Option<Box<NodeShedSettings>>,
    /// The mode of the throttle of upstreams.
    pub(crate) throttle_mode: Option<Mode>,
    /// Whether the throttle of upstreams keeps its share of refused requests.
    pub(crate) is_throttle_frozen: bool,
    pub(crate) key_display: KeyDisplay,
    pub(crate) max_keys: u64,
    /// The names, in lower case, of headers that limits and lists read.
    pub(crate) read_headers: Vec<Box<str>>,
    /// Whether a limit settles costs after the response.
    pub(crate) settles: bool,
    /// Whether requests wait for slots of a limit.
    pub(crate) has_slot_queues: bool,
    /// Whether there are both limits that delay requests and limits that count concurrent ones.
    pub(crate) has_queues_and_slots: bool,
    /// Whether a limit is charged afterwards.
    pub(crate) charges_afterwards: bool,
    pub(crate) warnings: Diagnostics,
    /// Lints in `expect` of the file, without those of its limits.
    pub(crate) expected: Vec<Lint>,
    /// The limit for ad-hoc rules, which callers pass with their numbers.
    pub(crate) ad_hoc: Limit,
    pub(crate) extension: Option<Extension>,
}

/// A value that another crate compiled along with the policy.
type Extension = Arc<dyn Any + Send + Sync>;

/// Equals an empty file.
impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: Arc::default(),
            by_name: Arc::default(),
            groups: LimitGroups::default(),
            routes: Vec::new(),
            matcher: Matcher::default(),
            descriptors: Index::default(),
            allow: List::new(ListKind::Allow, Vec::new()),
            deny: List::new(ListKind::Deny, Vec::new()),
            priorities: Vec::new(),
            identify: Identify::default(),
            default_plan: None,
            plan_from: None,
            client: ClientAddress::default(),
            paths: PathSettings::default(),
            headers: HeaderSettings::default(),
            node_shed: None,
            throttle_mode: None,
            is_throttle_frozen: false,
            key_display: KeyDisplay::default(),
            max_keys: 1_000_000,
            read_headers: Vec::new(),
            settles: false,
            has_slot_queues: false,
            has_queues_and_slots: false,
            charges_afterwards: false,
            warnings: Diagnostics::default(),
            expected: Vec::new(),
            ad_hoc: Limit::ad_hoc(),
            extension: None,
        }
    }
}

#[cfg(feature = "yaml")]
impl Policy {
    /// Parses a policy, or returns all mistakes in the text.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let (document, problems) = Document::parse_partial(text)?;
        compile(&document, problems)
    }

    /// Compiles the policy sections of a document that other crates read too.
    pub fn from_document(document: &Document) -> Result<Self, Diagnostics> {
        compile(document, Problems::default())
    }
}

impl Policy {
    /// Builds the indices over names, paths and descriptors. There are no groups yet.
    pub(crate) fn indexed(mut self) -> Self {
        for (place, limit) in Arc::make_mut(&mut self.limits).iter_mut().enumerate() {
            limit.place = place;
            let blocks_keys = limit.overrides.values().any(|it| *it == Allowance::Blocked);
            if limit.blocks_keys != blocks_keys {
                limit.definition_mut().blocks_keys = blocks_keys;
            }
        }
        for (index, limit) in (0..).zip(&*self.limits) {
            if let Some(pattern) = &limit.descriptor {
                self.descriptors.add(&limit.domains, pattern, index);
            }
            for (at, pattern) in (0..).zip(&limit.endpoints) {
                let route = u32::try_from(self.routes.len()).unwrap_or(u32::MAX);
                self.routes.push((index, at));
                if limit.hosts.is_empty() {
                    self.matcher.add(None, pattern, route);
                }
                limit.hosts.iter().for_each(|host| self.matcher.add(Some(host), pattern, route));
            }
        }
        self.matcher.index_exact_paths();
        self.read_headers = read_headers::all(&self);
        self.has_slot_queues = self.limits.iter().any(|limit| limit.slot_queue.is_some());
        self.has_queues_and_slots = self.limits.iter().any(Limit::has_leaky_queue)
            && self.limits.iter().any(Limit::counts_concurrency);
        self.charges_afterwards = self.limits.iter().any(Limit::charges_afterwards);
        self.settles = self.limits.iter().any(|limit| limit.settle.is_some());
        let by_name = self.limits.iter().enumerate().map(|(at, it)| (it.shared_name(), at)).collect();
        self.by_name = Arc::new(by_name);
        self
    }

    /// Attaches a value that was compiled along with this policy, so that a reload replaces both
    /// together. Crates that find limits in other ways keep their index here.
    #[must_use]
    pub fn with_extension<T: Any + Send + Sync>(mut self, extension: T) -> Self {
        self.extension = Some(Arc::new(extension));
        self
    }

    /// Returns the attached value, if it has this type.
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.extension.as_deref()?.downcast_ref()
    }

    /// Returns the limit that counts ad-hoc rules. [`limits`](Self::limits) does not contain it.
    pub const fn ad_hoc(&self) -> &Limit {
        &self.ad_hoc
    }

    /// Returns the lint warnings of the file.
    pub const fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// Whether `expect` of the file contains this lint.
    pub fn expects(&self, lint: Lint) -> bool {
        self.expected.contains(&lint)
    }

    /// Whether requests wait for slots of a limit ([`Limit::slot_queue`]).
    #[inline]
    pub const fn has_slot_queues(&self) -> bool {
        self.has_slot_queues
    }

    /// Whether there are both limits that delay requests and limits that count concurrent ones, so that a request
    /// may have to take its slots after its wait.
    #[inline]
    pub const fn has_queues_and_slots(&self) -> bool {
        self.has_queues_and_slots
    }

    /// Whether a limit on descriptors is charged afterwards ([`Limit::charges_afterwards`]).
    #[inline]
    pub const fn charges_afterwards(&self) -> bool {
        self.charges_afterwards
    }

    /// Returns the limits in file order, then those of groups ([`with_groups`](Self::with_groups)).
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns the limits that requests, descriptors and buckets are matched against, in file order. Limits of
    /// groups are found by the crate that added them, and there may be very many.
    pub fn matched_limits(&self) -> &[Limit] {
        self.limits.get(..self.by_name.len()).unwrap_or_default()
    }

    /// Returns the limit with this name.
    pub fn limit(&self, name: &str) -> Option<&Limit> {
        self.limits.get(self.place_of_name(name)?)
    }

    fn place_of_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().or_else(|| self.groups.place(name))
    }

    /// Returns the priority classes, the most important first. Empty without `priorities` in the file.
    pub fn priorities(&self) -> &[PriorityClass] {
        &self.priorities
    }

    /// Returns the number of entries in `allow`.
    pub fn allow_entries(&self) -> usize {
        self.allow.len()
    }

    /// Returns the number of entries in `deny`.
    pub fn deny_entries(&self) -> usize {
        self.deny.len()
    }

    /// Whether limits or lists read a header whose name equals this one with `-` and `_` exchanged.
    /// `name` is in lower case.
    ///
    /// ```
    /// # use tollgate_policy::Policy;
    /// let policy = Policy::parse("limits: [{by: api_key, bucket: 10/minute}]")?;
    /// assert!(policy.reads_lookalike_of("x_api-key"));
    /// assert!(!policy.reads_lookalike_of("x-api-key"));
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    pub fn reads_lookalike_of(&self, name: &str) -> bool {
        self.read_headers.iter().any(|read| read_headers::are_lookalikes(read, name))
    }

    /// Returns the settings that determine the client address.
    pub const fn client(&self) -> &ClientAddress {
        &self.client
    }

    /// Returns the settings that describe how upstream servers interpret paths.
    pub const fn paths(&self) -> PathSettings {
        self.paths
    }

    /// Whether a limit covers specific hosts only.
    pub fn asks_for_hosts(&self) -> bool {
        self.matcher.asks_for_hosts()
    }

    /// Returns the places of credentials in a request.
    pub const fn identify(&self) -> &Identify {
        &self.identify
    }

    /// Returns the source of a request's plan, if the policy has one.
    pub const fn plan_from(&self) -> Option<&KeySource> {
        self.plan_from.as_ref()
    }

    /// Returns the plan of requests that name no plan.
    pub fn default_plan(&self) -> Option<&str> {
        self.default_plan.as_deref()
    }

    /// Returns the settings of the rate limit headers in responses.
    pub const fn headers(&self) -> &HeaderSettings {
        &self.headers
    }

    /// Returns the settings of the shedder of a node, if the policy has one.
    pub fn node_shed(&self) -> Option<&NodeShedSettings> {
        self.node_shed.as_deref()
    }

    /// Returns this policy with a shedder of the node.
    #[must_use]
    pub fn with_node_shed(self, settings: NodeShedSettings) -> Self {
        Self { node_shed: Some(Box::new(settings)), ..self }
    }

    /// Returns the mode of the throttle of upstreams; `None` without a gateway that throttles.
    pub const fn throttle_mode(&self) -> Option<Mode> {
        self.throttle_mode
    }

    /// Returns this policy with a throttle of upstreams in this mode.
    #[must_use]
    pub fn with_throttle_mode(self, mode: Mode) -> Self {
        Self { throttle_mode: Some(mode), ..self }
    }

    /// Whether the throttle of upstreams keeps its share of refused requests, by order of an operator.
    pub const fn is_throttle_frozen(&self) -> bool {
        self.is_throttle_frozen
    }

    /// Returns this policy with a throttle of upstreams that keeps its share of refused requests, or follows the
    /// responses.
    #[must_use]
    pub fn with_frozen_throttle(self, is_frozen: bool) -> Self {
        Self { is_throttle_frozen: is_frozen, ..self }
    }

    /// Returns whether keys are shown, hashed or truncated in logs.
    pub const fn privacy(&self) -> KeyPrivacy {
        self.key_display.privacy
    }

    /// Returns all settings for showing keys.
    pub const fn key_display(&self) -> &KeyDisplay {
        &self.key_display
    }

    /// Returns the maximum number of keys in the in-memory store.
    pub const fn max_keys(&self) -> u64 {
        self.max_keys
    }

    /// Whether a limit settles costs after the response ([`Limit::settle`]). If not, responses need
    /// no inspection.
    pub const fn settles(&self) -> bool {
        self.settles
    }

    /// Returns the number of nodes of the matcher over all hosts.
    pub fn matcher_size(&self) -> usize {
        self.matcher.nodes()
    }

    /// Returns the number of matcher nodes visited for a request: a measure of work
    /// that does not depend on the machine.
    pub fn matching_steps<R: Request + ?Sized>(&self, request: &R) -> usize {
        let path = crate::path::normal(request.path());
        self.matcher.find_with_host(request.host(), &path, &mut crate::matcher::RouteIds::new())
    }

    /// Returns the key of a limit from the values of its parts, as an operator types them.
    /// `None` if the number of values is wrong or an address is invalid.
    ///
    /// For a limit by all entries of a descriptor, the values are those of all entries, or those of
    /// the open entries. Each may be written as it is shown, `user=ann`, and all may be written as
    /// one text, `plan=gold, user=ann`. `None` if the entries do not match the limit.
    ///
    /// ```
    /// # use tollgate_policy::{Call, Checks, Policy};
    /// let policy = Policy::parse("limits: [{by: ip, bucket: 10/minute}]")?;
    /// let mut checks = Checks::new();
    /// policy.match_request(&Call::new("GET", "/").ip([203, 0, 113, 9]), &mut checks);
    /// assert_eq!(policy.key(&policy.limits()[0], &["203.0.113.9"]), Some(checks[0].key.clone()));
    /// assert_eq!(policy.key(&policy.limits()[0], &["nobody"]), None);
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    pub fn key(&self, limit: &Limit, values: &[&str]) -> Option<Key> {
        let mut key = Key::default();
        if let ([KeySource::Global], []) = (limit.by(), values) {
            key.push_global();
            return Some(key);
        }
        if let [KeySource::Descriptor] = limit.by() {
            let entries = key_text::entries(limit, values)?;
            return (!entries.is_empty()).then(|| Key::of_entries(entries));
        }
        if limit.by().len() != values.len() {
            return None;
        }
        for (source, value) in limit.by().iter().zip(values) {
            match source {
                KeySource::Global => key.push_global(),
                KeySource::Ip => key.push_address(self.cut(value.parse().ok()?)),
                _ if value.is_empty() => return None,
                KeySource::Path(_) => key.push_value(source, self.paths.path_value(value).as_bytes()),
                _ => key.push_value(source, value.as_bytes()),
            }
        }
        Some(key)
    }

    /// Returns this policy with other modes, for mode overrides of a running server.
    /// Rules stay equal, so usage is kept.
    ///
    /// ```
    /// # use tollgate_policy::{Mode, Policy};
    /// let policy = Policy::parse("limits: [{name: a, by: ip, bucket: 1/s}]")?;
    /// let calm = policy.with_modes(|_| Mode::Shadow);
    /// assert_eq!(calm.limits()[0].mode(), Mode::Shadow);
    /// assert_eq!(calm.limits()[0].rules(), policy.limits()[0].rules());
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    #[must_use]
    pub fn with_modes(&self, mode: impl Fn(&Limit) -> Mode) -> Self {
        let mut switched = self.clone();
        for limit in Arc::make_mut(&mut switched.limits) {
            limit.mode = mode(limit);
        }
        switched.ad_hoc.mode = mode(&switched.ad_hoc);
        switched
    }

    /// Returns this policy with learned numbers of slots that stay as they are. Limits without one are not changed.
    #[must_use]
    pub fn with_frozen(mut self, is_frozen: impl Fn(&Limit) -> bool) -> Self {
        let is_changed = |limit: &Limit| (limit.adaptive().is_some() && is_frozen(limit)) != limit.is_frozen;
        if self.limits.iter().any(is_changed) {
            for limit in Arc::make_mut(&mut self.limits) {
                limit.is_frozen = limit.adaptive().is_some() && is_frozen(limit);
            }
        }
        self
    }

    /// Returns this policy without plans and overrides, so that every key is counted by the limit's
    /// own amount. For tools that list all limits of a request.
    #[must_use]
    pub fn without_exceptions(&self) -> Self {
        let mut plain = self.clone();
        for limit in Arc::make_mut(&mut plain.limits) {
            let definition = limit.definition_mut();
            definition.plans.clear();
            definition.overrides.clear();
        }
        plain
    }

    /// Returns the plan of a request or descriptor: the one it names, else the default.
    pub fn plan_in_force(&self, subject: Subject<'_>) -> Option<String> {
        let named = match subject {
            Subject::Request(request) => {
                self.plan_of(&View { request, path: request.path(), readings: None, pattern: None })
            }
            Subject::Descriptor(descriptor) => self.plan_of(&descriptor),
        };
        let named = match named {
            PlanName::One(name) => Some(name.into_owned()),
            PlanName::Missing | PlanName::Ambiguous => None,
        };
        named.or_else(|| self.default_plan.as_deref().map(str::to_owned))
    }

    /// Returns the network that counts as one client.
    pub(crate) fn cut(&self, address: std::net::IpAddr) -> Net {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { self.client.ipv4_prefix } else { self.client.ipv6_prefix };
        Net::around(address, prefix)
    }

    /// Returns the plan that a request names.
    pub(crate) fn plan_of<'r>(&self, view: &impl Properties<'r>) -> PlanName<'r> {
        if let Some(plan) = view.plan().filter(|plan| !plan.is_empty()) {
            return PlanName::One(Cow::Borrowed(plan));
        }
        let Some(from) = self.plan_source(view) else { return PlanName::Missing };
        // A name that is not UTF-8 is treated as an unknown plan.
        match self.identify.lookup(from, view) {
            Lookup::Missing => PlanName::Missing,
            Lookup::Ambiguous => PlanName::Ambiguous,
            Lookup::Value(Cow::Borrowed(name)) => PlanName::One(String::from_utf8_lossy(name)),
            Lookup::Value(Cow::Owned(name)) => {
                PlanName::One(Cow::Owned(String::from_utf8_lossy(&name).into_owned()))
            }
        }
    }

    /// Returns the property that names the plan of a request without a plan from its caller.
    pub(crate) fn plan_source<'r>(&self, view: &impl Properties<'r>) -> Option<&KeySource> {
        // A caller that has identified the request has settled the plan too, except for verified
        // claims and values from the proxy itself.
        let verified = |source: &KeySource| {
            matches!(source, KeySource::Claim(_) | KeySource::User | KeySource::Tenant | KeySource::Entry(_))
        };
        self.plan_from.as_ref().filter(|from| !view.is_identified() || verified(from))
    }
}

/// The plan that a request names.
#[derive(Clone, Debug)]
pub(crate) enum PlanName<'r> {
    Missing,
    One(Cow<'r, str>),
    /// The request names several plans.
    Ambiguous,
}
