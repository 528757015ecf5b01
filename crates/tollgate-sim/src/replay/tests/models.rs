//! Exact models of every kind of limit, from their definitions: each stores every admission and counts it anew.

use std::collections::{BTreeMap, BTreeSet};

/// A request of a generated log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) at: u64,
    pub(super) client: u8,
    pub(super) path: &'static str,
    pub(super) cost: u64,
}

/// The kind and its numbers: a count, a window in microseconds, a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    kind: Kind,
    count: u64,
    window: u64,
    burst: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fixed,
    Log,
    TwoCounters,
    Bucket,
}

impl Model {
    pub(super) fn fixed(count: u64, window: u64) -> Self {
        Self { kind: Kind::Fixed, count, window, burst: count }
    }

    pub(super) fn log(count: u64, window: u64) -> Self {
        Self { kind: Kind::Log, count, window, burst: count }
    }

    pub(super) fn two_counters(count: u64, window: u64) -> Self {
        Self { kind: Kind::TwoCounters, count, window, burst: count }
    }

    pub(super) fn bucket(count: u64, window: u64, burst: u64) -> Self {
        Self { kind: Kind::Bucket, count, window, burst }
    }

    /// Returns the model with another count, and the burst in proportion, rounded to the nearest.
    pub(super) fn at_rate(mut self, count: u64) -> Self {
        let burst = (2 * self.burst * count + self.count) / (2 * self.count);
        // A burst that equals the count stays equal to it.
        self.burst = if self.burst == self.count { count } else { burst.max(1) };
        self.count = count;
        self
    }

    pub(super) fn at_burst(mut self, burst: u64) -> Self {
        self.burst = burst;
        self
    }

    /// Whether `cost` fits at `at`, after the charges in `spent`.
    fn has_room(&self, spent: &[(u64, u64)], cost: u64, at: u64) -> bool {
        let sum = |from: u64, to: u64| -> u64 {
            spent.iter().filter(|(then, _)| (from..to).contains(then)).map(|(_, cost)| cost).sum()
        };
        let (count, window) = (self.count, self.window);
        let start = at / window * window;
        match self.kind {
            Kind::Fixed => sum(start, start + window) + cost <= count,
            Kind::Log => sum((at + 1).saturating_sub(window), at + 1) + cost <= count,
            Kind::TwoCounters => {
                let (before, now, elapsed) =
                    (sum(start - window, start), sum(start, start + window), at - start);
                before * (window - elapsed) + (now + cost) * window <= count * window
            }
            Kind::Bucket => self.tokens(spent, at) >= u128::from(cost) * u128::from(window),
        }
    }

    /// Returns the tokens in a bucket times the window: an integer, because `count` tokens flow in each window.
    fn tokens(&self, spent: &[(u64, u64)], at: u64) -> u128 {
        let (count, window) = (u128::from(self.count), u128::from(self.window));
        let full = u128::from(self.burst) * window;
        let (mut tokens, mut last) = (full, 0);
        for &(then, cost) in spent {
            tokens = full.min(tokens + u128::from(then - last) * count) - u128::from(cost) * window;
            last = then;
        }
        full.min(tokens + u128::from(at - last) * count)
    }
}

/// A model with its state.
pub(super) struct Limit {
    endpoint: &'static str,
    per_client: bool,
    model: Model,
    spent: BTreeMap<u8, Vec<(u64, u64)>>,
    pub(super) checked: u64,
    pub(super) refused: u64,
}

impl Limit {
    pub(super) fn new(endpoint: &'static str, per_client: bool, model: Model) -> Self {
        Self { endpoint, per_client, model, spent: BTreeMap::new(), checked: 0, refused: 0 }
    }

    fn covers(&self, request: &Request) -> bool {
        self.endpoint == "/**" || self.endpoint == request.path
    }

    fn spent(&mut self, request: &Request) -> &mut Vec<(u64, u64)> {
        self.spent.entry(if self.per_client { request.client } else { 0 }).or_default()
    }
}

/// The result of a log.
pub(super) struct Outcome {
    pub(super) refused: u64,
    pub(super) clients_refused: u64,
}

/// Runs a log: all limits that cover a request are charged, or none is.
pub(super) fn run(limits: &mut [Limit], log: &[Request]) -> Outcome {
    let (mut refused, mut clients) = (0, BTreeSet::new());
    for request in log {
        let mut all_have_room = true;
        for limit in limits.iter_mut().filter(|limit| limit.covers(request)) {
            let model = limit.model;
            let has_room = model.has_room(limit.spent(request), request.cost, request.at);
            limit.checked += 1;
            limit.refused += u64::from(!has_room);
            all_have_room &= has_room;
        }
        if all_have_room {
            for limit in limits.iter_mut().filter(|limit| limit.covers(request)) {
                limit.spent(request).push((request.at, request.cost));
            }
        } else {
            refused += 1;
            clients.insert(request.client);
        }
    }
    Outcome { refused, clients_refused: clients.len() as u64 }
}

/// Returns the counts of too lax and too strict decisions against an exact log, in the closed and in the open loop.
pub(super) fn distance(model: &Model, log: &[Request]) -> ((u64, u64), (u64, u64)) {
    let exact = Model { kind: Kind::Log, ..*model };
    let (mut own, mut of_log, mut all) =
        ([const { Vec::new() }; 256], [const { Vec::new() }; 256], [const { Vec::new() }; 256]);
    let (mut closed, mut open) = ((0, 0), (0, 0));
    let note = |sum: &mut (u64, u64), by_limit: bool, by_log: bool| {
        sum.0 += u64::from(by_limit && !by_log);
        sum.1 += u64::from(!by_limit && by_log);
    };
    for &Request { at, client, cost, .. } in log {
        let client = usize::from(client);
        let by_limit = model.has_room(&own[client], cost, at);
        let by_log = exact.has_room(&of_log[client], cost, at);
        note(&mut closed, by_limit, by_log);
        if by_limit {
            own[client].push((at, cost));
        }
        if by_log {
            of_log[client].push((at, cost));
        }
        if !matches!(model.kind, Kind::Bucket) {
            note(&mut open, model.has_room(&all[client], cost, at), exact.has_room(&all[client], cost, at));
        }
        all[client].push((at, cost));
    }
    (closed, open)
}
