//! The usage of one key that one node admitted without the store, as its decisions explain it.
//!
//! A node grants its share of the limit, and no more, by its own clock; and it charges the store with that usage when
//! the store is back, once.

use std::collections::BTreeMap;

use super::super::plan::Counting;
use super::super::wire::RequestId;
use super::account::Bounds;

/// The error of the sums, in units.
const ROUNDING: f64 = 0.01;

/// The share of a limit that one node may grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) percent: u8,
    /// The smallest number of nodes that the node was told of.
    pub(super) nodes: usize,
}

impl Share {
    /// Returns the units that the node grants at once.
    pub(super) fn capacity(self, bounds: Bounds) -> u64 {
        (bounds.capacity() * u64::from(self.percent) / (100 * self.nodes as u64)).max(1)
    }

    /// Returns the units that the node grants in a microsecond.
    pub(super) fn rate(self, bounds: Bounds) -> f64 {
        let Counting::Bucket { count, .. } = bounds.counting else { return 0.0 };
        count as f64 / 1e6 * f64::from(self.percent) / 100.0 / self.nodes as f64
    }
}

/// Units that time gives back, by the clock of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    units: f64,
    at: u64,
    window: u64,
}

impl Level {
    /// Applies the time until `local`, at `rate` units a microsecond.
    fn pass(&mut self, bounds: Bounds, rate: f64, local: u64) {
        if let Counting::Window { period, .. } = bounds.counting {
            let window = local / (period * 1_000_000);
            if window != self.window {
                (self.units, self.window) = (0.0, window);
            }
        }
        self.units = (self.units - local.saturating_sub(self.at) as f64 * rate).max(0.0);
        self.at = local;
    }
}

/// Returns the largest and the smallest rate at which time gives back usage in the ledger, in units a microsecond.
fn ledger_rates(bounds: Bounds) -> [f64; 2] {
    [Share { percent: 100, nodes: 1 }.rate(bounds), bounds.min_count as f64 / 1e6]
}

/// The usage of one key on one node.
#[derive(Default)]
pub(super) struct NodeAccount {
    granted: Level,
    /// The slots that were granted, with the ends of their leases.
    slots: BTreeMap<RequestId, u64>,
    /// The least and the most that the ledger holds.
    least: Level,
    most: Level,
    /// The units by which rounding may have changed the ledger.
    slack: f64,
    /// Whether the numbers of the limit have changed: the ledger then has an entry for each rule.
    is_blurred: bool,
    /// Usage that is being charged, by the id of the adjustment.
    taken: BTreeMap<u128, [Level; 2]>,
}

impl NodeAccount {
    /// Records units that the node granted by its share.
    pub(super) fn grant(
        &mut self,
        bounds: Bounds,
        share: Share,
        units: u64,
        local: u64,
    ) -> Result<(), String> {
        self.granted.pass(bounds, share.rate(bounds), local);
        self.granted.units += units as f64;
        let capacity = share.capacity(bounds);
        if self.granted.units > capacity as f64 + ROUNDING {
            return Err(format!("the node granted {:.3} units, its share is {capacity}", self.granted.units));
        }
        Ok(())
    }

    /// Records a slot that the node granted by its share.
    pub(super) fn grant_slot(
        &mut self,
        bounds: Bounds,
        share: Share,
        request: RequestId,
        local: u64,
    ) -> Result<(), String> {
        let Counting::Slots { ttl, .. } = bounds.counting else { return Ok(()) };
        self.slots.retain(|_, end| *end > local);
        self.slots.insert(request, local + ttl * 1_000_000);
        let capacity = share.capacity(bounds);
        if self.slots.len() as u64 > capacity {
            return Err(format!("the node granted {} slots, its share is {capacity}", self.slots.len()));
        }
        Ok(())
    }

    pub(super) fn release(&mut self, request: RequestId) {
        self.slots.remove(&request);
    }

    /// Records units that were returned to the share.
    pub(super) fn return_units(&mut self, units: u64) {
        self.granted.units = (self.granted.units - units as f64).max(0.0);
    }

    fn pass_ledger(&mut self, bounds: Bounds, local: u64) {
        let [fast, slow] = ledger_rates(bounds);
        self.least.pass(bounds, fast, local);
        self.most.pass(bounds, slow, local);
    }

    /// Records usage that the ledger keeps. `is_kept`: it had room for certain.
    pub(super) fn record(&mut self, bounds: Bounds, units: u64, local: u64, is_kept: bool) {
        self.pass_ledger(bounds, local);
        let (units, most) = (units as f64, bounds.capacity() as f64);
        let least = bounds.min_capacity as f64;
        self.most.units = (self.most.units + units).min(most.max(self.most.units));
        if is_kept {
            self.least.units = (self.least.units + units).min(least.max(self.least.units));
        }
    }

    /// Records that a settlement may have changed the ledger by this many units.
    pub(super) fn correct(&mut self, bounds: Bounds, more: u64, less: u64, local: u64) {
        self.pass_ledger(bounds, local);
        // The correction is made a little later, after those in the store.
        self.slack += if more > 0 { 1.0 } else { 0.0 };
        self.most.units += more as f64;
        self.least.units = (self.least.units - less as f64).max(0.0);
    }

    /// The numbers of the limit changed: the ledger is no longer checked. Usage that is carried over is cut at the capacity.
    pub(super) fn blur(&mut self, bounds: Bounds, share: Share) {
        let min_share = (bounds.min_capacity * u64::from(share.percent) / (100 * share.nodes as u64)).max(1);
        self.granted.units = self.granted.units.min(min_share as f64);
        self.is_blurred = true;
    }

    /// Checks the usage that a node charges.
    pub(super) fn take(&mut self, bounds: Bounds, units: u64, id: u128, local: u64) -> Result<(), String> {
        self.pass_ledger(bounds, local);
        let (least, most, slack) = (self.least.units, self.most.units, self.slack + 1.0 + ROUNDING);
        let units = units as f64;
        if !self.is_blurred && (units > most + slack || units < least - slack) {
            return Err(format!("the node charges {units} units, its usage was {least:.3} to {most:.3}"));
        }
        self.taken.insert(id, [self.least, Level { units: most.max(units), ..self.most }]);
        (self.least.units, self.most.units) = (0.0, 0.0);
        Ok(())
    }

    /// Ends a charge of usage: it was made, or is a correction with an id from now on.
    pub(super) fn conclude(&mut self, id: u128) {
        self.taken.remove(&id);
    }

    /// Puts usage back that was not charged.
    pub(super) fn put_back(&mut self, bounds: Bounds, id: u128, local: u64) {
        let Some([mut least, mut most]) = self.taken.remove(&id) else { return };
        self.pass_ledger(bounds, local);
        let [fast, slow] = ledger_rates(bounds);
        least.pass(bounds, fast, local);
        most.pass(bounds, slow, local);
        let cap = |units: f64, capacity: u64, before: f64| units.min((capacity as f64).max(before));
        // Whole units are put back, rounded up.
        self.slack += 1.0;
        self.least.units = cap(self.least.units + least.units, bounds.min_capacity, self.least.units);
        self.most.units =
            cap(self.most.units + most.units, bounds.capacity(), self.most.units.max(most.units));
    }

    /// Returns the units that should have been charged by now.
    pub(super) fn missing(&mut self, bounds: Bounds, local: u64) -> f64 {
        self.pass_ledger(bounds, local);
        if self.is_blurred { 0.0 } else { self.least.units - self.slack - 1.0 - ROUNDING }
    }
}
