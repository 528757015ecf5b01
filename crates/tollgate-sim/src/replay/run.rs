//! Runs one policy in virtual time: the limiter that serves requests, on a store whose clock follows the log.
//!
//! Not here: counting per limit (`tally`), comparing policies (`compare`).

use std::hash::RandomState;

use tollgate::policy::{BlockReason, Checks, Mode};
use tollgate::{
    Decision, Fate, Limit, LimitOutcome, Limiter, ManualClock, MemoryStore, Policy, Request as _, Timestamp,
};
use tollgate_telemetry::{PathRedactor, show_address};

use super::heat::Heat;
use super::population::Population;
use super::report::PolicyReport;
use super::tally::{self, LimitObservation, Room, Tally};
use super::{Settings, notes};
use crate::Entry;
use crate::epoch::StoreEpoch;
use crate::sample::key_hash;

/// The most clients that are counted exactly.
const MAX_EXACT_CLIENTS: usize = 1 << 17;
/// The least capacity of the store, in keys, regardless of the policy: a replay is about the limits.
const MIN_STORED_KEYS: u64 = 1_000_000;

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Admitted,
    /// Refused by the limit with this index.
    Refused(usize),
    /// Refused by the `deny` list.
    Denied,
    /// Refused for a path that servers may read differently.
    AmbiguousPath,
}

impl Verdict {
    pub(super) const fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted)
    }
}

/// A policy and its results so far.
pub(super) struct Run {
    pub(super) name: String,
    /// The policy as in the file. In the limiter's copy, limits that cannot be replayed are off.
    policy: Policy,
    limiter: Limiter<MemoryStore<ManualClock>>,
    /// In the order of the limits.
    pub(super) tallies: Vec<Tally>,
    pub(super) shown: KeyDisplay,
    settings: Settings,
    last: Timestamp,
    epoch: StoreEpoch,
    counts: Counts,
    heat: Heat,
    clients: Population,
    /// Evictions in stores that were replaced.
    evictions: u64,
}

/// Totals of a policy.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    refused: u64,
    allow_listed: u64,
    deny_listed: u64,
    ambiguous_paths: u64,
    without_limit: u64,
    without_client: u64,
}

/// Displays keys, addresses and paths.
pub(super) struct KeyDisplay {
    secret: RandomState,
    redactor: Option<PathRedactor>,
}

impl KeyDisplay {
    pub(super) fn client(&self, entry: &Entry, policy: &Policy) -> String {
        entry.client().map_or_else(String::new, |client| show_address(client, policy, &self.secret))
    }

    pub(super) fn path(&self, entry: &Entry) -> String {
        let path = entry.path();
        self.redactor.as_ref().map_or_else(|| path.to_owned(), |redactor| redactor.path(path).into_owned())
    }
}

fn store(policy: &Policy, at: Timestamp) -> MemoryStore<ManualClock> {
    let keys = usize::try_from(policy.max_keys().max(MIN_STORED_KEYS)).unwrap_or(usize::MAX);
    // A fixed seed, so that a replay is reproducible.
    MemoryStore::with_seed(keys, ManualClock::at(at), 0)
}

impl Run {
    /// Starts at the time of the first request of the log.
    pub(super) fn new(
        name: String,
        policy: Policy,
        settings: &Settings,
        room: Room,
        first: Timestamp,
    ) -> Self {
        let replayed =
            policy.with_modes(|limit| if tally::has_slots(limit) { Mode::Off } else { limit.mode() });
        let limits = replayed.limits();
        let rules = limits.iter().filter(|limit| !tally::has_slots(limit)).flat_map(Limit::every_rule);
        let epoch = StoreEpoch::new(first, rules.map(|rule| &rule.quota));
        Self {
            name,
            tallies: limits.iter().map(|limit| Tally::of(limit, settings, room, first)).collect(),
            shown: KeyDisplay { secret: RandomState::new(), redactor: PathRedactor::of(&policy) },
            limiter: Limiter::with_store(replayed, store(&policy, first)),
            policy,
            settings: settings.clone(),
            last: first,
            epoch,
            counts: Counts::default(),
            heat: Heat::starting(first),
            clients: Population::new(MAX_EXACT_CLIENTS),
            evictions: 0,
        }
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Runs a request against the policy, at its time or that of the request before, whichever is later.
    pub(super) fn request(&mut self, entry: &Entry) -> Verdict {
        let at = entry.at().max(self.last);
        if self.epoch.is_over(at) {
            self.evictions += self.limiter.usage().evictions;
            let replayed = self.limiter.policy().clone();
            self.limiter = Limiter::with_store(replayed, store(&self.policy, at));
        }
        self.last = at;
        self.limiter.clock().set(at);
        let Self { limiter, tallies, shown, policy, counts, .. } = self;
        let reserved = reserved(limiter.policy(), entry);
        let costs = match &reserved {
            Some(_) => Costs { known: false, settled: entry.cost },
            None => Costs { known: entry.cost.is_some(), settled: None },
        };
        let mut then = |decision: &Decision<'_>| {
            let verdict = note(decision, (at, costs), tallies, counts, policy, &shown.secret);
            (verdict, costs.settled.and_then(|cost| decision.receipt().zip(Some(cost))))
        };
        // The in-memory store answers without waiting.
        let (verdict, open) = limiter
            .try_decide(reserved.as_ref().unwrap_or(entry), &mut then)
            .unwrap_or((Verdict::Admitted, None));
        if let Some((receipt, cost)) = open {
            let _always = limiter.try_settle_receipt(&receipt, cost);
        }
        let refused = !verdict.is_admitted();
        self.counts.requests += 1;
        self.counts.refused += u64::from(refused);
        self.heat.note(at, refused);
        match entry.client() {
            Some(client) => {
                let key_hash = match client.to_canonical() {
                    std::net::IpAddr::V4(address) => key_hash(&address.octets()),
                    std::net::IpAddr::V6(address) => key_hash(&address.octets()),
                };
                self.clients.met(key_hash, refused, || self.shown.client(entry, &self.policy));
            }
            None => self.counts.without_client += 1,
        }
        verdict
    }

    /// Returns the report, and notes on its accuracy.
    pub(super) fn finish(self) -> (PolicyReport, Vec<String>) {
        let evictions = self.evictions + self.limiter.usage().evictions;
        let clients = self.clients.keys();
        let facts = notes::Facts {
            policy: &self.policy,
            settings: &self.settings,
            tallies: &self.tallies,
            requests: self.counts.requests,
            without_client: self.counts.without_client,
            evictions,
            stored: self.policy.max_keys().max(MIN_STORED_KEYS),
        };
        let notes = facts.notes();
        let (settings, last) = (&self.settings, self.last);
        let limits = self.policy.limits().iter().zip(self.tallies);
        let limits = limits.filter(|(limit, _)| settings.is_about(limit.name()));
        let report = PolicyReport {
            policy: self.name,
            requests: self.counts.requests,
            refused: self.counts.refused,
            allow_listed: self.counts.allow_listed,
            deny_listed: self.counts.deny_listed,
            ambiguous_paths: self.counts.ambiguous_paths,
            without_limit: self.counts.without_limit,
            clients,
            top_clients: self.clients.top(settings.top),
            limits: limits.map(|(limit, tally)| tally.finish(limit, limit.mode(), settings, last)).collect(),
            heat: self.heat.finish(last),
        };
        (report, notes)
    }
}

/// Returns the request as it would be checked before it ran, if a limit that applies settles costs: the cost of the
/// log is then the actual cost of those limits, and all limits first reserve their own estimate. `None` if the
/// request is checked as it is.
fn reserved(policy: &Policy, entry: &Entry) -> Option<Entry> {
    if entry.cost.is_none() || !policy.settles() {
        return None;
    }
    let mut checks = Checks::new();
    let _ = policy.match_request(entry, &mut checks);
    let settles = checks.iter().any(|check| check.limit.settle().is_some());
    settles.then(|| {
        let mut reserved = entry.clone();
        reserved.cost = None;
        reserved
    })
}

/// The cost that the log states.
#[derive(Clone, Copy)]
struct Costs {
    /// Whether all limits charge it.
    known: bool,
    /// The actual cost, charged by limits that settle.
    settled: Option<u64>,
}

/// Counts a decision for every limit that took part in it.
fn note(
    decision: &Decision<'_>,
    (at, costs): (Timestamp, Costs),
    tallies: &mut [Tally],
    counts: &mut Counts,
    policy: &Policy,
    secret: &RandomState,
) -> Verdict {
    for block in decision.shadowed() {
        if let Some(tally) = tallies.get_mut(block.limit.place()) {
            tally.block(at, block.reason == BlockReason::MissingKey);
        }
    }
    let mut limits = decision.limits().peekable();
    if limits.peek().is_none() {
        counts.without_limit += u64::from(matches!(decision.fate(), Fate::Admitted));
    }
    while let Some(first) = limits.next() {
        let place = first.limit().place();
        let Some(tally) = tallies.get_mut(place) else { continue };
        let key_hash = key_hash(first.key().as_bytes());
        let window = tally.window(first.policy_rule().id);
        let mut meeting = LimitObservation {
            key_hash,
            at,
            refused: !first.outcome().is_admitted(),
            without_key: first.key().has_stand_in(),
            cost: first.cost(),
            wait: first.outcome().wait(),
            settled: costs.settled.filter(|_| first.limit().settle().is_some()),
            cost_known: costs.known,
            on_own: window.is_some(),
        };
        let compare = |tally: &mut Tally, it: &LimitOutcome<'_>, window: Option<usize>| {
            if let Some(window) = window.filter(|_| is_undisturbed(decision, it)) {
                tally.compare(window, key_hash, it, at);
            }
        };
        compare(tally, &first, window);
        // Windows of one limit are adjacent.
        while let Some(next) = limits.next_if(|next| next.limit().place() == place) {
            meeting.refused |= !next.outcome().is_admitted();
            meeting.wait = meeting.wait.max(next.outcome().wait());
            let window = tally.window(next.policy_rule().id);
            compare(tally, &next, window);
        }
        tally.observe(&meeting, || policy.show_key(first.limit(), first.key(), secret));
    }
    match decision.fate() {
        // A replay has no node whose load is measured, so it sheds nothing.
        Fate::Admitted | Fate::Uncountable | Fate::Shed(_) => Verdict::Admitted,
        Fate::AllowListed(_) => {
            counts.allow_listed += 1;
            Verdict::Admitted
        }
        Fate::DenyListed(_) => {
            counts.deny_listed += 1;
            Verdict::Denied
        }
        Fate::AmbiguousPath => {
            counts.ambiguous_paths += 1;
            Verdict::AmbiguousPath
        }
        Fate::Blocked(block) => {
            let place = block.limit.place();
            if let Some(tally) = tallies.get_mut(place) {
                tally.block(at, block.reason == BlockReason::MissingKey);
                tally.decided += 1;
            }
            Verdict::Refused(place)
        }
        _ => {
            let place = decision.limiting().map_or(0, |limiting| limiting.limit().place());
            if let Some(tally) = tallies.get_mut(place) {
                tally.decided += 1;
            }
            Verdict::Refused(place)
        }
    }
}

/// Whether a window was charged if it had room: neither another limit nor another window of its own limit refused the
/// request. The limit of a candidate does not matter, because the candidate counts in its place.
fn is_undisturbed(decision: &Decision<'_>, it: &LimitOutcome<'_>) -> bool {
    decision.limits().all(|other| {
        let place = other.limit().place();
        let is_same = std::ptr::eq(other.outcome(), it.outcome());
        let counts =
            (other.is_binding() && it.limit().candidate_of() != Some(place)) || place == it.limit().place();
        is_same || !counts || other.outcome().is_admitted()
    })
}
