//! Matches a request or descriptor against a policy: the limits that apply, their keys and their costs.
//!
//! This is the hot path: an ordinary request allocates nothing here
//! (`tests/allocation.rs`). Allocation happens for a path that is not in normal form, a value
//! that must be decoded, and a key of more than 80 bytes.
//!
//! `readings` handles paths with several readings.
//!
//! The store decides whether the allowance suffices: it receives the checks as one batch.

mod ambiguous;
mod checks;
mod classify;
mod detached;
mod readings;

use std::cell::OnceCell;

use tollgate_core::{Owner, Rule, RuleId};

use crate::descriptor::Descriptor;
use crate::input::Input;
use crate::key::Key;
use crate::limit::{Allowance, Limit, Missing, Mode};
use crate::lists::ListEntry;
use crate::lookup::Lookup;
use crate::matcher::RouteIds;
use crate::net::Net;
use crate::path;
use crate::policy::{PlanName, Policy};
use crate::priority::PriorityClass;
use crate::properties::{Properties, View};
use crate::request::Request;
use crate::slot_queue::{SlotQueue, fair_number};
use crate::source::KeySource;

use checks::FairNumbers;
pub use checks::{AdaptiveCheck, Check, Checks, RuleCheck};
pub use detached::DetachedChecks;

/// The result of matching a request, before any counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched<'p> {
    /// The checks decide. Without checks, no limit applies to the request.
    Applies,
    /// An entry of `allow` matches: no limit applies.
    Allowed(&'p ListEntry),
    /// An entry of `deny` matches: the request is refused.
    Denied(&'p ListEntry),
    /// A limit refuses the request without counting. The checks of the other limits are
    /// present, for limits that count refusals too.
    Blocked(Block<'p>),
    /// The request is refused because servers interpret its path differently: the policy says to
    /// refuse such paths, or the path has too many readings.
    AmbiguousPath,
}

/// A refusal that needs no counting.
#[derive(Clone, Copy, Debug)]
pub struct Block<'p> {
    /// The limit that refuses.
    pub limit: &'p Limit,
    /// The reason for the refusal.
    pub reason: BlockReason,
}

/// Compares limits by name, which is unique in a policy.
impl PartialEq for Block<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.limit.name(), self.reason) == (other.limit.name(), other.reason)
    }
}

impl Eq for Block<'_> {}

/// The reason why a limit refuses without counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockReason {
    /// `overrides` says `blocked` for this key.
    Override,
    /// `plans` says `blocked` for this plan.
    Plan,
    /// The request lacks a part of the key, and `missing` says `refuse`.
    MissingKey,
    /// The request gives several different values for a part of the key or for its plan, and
    /// `identify.ambiguous` says `refuse`.
    Ambiguous,
}

/// The amount that a limit grants to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant<'p> {
    /// These rules, one per window.
    Rules(&'p [Rule]),
    /// Every request passes without a check.
    Unlimited,
    /// Every request is refused.
    Blocked(BlockReason),
}

/// Returns the amount for a key: its override, else its plan, else the limit's own rules, or those of
/// the priority class.
#[inline]
fn granted<'p>(
    limit: &'p Limit,
    key: &Key,
    class: Option<&PriorityClass>,
    planned: impl FnOnce() -> Option<&'p Allowance>,
) -> Grant<'p> {
    let (allowance, reason) = match limit.override_for(key) {
        Some(allowance) => (Some(allowance), BlockReason::Override),
        None => (planned(), BlockReason::Plan),
    };
    match allowance {
        None => Grant::Rules(limit.rules_of(class)),
        Some(Allowance::Rules(rules)) => Grant::Rules(rules),
        Some(Allowance::Unlimited) => Grant::Unlimited,
        Some(Allowance::Blocked) => Grant::Blocked(reason),
    }
}

impl Policy {
    /// Returns the amount for a key on this plan, or on the default plan.
    pub fn granted<'p>(&'p self, limit: &'p Limit, key: &Key, plan: Option<&str>) -> Grant<'p> {
        self.granted_to(None, limit, key, plan)
    }

    /// Returns the amount for a key on this plan, or on the default plan, for a priority class.
    fn granted_to<'p>(
        &'p self,
        class: Option<&PriorityClass>,
        limit: &'p Limit,
        key: &Key,
        plan: Option<&str>,
    ) -> Grant<'p> {
        granted(limit, key, class, || limit.plans.get(plan.or(self.default_plan.as_deref())?))
    }

    /// Adds the checks of one limit for a known key, as [`match_request`](Self::match_request)
    /// does for a request. Without `cost`, a cost that depends on the request counts as
    /// one. A shedder treats the call as one of the least important class, because the name of a
    /// limit does not identify a class.
    pub fn match_limit<'p>(
        &'p self,
        limit: &'p Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        out.clear();
        if limit.mode == Mode::Off {
            return Matched::Applies;
        }
        let class = self.priorities.last().filter(|_| limit.sheds);
        match self.granted_to(class, limit, &key, plan) {
            Grant::Rules(rules) => {
                out.push(limit, rules, key, cost.unwrap_or_else(|| limit.cost.without_request()));
            }
            Grant::Unlimited => {}
            Grant::Blocked(reason) if limit.mode == Mode::Shadow => {
                out.shadowed.push(Block { limit, reason });
            }
            Grant::Blocked(reason) => return Matched::Blocked(Block { limit, reason }),
        }
        Matched::Applies
    }

    /// Finds the limits that apply to a request, in file order, and adds one
    /// check per window to `out`, which is cleared first.
    ///
    /// ```
    /// # use tollgate_policy::{Call, Checks, Policy, Matched};
    /// let policy = Policy::parse("
    /// limits:
    ///   - endpoint: /login
    ///     by: ip
    ///     bucket: 10/minute
    ///   - by: user
    ///     bucket: 100/minute
    /// ")?;
    /// let mut checks = Checks::new();
    /// let call = Call::new("POST", "/login").ip([203, 0, 113, 9]).user("ann");
    /// assert_eq!(policy.match_request(&call, &mut checks), Matched::Applies);
    /// let names: Vec<_> = checks.iter().map(|check| check.limit.name()).collect();
    /// assert_eq!(names, ["login-by-ip", "everything-by-user"]);
    /// policy.match_request(&Call::new("GET", "/").user("ann"), &mut checks);
    /// assert_eq!(checks.len(), 1);
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    pub fn match_request<'p, R: Request + ?Sized>(
        &'p self,
        request: &R,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        out.clear();
        self.add_request(request, out)
    }

    /// Finds the limits that apply to a descriptor, as [`match_request`](Self::match_request) does for
    /// a request.
    pub fn match_descriptor<'p>(&'p self, descriptor: &Descriptor<'_>, out: &mut Checks<'p>) -> Matched<'p> {
        out.clear();
        self.add_descriptor(descriptor, out)
    }

    /// Matches several inputs that are decided as one: all of them are charged or none
    /// ([`Check::part`] is the index of the input). An input that is refused without counting
    /// refuses all; an input on the allow list has no checks.
    ///
    /// The ad-hoc rules are the parts after those of the inputs. They are charged only with all
    /// others, even tallies.
    pub fn match_batch<'p, I: Input>(
        &'p self,
        inputs: &[I],
        rules: &'p [RuleCheck],
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        out.clear();
        let mut matched = Matched::Applies;
        for (part, input) in (0..).zip(inputs) {
            out.part = part;
            out.repeats_limits |= part > 0;
            match input.add_checks(self, out) {
                refused @ (Matched::Denied(_) | Matched::AmbiguousPath) => {
                    matched = refused;
                    break;
                }
                blocked @ Matched::Blocked(_) if matched == Matched::Applies => matched = blocked,
                Matched::Applies | Matched::Allowed(_) | Matched::Blocked(_) => {}
            }
        }
        if self.ad_hoc.mode != Mode::Off {
            let first = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
            for (part, RuleCheck { rule, key, cost }) in (first..).zip(rules) {
                let (limit, key, cost) = (&self.ad_hoc, key.clone(), *cost);
                out.repeats_limits |= part > 0;
                out.list.push(Check { limit, rule, key, cost, part, count_denied: false });
            }
        }
        matched
    }

    /// Adds the check of an ad-hoc rule, whose numbers the caller passes.
    pub fn match_rule<'p>(
        &'p self,
        rule: &'p Rule,
        key: Key,
        cost: u64,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        out.clear();
        if self.ad_hoc.mode != Mode::Off {
            out.push(&self.ad_hoc, std::slice::from_ref(rule), key, cost);
        }
        Matched::Applies
    }

    /// Adds the checks of a request.
    #[inline]
    pub(crate) fn add_request<'p, R: Request + ?Sized>(
        &'p self,
        request: &R,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        match path::plain(request.path(), self.paths) {
            Some(path) => self.match_path(request, path, out),
            None => self.match_unusual_path(request, out),
        }
    }

    /// Adds the checks of a descriptor, which only limits on descriptors cover.
    pub(crate) fn add_descriptor<'p>(
        &'p self,
        descriptor: &Descriptor<'_>,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        self.add_descriptor_to(descriptor, out, |limit| !is_late(limit, descriptor))
    }

    /// Finds the limits that descriptors are charged to afterwards ([`Limit::charges_afterwards`]): those
    /// that a descriptor with hits reports a cost to. [`match_descriptor`](Self::match_descriptor) does not
    /// find them. [`Check::part`] is the index of the descriptor. `out` is cleared first.
    pub fn match_late_charges<'p>(&'p self, descriptors: &[Descriptor<'_>], out: &mut Checks<'p>) {
        out.clear();
        for (part, descriptor) in (0..).zip(descriptors) {
            out.part = part;
            out.repeats_limits |= part > 0;
            // A descriptor that is listed or blocked is not counted.
            let _not_counted = self.add_descriptor_to(descriptor, out, |limit| is_late(limit, descriptor));
        }
    }

    /// Returns the owner of the slots that a descriptor takes, if a limit with slots names an entry for it
    /// ([`Limit::owner`]).
    pub fn slot_owner(&self, descriptor: &Descriptor<'_>) -> Option<Owner> {
        self.descriptors.find(descriptor).into_iter().find_map(|place| {
            let name = self.limits.get(place as usize)?.owner()?;
            let (_, value) = descriptor.entries.iter().find(|(key, _)| *key == name)?;
            // Equal on every node; a caller that knows the value may release the slot.
            let [high, low] = ["slot owner", "owner of a slot"].map(|word| RuleId::of([word, *value]).0);
            Some(Owner(u128::from(high) << 64 | u128::from(low)))
        })
    }

    fn add_descriptor_to<'p>(
        &'p self,
        descriptor: &Descriptor<'_>,
        out: &mut Checks<'p>,
        is_meant: impl Fn(&Limit) -> bool,
    ) -> Matched<'p> {
        let class = self.add_class(out, || self.classify(descriptor));
        if let Some(listed) = self.match_lists(descriptor) {
            return listed;
        }
        let mut matcher = RequestMatcher::new(self, out, class);
        for place in self.descriptors.find(descriptor) {
            let limit = self.limits.get(place as usize).filter(|limit| limit.mode != Mode::Off);
            if let Some(limit) = limit.filter(|limit| is_meant(limit)) {
                matcher.take(limit, descriptor);
            }
        }
        matcher.finish()
    }

    /// Matches a request whose path has one reading.
    #[inline]
    fn match_path<'p, R: Request + ?Sized>(
        &'p self,
        request: &R,
        path: &str,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        let view = View { request, path, readings: None, pattern: None };
        let class = self.add_class(out, || self.classify(&view));
        if let Some(listed) = self.match_lists(&view) {
            return listed;
        }
        let mut matcher = RequestMatcher::new(self, out, class);
        matcher.walk(request, path);
        matcher.finish()
    }

    /// Finds the entry of `deny` or `allow` that decides about an input.
    #[inline]
    fn match_lists<'p, 'r>(&'p self, view: &impl Properties<'r>) -> Option<Matched<'p>> {
        if let Some(entry) = self.deny.find(&self.identify, view) {
            return Some(Matched::Denied(entry));
        }
        self.allow.find(&self.identify, view).map(Matched::Allowed)
    }
}

/// Whether a descriptor reports a cost to a limit that is charged afterwards.
fn is_late(limit: &Limit, descriptor: &Descriptor<'_>) -> bool {
    limit.charges_afterwards() && descriptor.cost.is_some_and(|cost| cost > 0)
}

fn applies<R: Request + ?Sized>(limit: &Limit, request: &R) -> bool {
    limit.covers_method(request.method()) && limit.headers.iter().all(|wanted| wanted.matches(request))
}

struct RequestMatcher<'p, 'r, 'o> {
    policy: &'p Policy,
    class: Option<&'p PriorityClass>,
    /// Initialized by the first limit with plans.
    plan: OnceCell<PlanName<'r>>,
    out: &'o mut Checks<'p>,
    blocked: Option<Block<'p>>,
}

impl<'p: 'r, 'r, 'o> RequestMatcher<'p, 'r, 'o> {
    const fn new(policy: &'p Policy, out: &'o mut Checks<'p>, class: Option<&'p PriorityClass>) -> Self {
        Self { policy, class, plan: OnceCell::new(), out, blocked: None }
    }

    fn finish(self) -> Matched<'p> {
        self.blocked.map_or(Matched::Applies, Matched::Blocked)
    }

    /// Adds every limit that covers the request, whose path has only this reading.
    #[inline]
    fn walk<R: Request + ?Sized>(&mut self, request: &'r R, path: &'r str) {
        let policy = self.policy;
        let mut found = RouteIds::new();
        self.find_routes(request, path, &mut found);
        // The routes of one limit are adjacent.
        let mut last = None;
        for &route in &found {
            let Some(&(index, pattern)) = policy.routes.get(route as usize) else { continue };
            let limit = &policy.limits[index as usize];
            if last == Some(index)
                || limit.mode == Mode::Off
                || (limit.is_conditional() && (!applies(limit, request) || limit.excepts(path)))
            {
                continue;
            }
            last = Some(index);
            let pattern = limit.endpoints.get(pattern as usize);
            self.take(limit, &View { request, path, readings: None, pattern });
        }
    }

    /// Finds the routes that cover the request under this reading of its path, in file order. Writes
    /// to a buffer of the caller, because moving a buffer costs more than filling it.
    #[inline]
    fn find_routes<R: Request + ?Sized>(&self, request: &R, path: &str, found: &mut RouteIds) {
        let matcher = &self.policy.matcher;
        // Looking up the hosts of a request costs as much as finding its limits.
        if !matcher.asks_for_hosts() {
            matcher.find(path, found);
            return;
        }
        matcher.find_with_host(request.host(), path, found);
        if let Some(other) = request.other_host() {
            matcher.find_with_host(Some(other), path, found);
        }
    }

    fn take(&mut self, limit: &'p Limit, view: &impl Properties<'r>) {
        // The key is derived where it stays: to move a check takes longer than to derive most keys.
        let Some(rule) = limit.only_rule(self.class) else { return self.take_by_key(limit, view) };
        let key = self.out.push_unkeyed(limit, rule, view.cost(limit));
        let derivation = self.policy.derive(limit, view, key);
        if !matches!(derivation, KeyDerivation::Whole) {
            self.take_back(limit, view, derivation);
        }
    }

    /// Removes the last check, whose key could not be derived, and adds the checks that replace it.
    #[cold]
    fn take_back(&mut self, limit: &'p Limit, view: &impl Properties<'r>, derivation: KeyDerivation) {
        let Some(check) = self.out.list.pop() else { return };
        match derivation {
            KeyDerivation::Whole | KeyDerivation::Skipped => {}
            KeyDerivation::Ambiguous => self.take_ambiguous(limit, view, &check.key),
            KeyDerivation::Refused(reason) => self.block(limit, reason),
        }
    }

    /// Adds the checks of a limit whose rules depend on the key or on the plan, or that has several windows.
    #[inline(never)]
    fn take_by_key(&mut self, limit: &'p Limit, view: &impl Properties<'r>) {
        let mut key = Key::default();
        match self.policy.derive(limit, view, &mut key) {
            KeyDerivation::Whole => {}
            KeyDerivation::Ambiguous => return self.take_ambiguous(limit, view, &key),
            KeyDerivation::Skipped => return,
            KeyDerivation::Refused(reason) => return self.block(limit, reason),
        }
        if limit.blocks_keys && self.shows_blocked_key(limit, view) {
            return self.block(limit, BlockReason::Override);
        }
        if self.has_ambiguous_plan(limit, view) && limit.override_for(&key).is_none() {
            return self.take_ambiguous(limit, view, &key);
        }
        match granted(limit, &key, self.class, || self.planned(limit, view)) {
            Grant::Rules(rules) => self.out.push(limit, rules, key, view.cost(limit)),
            Grant::Unlimited => {}
            Grant::Blocked(reason) => self.block(limit, reason),
        }
        if let Some(queue) = limit.slot_queue.as_deref().filter(|queue| !queue.fair_by.is_empty()) {
            self.note_fair_number(limit, queue, view);
        }
    }

    /// Records the number of the `fair_by` key of a request. The client address replaces a part that is
    /// missing or has several different values.
    #[cold]
    fn note_fair_number(&mut self, limit: &Limit, queue: &SlotQueue, view: &impl Properties<'r>) {
        let mut key = Key::default();
        for source in &queue.fair_by {
            match (source, self.policy.net_of(view)) {
                (KeySource::Ip, Some(net)) => key.push_address(net),
                _ => match self.policy.identify.lookup(source, view) {
                    Lookup::Value(value) => key.push_value(source, &value),
                    Lookup::Ambiguous | Lookup::Missing => key.push_instead(self.policy.net_of(view)),
                },
            }
        }
        self.out.fair.push((limit.place, fair_number(&key)));
    }

    fn block(&mut self, limit: &'p Limit, reason: BlockReason) {
        let block = Block { limit, reason };
        if limit.mode == Mode::Shadow {
            self.out.shadowed.push(block);
        } else {
            self.blocked.get_or_insert(block);
        }
    }

    fn planned(&self, limit: &'p Limit, view: &impl Properties<'r>) -> Option<&'p Allowance> {
        if limit.plans.is_empty() {
            return None;
        }
        let plan = match self.plan.get_or_init(|| self.policy.plan_of(view)) {
            PlanName::One(name) => Some(&**name),
            PlanName::Missing | PlanName::Ambiguous => None,
        };
        limit.plans.get(plan.or(self.policy.default_plan.as_deref())?)
    }
}

impl Policy {
    /// Returns the network that counts as the client.
    fn net_of<'r>(&self, view: &impl Properties<'r>) -> Option<Net> {
        view.client().map(|client| self.cut(client))
    }

    /// Derives the key of an input into an empty one.
    // Inlined for the common case: a second caller would make it a function of its own.
    #[inline(always)]
    fn derive<'r>(&self, limit: &Limit, view: &impl Properties<'r>, key: &mut Key) -> KeyDerivation {
        let mut ambiguous = false;
        for source in &limit.by {
            let missing = match source {
                KeySource::Global => {
                    key.push_global();
                    continue;
                }
                KeySource::Ip => self.net_of(view).map(|net| key.push_address(net)).is_none(),
                KeySource::Descriptor => {
                    view.entries().map(|entries| key.push_entries(entries.iter().copied())).is_none()
                }
                _ => match self.identify.lookup(source, view) {
                    Lookup::Value(value) => {
                        key.push_value(source, &value);
                        false
                    }
                    Lookup::Ambiguous if self.refuses_ambiguous(limit) => {
                        return KeyDerivation::Refused(BlockReason::Ambiguous);
                    }
                    Lookup::Ambiguous => {
                        ambiguous = true;
                        key.push_instead(self.net_of(view));
                        false
                    }
                    Lookup::Missing => true,
                },
            };
            match limit.missing {
                _ if !missing => {}
                Missing::Ip => key.push_instead(self.net_of(view)),
                Missing::Shared => key.push_shared(),
                Missing::Skip => return KeyDerivation::Skipped,
                Missing::Refuse => return KeyDerivation::Refused(BlockReason::MissingKey),
            }
        }
        if ambiguous { KeyDerivation::Ambiguous } else { KeyDerivation::Whole }
    }
}

/// The result of deriving a key.
#[derive(Clone, Copy)]
enum KeyDerivation {
    Whole,
    /// The client address replaces a part that has several different values.
    Ambiguous,
    Skipped,
    Refused(BlockReason),
}
