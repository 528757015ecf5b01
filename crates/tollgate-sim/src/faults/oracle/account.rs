//! The usage of one key in the store, as the calls that were executed explain it.
//!
//! Two bounds are kept. `low` is what the key owes at least: it is drained by true time, and by what the fault list
//! allows by formula (steps and drift of the store's clock, forgotten calls). An admission above the limit on top of
//! `low` is one too many. `high` is what the key owes at most: a refusal below it is one too many.

use std::collections::BTreeMap;

use tollgate::{Adjustment, ChargeTimes, Overdraft};

use super::super::clock::TrueTime;
use super::super::plan::Counting;

/// The scale of a unit of a bucket: it gains `count` of these in a microsecond.
const UNIT: u128 = 1_000_000;

/// The numbers of a limit that bound its keys, over all policies in force so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) counting: Counting,
    /// The smallest capacity: a charge without overdraft stops there.
    pub(super) min_capacity: u64,
    /// The smallest rate of a bucket, in units a second.
    pub(super) min_count: u64,
}

impl Bounds {
    pub(super) fn of(counting: Counting) -> Self {
        Self { counting, min_capacity: capacity(counting), min_count: count(counting) }
    }

    /// Returns the bounds of a limit whose numbers change.
    pub(super) fn or(self, other: Counting) -> Self {
        let counting = match (self.counting, other) {
            (Counting::Bucket { count, burst }, Counting::Bucket { count: c, burst: b }) => {
                Counting::Bucket { count: count.max(c), burst: burst.max(b) }
            }
            (Counting::Window { limit, period }, Counting::Window { limit: other, .. }) => {
                Counting::Window { limit: limit.max(other), period }
            }
            (Counting::Slots { slots, ttl }, Counting::Slots { slots: other, .. }) => {
                Counting::Slots { slots: slots.max(other), ttl }
            }
            (same, _) => same,
        };
        Self {
            counting,
            min_capacity: self.min_capacity.min(capacity(other)),
            min_count: self.min_count.min(count(other)),
        }
    }

    pub(super) fn capacity(self) -> u64 {
        capacity(self.counting)
    }
}

fn count(counting: Counting) -> u64 {
    if let Counting::Bucket { count, .. } = counting { count } else { 0 }
}

fn capacity(counting: Counting) -> u64 {
    match counting {
        Counting::Bucket { burst, .. } => burst,
        Counting::Window { limit, .. } => limit,
        Counting::Slots { slots, .. } => slots,
    }
}

/// The times of an executed call.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: TrueTime,
    /// The reading of the store's clock.
    pub(super) shown: u64,
}

/// The usage of one key in the store.
#[allow(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(super) struct StoreAccount {
    low: u128,
    low_at: TrueTime,
    high: u128,
    high_at: u64,
    /// The leases of slots, by owner, with their ends by the store's clock.
    leases: BTreeMap<u128, u64>,
    /// The window that is open, by the store's clock.
    window: u64,
    /// Whether the windows of the store's clock are those of true time.
    pub(super) is_window_known: bool,
    /// Whether `high` is known.
    pub(super) is_high_known: bool,
    /// Whether refunds are computed to the microsecond: the store's clock shows true time, and no policy changed.
    pub(super) is_exact: bool,
    /// Whether the numbers of the limit have changed: usage above the capacity is not carried over.
    has_predecessors: bool,
    /// How much faster than true time the store's clock may run, in parts per million.
    pub(super) max_drift_ppm: u64,
}

impl StoreAccount {
    pub(super) fn new() -> Self {
        Self {
            low: 0,
            low_at: 0,
            high: 0,
            high_at: 0,
            leases: BTreeMap::new(),
            window: 0,
            is_window_known: true,
            is_high_known: true,
            is_exact: true,
            has_predecessors: false,
            max_drift_ppm: 0,
        }
    }

    /// Applies the time since the last call.
    fn pass(&mut self, bounds: Bounds, moment: Moment) {
        match bounds.counting {
            Counting::Bucket { count, .. } => {
                let passed = u128::from(moment.now.saturating_sub(self.low_at));
                let faster = (passed * u128::from(self.max_drift_ppm)).div_ceil(1_000_000);
                self.low = self.low.saturating_sub((passed + faster) * u128::from(count));
                let passed = u128::from(moment.shown.saturating_sub(self.high_at));
                self.high = self.high.saturating_sub(passed * u128::from(count));
            }
            Counting::Window { period, .. } => {
                let window = moment.shown / (period * 1_000_000);
                if window > self.window {
                    (self.low, self.high) = (0, 0);
                }
                self.window = window;
            }
            Counting::Slots { ttl, .. } => {
                // A lease that a step of the clock left in the far future is moved back.
                let longest = moment.shown + ttl * 1_000_000;
                self.leases.values_mut().for_each(|end| *end = (*end).min(longest));
                self.leases.retain(|_, end| *end > moment.shown);
            }
        }
        (self.low_at, self.high_at) = (moment.now, moment.shown);
    }

    const fn unit(bounds: Bounds) -> u128 {
        if let Counting::Bucket { .. } = bounds.counting { UNIT } else { 1 }
    }

    /// Charges an admitted check. Returns a text if the limit is exceeded.
    pub(super) fn admit(&mut self, bounds: Bounds, amount: Charged, moment: Moment) -> Result<(), String> {
        self.pass(bounds, moment);
        let capacity = bounds.capacity();
        match amount {
            Charged::Units(units) => {
                let unit = Self::unit(bounds);
                self.low += u128::from(units) * unit;
                self.high += u128::from(units) * unit;
                if self.low > u128::from(capacity) * unit {
                    let used = self.low as f64 / unit as f64;
                    return Err(format!("{used:.3} units are in use of {capacity}"));
                }
            }
            Charged::Slot(owner) => {
                let Counting::Slots { ttl, .. } = bounds.counting else { return Ok(()) };
                self.leases.insert(owner, moment.shown + ttl * 1_000_000);
                if self.leases.len() as u64 > capacity {
                    return Err(format!("{} slots are held of {capacity}", self.leases.len()));
                }
            }
        }
        Ok(())
    }

    /// Charges the units, possibly none, that an admitted batch leases. `low` leaves out the surcharge of the store: clients
    /// see whether it is enough.
    pub(super) fn lease(
        &mut self,
        bounds: Bounds,
        units: u64,
        ttl: u64,
        moment: Moment,
    ) -> Result<(), String> {
        // A lease without units writes as well: after a step back, it moves the window of the key to the present one, with its
        // usage, and that window closes before a later call.
        self.pass(bounds, moment);
        if units == 0 {
            return Ok(());
        }
        if let Counting::Bucket { count, .. } = bounds.counting {
            self.high = self.high.max(2 * u128::from(ttl) * u128::from(count));
        }
        self.admit(bounds, Charged::Units(units), moment)
    }

    /// Checks a refusal. Returns a text if the key has room.
    pub(super) fn refuse(&mut self, bounds: Bounds, amount: Charged, moment: Moment) -> Result<(), String> {
        self.pass(bounds, moment);
        let (unit, capacity) = (Self::unit(bounds), bounds.capacity());
        let has_room = match amount {
            Charged::Units(units) => self.high + u128::from(units) * unit <= u128::from(capacity) * unit,
            Charged::Slot(_) => (self.leases.len() as u64) < capacity,
        };
        if self.is_high_known && has_room {
            let used = self.high as f64 / unit as f64;
            return Err(format!("{used:.3} units and {} slots are in use of {capacity}", self.leases.len()));
        }
        Ok(())
    }

    /// Applies a change. Returns the units that were given back at most.
    pub(super) fn change(&mut self, bounds: Bounds, adjustment: Adjustment, moment: Moment) -> u64 {
        self.pass(bounds, moment);
        let (unit, capacity) = (Self::unit(bounds), bounds.capacity());
        match adjustment {
            Adjustment::Charge { units, overdraft } => {
                let times = if overdraft == Overdraft::None || self.has_predecessors { 1 } else { 2 };
                let more = u128::from(units) * unit;
                let floor = |capacity: u64| u128::from(times * capacity) * unit;
                self.low = (self.low + more).min(floor(bounds.min_capacity).max(self.low));
                self.high = (self.high + more).min(floor(capacity).max(self.high));
                0
            }
            Adjustment::Refund { units, charge } => {
                let owed = self.owed(bounds, units, charge, moment);
                let low = if self.is_exact { owed } else { u128::from(units) * unit };
                self.low = self.low.saturating_sub(low);
                self.high = self.high.saturating_sub(owed);
                units
            }
            Adjustment::Grant { units } => {
                self.low = self.low.saturating_sub(u128::from(units) * unit);
                self.high = self.high.saturating_sub(u128::from(units) * unit);
                units
            }
            Adjustment::Reset => {
                (self.low, self.high) = (0, 0);
                self.leases.clear();
                2 * capacity
            }
            Adjustment::Release { owner } => {
                self.leases.remove(&owner.0);
                0
            }
            // No client of the simulated fleet sends it.
            Adjustment::ReleaseOldest { .. } => 0,
            Adjustment::Renew { owner } => {
                if let (Counting::Slots { ttl, .. }, Some(end)) =
                    (bounds.counting, self.leases.get_mut(&owner.0))
                {
                    *end = moment.shown + ttl * 1_000_000;
                }
                0
            }
            Adjustment::ReturnLease { units, taken_at, ttl } => {
                let taken_at = taken_at.as_micros();
                let is_open = match bounds.counting {
                    Counting::Window { period, .. } => taken_at / (period * 1_000_000) >= self.window,
                    _ => taken_at <= moment.shown && moment.shown - taken_at <= ttl.as_micros(),
                };
                // Units of a lease that has ended are refused: the bucket has regained a part of them.
                if is_open || !self.is_exact {
                    self.low = self.low.saturating_sub(u128::from(units) * unit);
                }
                if is_open {
                    self.high = self.high.saturating_sub(u128::from(units) * unit);
                }
                0
            }
        }
    }

    /// Returns the part of a charge that time has not given back.
    fn owed(&self, bounds: Bounds, units: u64, charge: ChargeTimes, moment: Moment) -> u128 {
        let (at, until) = (charge.at.as_micros(), charge.until.as_micros());
        match bounds.counting {
            Counting::Bucket { count, burst } => {
                let gained = |span: u64| u128::from(span) * u128::from(count);
                let left = gained(until.saturating_sub(moment.shown));
                let full = u128::from(burst) * UNIT;
                (u128::from(units) * UNIT)
                    .min(left)
                    .min(full.saturating_sub(gained(moment.shown.saturating_sub(at))))
            }
            Counting::Window { period, .. } => {
                let is_open = at / (period * 1_000_000) >= self.window;
                if is_open { u128::from(units) } else { 0 }
            }
            Counting::Slots { .. } => 0,
        }
    }

    /// The store lost everything.
    pub(super) fn forget_all(&mut self) {
        (self.low, self.high) = (0, 0);
        self.leases.clear();
    }

    /// The store lost one admitted charge.
    pub(super) fn forget(&mut self, bounds: Bounds, amount: Charged) {
        match amount {
            Charged::Units(units) => {
                self.low = self.low.saturating_sub(u128::from(units) * Self::unit(bounds));
            }
            Charged::Slot(owner) => drop(self.leases.remove(&owner)),
        }
    }

    /// The store's clock was set forward by this many microseconds, or more than the drift that is known of.
    pub(super) fn gain(&mut self, bounds: Bounds, span: u64) {
        if let Counting::Bucket { count, .. } = bounds.counting {
            self.low = self.low.saturating_sub(u128::from(span) * u128::from(count));
        }
    }

    /// The numbers of the limit change: usage that is carried over is cut at the capacity.
    pub(super) fn cut(&mut self, bounds: Bounds) {
        self.low = self.low.min(u128::from(bounds.min_capacity) * Self::unit(bounds));
        self.has_predecessors = true;
    }

    /// Lowers the usage of a bucket to this many units. Returns whether it was more.
    pub(super) fn relieve(&mut self, bounds: Bounds, units: u64, moment: Moment) -> bool {
        self.pass(bounds, moment);
        let bound = u128::from(units) * Self::unit(bounds);
        let is_relieved = matches!(bounds.counting, Counting::Bucket { .. }) && self.low > bound;
        self.low = if is_relieved { bound } else { self.low };
        is_relieved
    }

    /// Allows for units that are charged under an earlier policy.
    pub(super) fn allow(&mut self, bounds: Bounds, units: u64) {
        self.low = self.low.saturating_sub(u128::from(units) * Self::unit(bounds));
    }
}

/// The amount of an admitted check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charged {
    Units(u64),
    Slot(u128),
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    /// Returns the account of a window of 5 s with 108 units, which are spent, and the time after a step of its clock back by an hour.
    fn stepped_back() -> (StoreAccount, Bounds, impl Fn(TrueTime) -> Moment) {
        let bounds = Bounds::of(Counting::Window { limit: 108, period: 5 });
        let mut store = StoreAccount::new();
        let full =
            store.admit(bounds, Charged::Units(108), Moment { now: 8_000_000, shown: HOUR + 8_000_000 });
        assert_eq!(full, Ok(()));
        (store, bounds, |now| Moment { now, shown: now })
    }

    #[test]
    fn a_lease_without_units_moves_a_window_after_a_step_back() {
        let (mut store, bounds, at) = stepped_back();
        assert_eq!(store.lease(bounds, 0, 1, at(9_700_000)), Ok(()));
        assert!(store.lease(bounds, 1, 1, at(9_900_000)).is_err(), "the usage moves with the window");
        let (mut store, bounds, at) = stepped_back();
        assert_eq!(store.lease(bounds, 0, 1, at(9_700_000)), Ok(()));
        assert_eq!(store.lease(bounds, 108, 1, at(10_100_000)), Ok(()));
        assert!(store.lease(bounds, 1, 1, at(10_200_000)).is_err());
    }

    #[test]
    fn a_window_that_no_call_has_moved_is_still_full() {
        let (mut store, bounds, at) = stepped_back();
        assert!(store.lease(bounds, 1, 1, at(10_100_000)).is_err());
    }
}
