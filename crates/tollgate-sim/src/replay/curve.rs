//! What other numbers would have refused: every candidate decides about every request, in one pass.
//!
//! Each key has a state under each candidate, and each candidate remembers what it admitted itself, as if the limit were the only one.
//!
//! Nearly all keys are quiet, and quiet keys are cheap: while the *floor*, which is no larger than any candidate in rate and in burst, has
//! admitted everything of a key, so have all candidates. So a key begins with one state under the floor, and its requests since it last
//! stood at rest. When the floor first refuses, or these become many, they are put to all candidates; from then on each has its own state.
//!
//! Not here: which candidates there are (`candidates`).
//!
//! Invariant: the counts are those of as many limiters, each with one candidate. Held by `tests/replay`, against independent models.

use tollgate::{Adjustment, Amount, Overdraft, Quota, State, Timestamp};

use super::amount;
use super::candidates::{Axis, Candidate, Candidates};
use super::report::{Curve, CurvePoint};
use crate::sample::{Sample, Weighs};

/// How many requests a quiet key has since it was at rest, at most.
const MAX_QUIET_REQUESTS: usize = 16;

/// The candidates of one limit, and where every key stands under them.
#[derive(Debug)]
pub(super) struct Trial {
    candidates: Candidates,
    count_denied: bool,
    keys: Sample<Key>,
    requests: u64,
}

/// Where a key stands.
#[derive(Debug)]
struct Key {
    requests: u64,
    standing: KeyState,
}

#[derive(Debug)]
enum KeyState {
    Quiet(Quiet),
    Busy(Busy),
}

/// A key that no candidate has refused.
#[derive(Debug, Default)]
struct Quiet {
    /// Under the floor; one for each window.
    states: Box<[State]>,
    /// Since they were last at rest: when, and at what cost.
    since: Vec<(Timestamp, u64)>,
}

/// A key with a state under each candidate.
#[derive(Debug)]
struct Busy {
    /// For each candidate, for each of its windows.
    states: Box<[State]>,
    /// How often each candidate refused it.
    refused: Box<[u64]>,
}

impl Weighs for Key {
    fn weight(&self) -> usize {
        let aside = |states: &[State]| match states.first() {
            Some(State::SlidingLog(_)) => states.iter().map(held_aside).sum(),
            Some(first) => held_aside(first) * states.len(),
            None => 0,
        };
        size_of::<Self>()
            + match &self.standing {
                KeyState::Quiet(Quiet { states, since }) => {
                    size_of_val(&**states) + 16 * since.capacity() + aside(states)
                }
                KeyState::Busy(Busy { states, refused }) => {
                    size_of_val(&**states) + size_of_val(&**refused) + aside(states)
                }
            }
    }
}

/// What a state holds on the heap, in bytes.
fn held_aside(state: &State) -> usize {
    match state {
        State::SlidingLog(log) => 16 * log.entries.len(),
        // Eight bytes for each part, of which seven are usual.
        State::SlidingParts(_) => 64,
        _ => 0,
    }
}

impl Trial {
    /// Tries other numbers in the place of these windows; with `grid`, also to find numbers to propose. What is remembered takes about so
    /// many bytes; beyond that only a sample of the keys is followed.
    pub(super) fn of(own: &[Quota], count_denied: bool, grid: bool, most_bytes: usize) -> Option<Self> {
        let candidates = Candidates::of(own, grid)?;
        Some(Self { candidates, count_denied, keys: Sample::new(most_bytes), requests: 0 })
    }

    /// Puts a request to all candidates. `settled`: what it turned out to cost, where that is charged instead once it is admitted.
    pub(super) fn request(&mut self, key: u64, cost: u64, settled: Option<u64>, at: Timestamp) {
        self.requests += 1;
        let (candidates, count_denied) = (&self.candidates, self.count_denied);
        let new = || Key { requests: 0, standing: KeyState::Quiet(Quiet::under(&candidates.floor)) };
        self.keys.with(key, new, |key| {
            key.requests += 1;
            if let KeyState::Quiet(quiet) = &mut key.standing {
                // Debts are as deep as a candidate is large: of those the floor says nothing about the others.
                if settled.is_none() && quiet.request(&candidates.floor, cost, at) {
                    return;
                }
                let mut busy = Busy::under(&candidates.all);
                for &(at, cost) in &quiet.since {
                    busy.request(&candidates.all, count_denied, (cost, None), at);
                }
                key.standing = KeyState::Busy(busy);
            }
            if let KeyState::Busy(busy) = &mut key.standing {
                busy.request(&candidates.all, count_denied, (cost, settled), at);
            }
        });
    }

    /// What became of it: each candidate with what it would have refused, and whom.
    pub(super) fn results(&self) -> Results<'_> {
        let mut refused = vec![(0_u64, 0_u64); self.candidates.all.len()];
        let (mut requests, mut keys) = (0_u64, 0_u64);
        for key in self.keys.values() {
            requests += key.requests;
            keys += 1;
            let KeyState::Busy(busy) = &key.standing else { continue };
            for (sum, &count) in refused.iter_mut().zip(&busy.refused) {
                sum.0 += count;
                sum.1 += u64::from(count > 0);
            }
        }
        if self.keys.is_thinned() {
            for (count, keys) in &mut refused {
                let whole = u128::from(*count) * u128::from(self.requests) / u128::from(requests.max(1));
                *count = u64::try_from(whole).unwrap_or(u64::MAX);
                *keys = self.keys.scaled(*keys).min(*count);
            }
        }
        let tried = self.candidates.all.iter().zip(refused);
        let tried = tried.map(|(candidate, (refused, keys_refused))| CandidateResult {
            candidate,
            refused,
            keys_refused,
        });
        Results {
            requests: self.requests,
            keys: self.keys.scaled(keys).min(self.requests),
            estimated: self.keys.is_thinned(),
            own: self.candidates.own,
            tried: tried.collect(),
        }
    }
}

/// What became of the candidates of one limit.
pub(super) struct Results<'t> {
    pub(super) requests: u64,
    pub(super) keys: u64,
    pub(super) estimated: bool,
    own: (u64, u64),
    pub(super) tried: Vec<CandidateResult<'t>>,
}

/// What became of one candidate.
pub(super) struct CandidateResult<'t> {
    pub(super) candidate: &'t Candidate,
    pub(super) refused: u64,
    pub(super) keys_refused: u64,
}

impl Results<'_> {
    /// The points of the curve.
    pub(super) fn curve(&self) -> Curve {
        let points = |axis, own| {
            let on_curve = |it: &&CandidateResult<'_>| it.candidate.axis == axis && it.candidate.on_curve;
            self.tried.iter().filter(on_curve).map(|it| it.point(own)).collect()
        };
        Curve {
            requests: self.requests,
            keys: self.keys,
            estimated: self.estimated,
            rates: points(Axis::Rate, self.own.0),
            bursts: points(Axis::Burst, self.own.1),
        }
    }
}

impl CandidateResult<'_> {
    #[allow(clippy::cast_precision_loss)] // a factor, for people
    fn point(&self, own: u64) -> CurvePoint {
        CurvePoint {
            amount: amount::all_written(&self.candidate.quotas),
            value: self.candidate.value,
            factor: self.candidate.value as f64 / own as f64,
            refused: self.refused,
            keys_refused: self.keys_refused,
        }
    }
}

impl Quiet {
    fn under(floor: &[Quota]) -> Self {
        Self { states: floor.iter().map(Quota::fresh).collect(), since: Vec::new() }
    }

    /// Whether the key is still quiet, and if so, the request is noted.
    fn request(&mut self, floor: &[Quota], cost: u64, at: Timestamp) -> bool {
        let at_rest = floor.iter().zip(&self.states).all(|(quota, state)| quota.expires_at(state) <= at);
        if at_rest {
            self.since.clear();
        }
        if self.since.len() >= MAX_QUIET_REQUESTS || !spend(floor, &mut self.states, cost, at) {
            return false;
        }
        self.since.push((at, cost));
        true
    }
}

impl Busy {
    fn under(candidates: &[Candidate]) -> Self {
        let quotas = candidates.iter().flat_map(|it| &it.quotas);
        Self { states: quotas.map(Quota::fresh).collect(), refused: vec![0; candidates.len()].into() }
    }

    /// `costs`: what is asked for, and what it turns out to cost.
    fn request(
        &mut self,
        candidates: &[Candidate],
        count_denied: bool,
        costs: (u64, Option<u64>),
        at: Timestamp,
    ) {
        let (cost, settled) = costs;
        let mut rest = &mut *self.states;
        for (candidate, refused) in candidates.iter().zip(&mut self.refused) {
            let (states, others) = rest.split_at_mut(candidate.quotas.len());
            rest = others;
            let adjustment = if spend(&candidate.quotas, states, cost, at) {
                settled.and_then(|settled| settling(cost, settled, at))
            } else {
                *refused += 1;
                count_denied.then_some(Adjustment::Charge { units: cost, overdraft: Overdraft::None })
            };
            if let Some(adjustment) = adjustment {
                let windows = candidate.quotas.iter().zip(states);
                windows.for_each(|(quota, state)| quota.adjust(state, adjustment, at));
            }
        }
    }
}

/// What puts right that less or more was taken than it cost, as the limiter does it.
fn settling(taken: u64, cost: u64, at: Timestamp) -> Option<Adjustment> {
    if cost < taken {
        return Some(Adjustment::Refund { units: taken - cost, taken_at: at });
    }
    (cost > taken).then_some(Adjustment::Charge { units: cost - taken, overdraft: Overdraft::OneCapacity })
}

/// Charges all windows or none.
fn spend(quotas: &[Quota], states: &mut [State], cost: u64, at: Timestamp) -> bool {
    let amount = Amount::Exactly(cost);
    if let ([quota], [state]) = (quotas, &mut *states) {
        return quota.acquire(state, amount, at).is_admitted();
    }
    let before = states.to_vec();
    let admitted =
        quotas.iter().zip(&mut *states).all(|(quota, state)| quota.acquire(state, amount, at).is_admitted());
    if !admitted {
        states.clone_from_slice(&before);
    }
    admitted
}
