//! The modes that need no events: each decision follows from the time of its request.

#![allow(clippy::cast_precision_loss, reason = "units of a simulation are few")]

use tollgate::store::Check;
use tollgate::{Algorithm as _, Bucket, ManualClock, MemoryStore, Rate, Rule, Span, Timestamp};

use super::scenario::{FleetArrival, FleetScenario};
use super::tally::Tally;

/// The start of a run by the clock of the stores.
pub(super) const START: Timestamp = Timestamp::from_secs(1_767_268_800);

/// The key of the limit.
pub(super) const KEY: &[u8] = b"everybody";

/// Creates a store.
pub(super) fn store(clock: &ManualClock) -> MemoryStore<ManualClock> {
    MemoryStore::with_seed(1_024, clock.clone(), 1)
}

/// Returns a time by the clock of the stores.
pub(super) fn time(at: u64) -> Timestamp {
    START + Span::from_micros(at)
}

/// Decides all requests in one bucket, without delays. Returns the admitted requests.
pub(super) fn ideal(scenario: &FleetScenario, arrivals: &[FleetArrival]) -> Tally {
    central(scenario, arrivals, 0)
}

/// Decides each request in the shared store.
pub(super) fn exact(scenario: &FleetScenario, arrivals: &[FleetArrival]) -> Tally {
    let mut tally = central(scenario, arrivals, scenario.round_trip.as_micros() / 2);
    tally.calls = arrivals.iter().map(|it| it.at).collect();
    tally.waited = tally.offered;
    tally
}

fn central(scenario: &FleetScenario, arrivals: &[FleetArrival], delay: u64) -> Tally {
    let (store, rule) = (store(&ManualClock::at(START)), scenario.rule());
    let decide = |at: u64| store.decide_at(&[Check::new(&rule, KEY, 1)], time(at)).admitted;
    let admitted = arrivals.iter().map(|it| it.at + delay).filter(|&at| decide(at)).collect();
    Tally { offered: arrivals.len() as u64, admitted, ..Tally::default() }
}

/// Decides each request by the part of its node.
pub(super) fn split(scenario: &FleetScenario, arrivals: &[FleetArrival]) -> Tally {
    let nodes = u64::from(scenario.nodes);
    let Rate { count, period } = scenario.bucket.rate();
    // The same units in a period that is longer by the number of nodes: nothing is lost to rounding.
    let part = Rate::new(count, Span::from_micros(period.as_micros().saturating_mul(nodes)));
    let bucket = Bucket::new(part).and_then(|it| it.with_burst((scenario.bucket.capacity() / nodes).max(1)));
    let rule = Rule::new("part", bucket.unwrap_or(scenario.bucket));
    let store = store(&ManualClock::at(START));
    let decide = |it: &FleetArrival| {
        store.decide_at(&[Check::new(&rule, &it.node.to_le_bytes(), 1)], time(it.at)).admitted
    };
    let admitted = arrivals.iter().filter(|it| decide(it)).map(|it| it.at).collect();
    Tally { offered: arrivals.len() as u64, admitted, ..Tally::default() }
}

/// Units that are available, and come back with time.
#[derive(Clone, Copy)]
struct Balance {
    units: f64,
    at: u64,
}

impl Balance {
    fn pass(&mut self, per_us: f64, full: f64, now: u64) {
        self.units = (self.units + now.saturating_sub(self.at) as f64 * per_us).min(full);
        self.at = now;
    }
}

/// A node with a copy of the limit.
struct Copy {
    balance: Balance,
    /// The units that it has admitted since its last call.
    unsent: f64,
    next_call: u64,
    /// The balance of the store, which arrives at a time.
    reply: Option<(u64, f64)>,
}

/// Decides each request by the copy of its node. Copies are reconciled with the store at intervals.
pub(super) fn sync(scenario: &FleetScenario, arrivals: &[FleetArrival]) -> Tally {
    let (bucket, interval) = (&scenario.bucket, scenario.sync_interval.as_micros());
    let (full, delay) = (bucket.capacity() as f64, scenario.round_trip.as_micros() / 2);
    let per_us = bucket.rate().count as f64 / bucket.rate().period.as_micros() as f64;
    let mut central = Balance { units: full, at: 0 };
    let mut nodes: Vec<_> = (0..u64::from(scenario.nodes))
        .map(|node| Copy {
            balance: Balance { units: full, at: 0 },
            unsent: 0.0,
            // Nodes do not call together.
            next_call: interval * (node + 1) / u64::from(scenario.nodes),
            reply: None,
        })
        .collect();
    let mut tally = Tally { offered: arrivals.len() as u64, ..Tally::default() };
    for arrival in arrivals {
        // Calls until now, in the order of their times.
        while let Some(due) =
            nodes.iter_mut().filter(|it| it.next_call <= arrival.at).min_by_key(|it| it.next_call)
        {
            let at = due.next_call;
            due.next_call += interval;
            due.settle(per_us, full, at);
            central.pass(per_us, full, at + delay);
            // A store remembers usage above the limit, up to one capacity.
            central.units = (central.units - due.unsent).max(-full);
            due.unsent = 0.0;
            due.reply = Some((at + 2 * delay, central.units));
            tally.calls.push(at);
        }
        let Some(node) = nodes.get_mut(arrival.node) else { continue };
        node.settle(per_us, full, arrival.at);
        if node.balance.units >= 1.0 {
            node.balance.units -= 1.0;
            node.unsent += 1.0;
            tally.admitted.push(arrival.at);
        }
    }
    tally
}

impl Copy {
    /// Applies the time, and a reply that has arrived.
    fn settle(&mut self, per_us: f64, full: f64, now: u64) {
        if let Some((at, units)) = self.reply.filter(|(at, _)| *at <= now) {
            self.balance = Balance { units: units - self.unsent, at };
            self.reply = None;
        }
        self.balance.pass(per_us, full, now);
    }
}
