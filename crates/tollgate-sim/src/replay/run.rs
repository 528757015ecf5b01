//! One policy in virtual time: the limiter that serves, on a store whose clock stands where the log says.
//!
//! Not here: counting what a limit did (`tally`), comparing policies (`compare`).

use std::hash::RandomState;

use tollgate::policy::{BlockReason, Mode};
use tollgate::{
    Decision, Fate, LimitOutcome, Limiter, ManualClock, MemoryStore, Policy, Request as _, Timestamp,
};
use tollgate_watch::{Veil, show_address};

use super::heat::Heat;
use super::population::Population;
use super::report::PolicyReport;
use super::tally::{self, Meeting, Tally};
use super::{Settings, notes};
use crate::Entry;
use crate::sample::spot;

/// Keys that are told apart exactly, over all limits of a policy and for one limit at most; there is a least for each.
const MOST_KEYS: usize = 1 << 20;
const MOST_KEYS_EACH: usize = 1 << 17;
const LEAST_KEYS_EACH: usize = 1 << 10;
/// The store is no smaller than this, whatever the policy says: a replay is about the limits.
const LEAST_STORED: u64 = 1_000_000;
/// A store counts time from where it starts, for some years. After a gap this long nothing that was spent counts any more, so a new one
/// does as well: nine years, in microseconds.
const LONGEST_GAP: u64 = 9 * 365 * 86_400 * 1_000_000;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Admitted,
    /// By the limit in this place.
    Refused(usize),
    /// By the `deny` list.
    Denied,
}

impl Verdict {
    pub(super) const fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted)
    }
}

/// One policy, and what it did so far.
pub(super) struct Run {
    pub(super) name: String,
    /// As the file has it: limits that cannot be replayed are off in the limiter's.
    policy: Policy,
    limiter: Limiter<MemoryStore<ManualClock>>,
    /// In the order of the limits.
    pub(super) tallies: Vec<Tally>,
    pub(super) shown: Shown,
    settings: Settings,
    last: Timestamp,
    counts: Counts,
    heat: Heat,
    clients: Population,
    /// Of stores that were replaced.
    evictions: u64,
}

/// Totals of a policy.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    refused: u64,
    allow_listed: u64,
    deny_listed: u64,
    without_limit: u64,
    without_client: u64,
    without_cost: u64,
}

/// How keys, addresses and paths are shown.
pub(super) struct Shown {
    secret: RandomState,
    veil: Option<Veil>,
}

impl Shown {
    pub(super) fn client(&self, entry: &Entry, policy: &Policy) -> String {
        entry.client().map_or_else(String::new, |client| show_address(client, policy, &self.secret))
    }

    pub(super) fn path(&self, entry: &Entry) -> String {
        let path = entry.path();
        self.veil.as_ref().map_or_else(|| path.to_owned(), |veil| veil.path(path).into_owned())
    }
}

fn store(policy: &Policy, at: Timestamp) -> MemoryStore<ManualClock> {
    let keys = usize::try_from(policy.max_keys().max(LEAST_STORED)).unwrap_or(usize::MAX);
    // Placed the same way each time: a replay can be repeated.
    MemoryStore::with_seed(keys, ManualClock::at(at), 0)
}

impl Run {
    /// Begins at the time of the log's first request.
    pub(super) fn new(name: String, policy: Policy, settings: &Settings, first: Timestamp) -> Self {
        let replayed =
            policy.with_modes(|limit| if tally::has_slots(limit) { Mode::Off } else { limit.mode() });
        let limits = replayed.limits();
        let each = (MOST_KEYS / limits.len().max(1)).clamp(LEAST_KEYS_EACH, MOST_KEYS_EACH);
        Self {
            name,
            tallies: limits.iter().map(|limit| Tally::of(limit, settings, each, first)).collect(),
            shown: Shown { secret: RandomState::new(), veil: Veil::of(&policy) },
            limiter: Limiter::with_store(replayed, store(&policy, first)),
            policy,
            settings: settings.clone(),
            last: first,
            counts: Counts::default(),
            heat: Heat::starting(first),
            clients: Population::new(MOST_KEYS_EACH),
            evictions: 0,
        }
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Puts a request to the policy, at its time or that of the one before, if that was later.
    pub(super) fn request(&mut self, entry: &Entry) -> Verdict {
        let at = entry.at().max(self.last);
        if at.since(self.last).as_micros() > LONGEST_GAP {
            self.evictions += self.limiter.store().evictions();
            let replayed = self.limiter.policy().clone();
            self.limiter = Limiter::with_store(replayed, store(&self.policy, at));
        }
        self.last = at;
        self.limiter.store().clock().set(at);
        let Self { limiter, tallies, shown, policy, counts, .. } = self;
        // The store is in this process and answers at once.
        let verdict = limiter
            .decide_at_once(entry, |decision| note(decision, at, tallies, counts, policy, &shown.secret))
            .unwrap_or(Verdict::Admitted);
        let refused = !verdict.is_admitted();
        self.counts.requests += 1;
        self.counts.refused += u64::from(refused);
        self.counts.without_cost += u64::from(entry.cost.is_none());
        self.heat.note(at, refused);
        match entry.client() {
            Some(client) => {
                let spot = match client.to_canonical() {
                    std::net::IpAddr::V4(address) => spot(&address.octets()),
                    std::net::IpAddr::V6(address) => spot(&address.octets()),
                };
                self.clients.met(spot, refused, || self.shown.client(entry, &self.policy));
            }
            None => self.counts.without_client += 1,
        }
        verdict
    }

    /// What is told of it, and what a reader should know before.
    pub(super) fn finish(self) -> (PolicyReport, Vec<String>) {
        let evictions = self.evictions + self.limiter.store().evictions();
        let clients = self.clients.keys();
        let facts = notes::Facts {
            policy: &self.policy,
            settings: &self.settings,
            tallies: &self.tallies,
            requests: self.counts.requests,
            without_client: self.counts.without_client,
            without_cost: self.counts.without_cost,
            evictions,
            stored: self.policy.max_keys().max(LEAST_STORED),
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
            without_limit: self.counts.without_limit,
            clients,
            top_clients: self.clients.top(settings.top),
            limits: limits.map(|(limit, tally)| tally.finish(limit, limit.mode(), settings, last)).collect(),
            heat: self.heat.finish(last),
        };
        (report, notes)
    }
}

/// Counts a decision for every limit that had a part in it.
fn note(
    decision: &Decision<'_>,
    at: Timestamp,
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
    let mut asked = decision.limits().peekable();
    if asked.peek().is_none() {
        counts.without_limit += u64::from(matches!(decision.fate(), Fate::Admitted));
    }
    while let Some(first) = asked.next() {
        let place = first.limit().place();
        let Some(tally) = tallies.get_mut(place) else { continue };
        let spot = spot(first.key().as_bytes());
        let window = tally.window(first.policy_rule().id);
        let mut meeting = Meeting {
            spot,
            at,
            refused: !first.outcome().is_admitted(),
            without_key: first.key().has_stand_in(),
            cost: first.cost(),
            on_own: window.is_some(),
        };
        let mut compare = |it: &LimitOutcome<'_>, window: Option<usize>| {
            if let Some(window) = window.filter(|_| is_undisturbed(decision, it)) {
                tally.compare(window, spot, it, at);
            }
        };
        compare(&first, window);
        // Windows of one limit are neighbours.
        while let Some(next) = asked.next_if(|next| next.limit().place() == place) {
            meeting.refused |= !next.outcome().is_admitted();
            compare(&next, window.map(|first| first + 1));
        }
        tally.meet(&meeting, || policy.show_key(first.limit(), first.key(), secret));
    }
    match decision.fate() {
        Fate::Admitted | Fate::Uncountable => Verdict::Admitted,
        Fate::AllowListed(_) => {
            counts.allow_listed += 1;
            Verdict::Admitted
        }
        Fate::DenyListed(_) => {
            counts.deny_listed += 1;
            Verdict::Denied
        }
        Fate::Refused => {
            let place = decision.decider().map_or(0, |decider| decider.limit().place());
            if let Some(tally) = tallies.get_mut(place) {
                tally.decided += 1;
            }
            Verdict::Refused(place)
        }
        Fate::Blocked(block) => {
            let place = block.limit.place();
            if let Some(tally) = tallies.get_mut(place) {
                tally.block(at, block.reason == BlockReason::MissingKey);
                tally.decided += 1;
            }
            Verdict::Refused(place)
        }
    }
}

/// Whether a window was charged if it had room: no other refused the request, nor another window of its own limit. A candidate counts in
/// the place of its limit, so that one does not matter.
fn is_undisturbed(decision: &Decision<'_>, it: &LimitOutcome<'_>) -> bool {
    decision.limits().all(|other| {
        let place = other.limit().place();
        let is_same = std::ptr::eq(other.outcome(), it.outcome());
        let counts =
            (other.is_binding() && it.limit().candidate_of() != Some(place)) || place == it.limit().place();
        is_same || !counts || other.outcome().is_admitted()
    })
}
