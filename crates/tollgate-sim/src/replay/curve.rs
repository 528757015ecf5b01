//! Computes the refusals of other numbers: every candidate decides every request, in one pass.
//!
//! Each key has a state per candidate, and each candidate counts the requests that it admitted itself, as if the
//! limit were the only one.
//!
//! Most keys never reach a limit, and the *floor* makes them cheap. It is no larger than any candidate in rate and
//! burst, so while it has admitted every request of a key, all candidates have too. A key starts with one state under
//! the floor, and the list of its requests since that state was fresh. When the floor refuses, or the list gets long,
//! the list is replayed against all candidates; from then on each candidate has its own state for the key.
//!
//! Not here: choosing candidates (`candidates`).
//!
//! Invariant: the counts equal those of separate limiters with one candidate each. Tested by `tests/replay`, against
//! independent models.

use tollgate::{Adjustment, Amount, ChargeTimes, Overdraft, Quota, State, Timestamp};

use super::amount;
use super::candidates::{Axis, Candidate, Candidates};
use super::report::{Curve, CurvePoint};
use crate::sample::{Sample, Weighs};

/// The most requests that are listed for a key that is only tracked under the floor.
const MAX_QUIET_REQUESTS: usize = 16;

/// The candidates of one limit, and the state of every key under them.
#[derive(Debug)]
pub(super) struct Trial {
    candidates: Candidates,
    count_denied: bool,
    keys: Sample<Key>,
    requests: u64,
}

/// The state of a key.
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
    /// States under the floor, one per window.
    states: Box<[State]>,
    /// Times and costs of the requests since the states were fresh.
    since: Vec<(Timestamp, u64)>,
}

/// A key with a state per candidate.
#[derive(Debug)]
struct Busy {
    /// States of each candidate, for each of its windows.
    states: Box<[State]>,
    /// Refusals by each candidate.
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

/// Returns the heap memory of a state, in bytes.
fn held_aside(state: &State) -> usize {
    match state {
        State::SlidingLog(log) => 16 * log.entries.len(),
        // Eight bytes per part, with seven parts by default.
        State::SlidingParts(_) => 64,
        _ => 0,
    }
}

impl Trial {
    /// Creates the candidates for these windows, including the grid of proposals if `grid` is set. States take about
    /// `most_bytes`; beyond that, only a sample of the keys is tracked.
    pub(super) fn of(own: &[Quota], count_denied: bool, grid: bool, most_bytes: usize) -> Option<Self> {
        let candidates = Candidates::of(own, grid)?;
        Some(Self { candidates, count_denied, keys: Sample::new(most_bytes), requests: 0 })
    }

    /// Runs a request against all candidates. `settled` is the actual cost, which replaces `cost` once the request is
    /// admitted.
    pub(super) fn request(&mut self, key: u64, cost: u64, settled: Option<u64>, at: Timestamp) {
        self.requests += 1;
        let (candidates, count_denied) = (&self.candidates, self.count_denied);
        let new = || Key { requests: 0, standing: KeyState::Quiet(Quiet::under(&candidates.floor)) };
        self.keys.with(key, new, |key| {
            key.requests += 1;
            if let KeyState::Quiet(quiet) = &mut key.standing {
                // The depth of a debt depends on the size of a candidate, so the floor proves nothing about settled
                // requests.
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

    /// Returns the refused requests and keys of each candidate.
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

/// Results of all candidates of one limit.
pub(super) struct Results<'t> {
    pub(super) requests: u64,
    pub(super) keys: u64,
    pub(super) estimated: bool,
    own: (u64, u64),
    pub(super) tried: Vec<CandidateResult<'t>>,
}

/// Result of one candidate.
pub(super) struct CandidateResult<'t> {
    pub(super) candidate: &'t Candidate,
    pub(super) refused: u64,
    pub(super) keys_refused: u64,
}

impl Results<'_> {
    /// Returns the points of the curve.
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

    /// Whether the floor admits the request; if so, the request is listed.
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

    /// Runs a request against all candidates. `costs` are the requested and the actual cost.
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
            let admitted = spend(&candidate.quotas, states, cost, at);
            *refused += u64::from(!admitted);
            for (quota, state) in candidate.quotas.iter().zip(states) {
                let adjustment = if admitted {
                    let charge = ChargeTimes { at, until: quota.expires_at(state) };
                    settled.and_then(|settled| settling(cost, settled, charge))
                } else {
                    count_denied.then_some(Adjustment::Charge { units: cost, overdraft: Overdraft::None })
                };
                if let Some(adjustment) = adjustment {
                    quota.adjust(state, adjustment, at);
                }
            }
        }
    }
}

/// Returns the adjustment that settles a charge, as the limiter does it.
fn settling(taken: u64, cost: u64, charge: ChargeTimes) -> Option<Adjustment> {
    if cost < taken {
        return Some(Adjustment::Refund { units: taken - cost, charge });
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
