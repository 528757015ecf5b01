//! The plan of a batch: the units that the lots of this node cover, and those that the store decides.

use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use tollgate_core::{Amount, Outcome, Timestamp, Verdict};
use tollgate_store::{Check, Clock, Outcomes};

use crate::far::is_exact;
use crate::leased::{Counts, Leased};
use crate::lot::{Content, Lot, Tick};
use crate::place::Place;
use crate::table::Table;

/// Units that were taken from a lot.
struct Taken<'l> {
    place: &'l Place,
    lot: &'l Lot,
    content: Content,
}

/// The part of a check that the lots cover.
pub(crate) struct Part<'l> {
    /// The place of the key, if it has one and may be leased.
    pub(crate) place: Option<&'l Place>,
    /// The units that were taken from lots.
    pub(crate) covered: u64,
    /// The units that the store is asked for; `None` if the lots cover the check.
    pub(crate) amount: Option<Amount>,
    /// The outcome of a check that is not sent to the store.
    outcome: Option<Outcome>,
}

/// The part of a batch that the lots of this node cover. Dropping it puts the taken units back.
pub(crate) struct Plan<'l> {
    taken: SmallVec<[Taken<'l>; 4]>,
    pub(crate) parts: SmallVec<[Part<'l>; 4]>,
    table: &'l Table,
    counts: &'l Counts,
    is_draining: &'l AtomicBool,
}

impl Drop for Plan<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.taken.is_empty() {
            self.put_back();
        }
    }
}

/// Returns the units of a check that lots may cover.
pub(crate) fn leasable_units(check: &Check<'_>) -> Option<u64> {
    match check.amount {
        Amount::Exactly(units @ 1..) if !is_exact(check.rule) && !check.count_denied => Some(units),
        _ => None,
    }
}

impl<'l> Plan<'l> {
    /// Takes the units of each check that the lots cover.
    pub(crate) fn of<S, C: Clock>(
        leased: &'l Leased<S, C>,
        checks: &[Check<'_>],
        (now, tick): (Timestamp, Tick),
    ) -> Self {
        let Leased { table, counts, is_draining, .. } = leased;
        let mut plan = Self { taken: SmallVec::new(), parts: SmallVec::new(), table, counts, is_draining };
        for check in checks {
            let place = leasable_units(check).and_then(|_| leased.find(check));
            let units = leasable_units(check).unwrap_or(0);
            let limit = check.rule.quota.capacity();
            let covered = match place {
                // A cost above the capacity is never admitted, whatever is held.
                Some(place) if units <= limit => plan.take(place, units, tick),
                _ => 0,
            };
            let is_covered = units > 0 && covered == units;
            let amount = match check.amount {
                _ if is_covered => None,
                Amount::Exactly(units) => Some(Amount::Exactly(units - covered)),
                other => Some(other),
            };
            let outcome = place.filter(|_| is_covered).map(|place| {
                let verdict = Verdict::admitted_from_lease(units);
                place.describe(&check.rule.quota, verdict, now, place.held(tick))
            });
            plan.parts.push(Part { place, covered, amount, outcome });
        }
        plan
    }

    fn take(&mut self, place: &'l Place, units: u64, now: Tick) -> u64 {
        let mut missing = units;
        while missing > 0 {
            let most = u32::try_from(missing).unwrap_or(u32::MAX);
            let Some((lot, content)) = place.take(1, most, now) else { break };
            missing -= u64::from(content.units);
            self.taken.push(Taken { place, lot, content });
        }
        units - missing
    }

    /// Puts the taken units back into their lots.
    #[cold]
    pub(crate) fn put_back(&mut self) {
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        for Taken { place, lot, content } in self.taken.drain(..) {
            // A lot that has ended or was filled again since does not take them: they end with their
            // lease. So do the units of a node that has returned its leases.
            if is_draining || !lot.put_back(content) {
                self.counts.expired.add(content.units.into());
                continue;
            }
            // The key may have been left meanwhile, because its lots were empty.
            self.table.ensure_listed(place);
        }
    }

    /// Returns whether the lots cover all checks.
    pub(crate) fn is_covered(&self) -> bool {
        self.parts.iter().all(|part| part.amount.is_none())
    }

    /// Returns the checks that the store decides.
    pub(crate) fn rest<'c>(&self, checks: &[Check<'c>]) -> SmallVec<[Check<'c>; 8]> {
        let pairs = checks.iter().zip(&self.parts);
        pairs.filter_map(|(check, part)| Some(Check { amount: part.amount?, ..*check })).collect()
    }

    /// Keeps the units that were taken, and returns the outcomes of an admitted batch. `answered` are
    /// the outcomes of the checks that the store was asked for.
    pub(crate) fn admit(
        mut self,
        checks: &[Check<'_>],
        mut answered: impl Iterator<Item = Outcome>,
        tick: Tick,
        outcomes: &mut Outcomes,
    ) {
        let mut refused = false;
        for (check, part) in checks.iter().zip(&self.parts) {
            let Some(outcome) = part.outcome.or_else(|| answered.next()) else { continue };
            // A check that does not bind may be refused in an admitted batch.
            refused |= !outcome.is_admitted() && part.covered > 0;
            outcomes.push(match (outcome.verdict, part.outcome) {
                (Verdict::Admitted { units, wait, leased }, None) => {
                    let verdict = Verdict::Admitted { units: units + part.covered, wait, leased };
                    with_held(Outcome { verdict, ..outcome }, part.place, tick)
                }
                _ => outcome,
            });
            let _ = check;
        }
        if !refused {
            self.taken.clear();
            return;
        }
        // Rare: a check in shadow mode of which the lots had a part. Only its part goes back.
        let keeps: SmallVec<[bool; 4]> =
            self.parts.iter().zip(outcomes.iter()).map(|(_, outcome)| outcome.is_admitted()).collect();
        let places: SmallVec<[_; 4]> = self.parts.iter().map(|part| part.place).collect();
        self.taken.retain(|taken| {
            let mut owners = places.iter().map(|place| place.is_some_and(|it| std::ptr::eq(it, taken.place)));
            owners.position(|is_owner| is_owner).is_some_and(|at| !keeps[at])
        });
    }

    /// Returns the outcomes of a refused batch, in which nothing is charged.
    pub(crate) fn refuse(
        self,
        checks: &[Check<'_>],
        mut answered: impl Iterator<Item = Outcome>,
        (now, tick): (Timestamp, Tick),
        outcomes: &mut Outcomes,
    ) {
        let places: SmallVec<[_; 4]> =
            self.parts.iter().map(|part| (part.place, part.amount.is_none())).collect();
        drop(self);
        for (check, (place, is_covered)) in checks.iter().zip(places) {
            let outcome = match (place, is_covered) {
                (Some(place), true) => {
                    Some(place.describe(&check.rule.quota, Verdict::admitted(0), now, place.held(tick)))
                }
                _ => answered.next().map(|outcome| with_held(outcome, place, tick)),
            };
            outcomes.extend(outcome);
        }
    }
}

/// Adds the units that this node holds to those that the store has left.
pub(crate) fn with_held(outcome: Outcome, place: Option<&Place>, now: Tick) -> Outcome {
    let held = place.map_or(0, |place| place.held(now));
    Outcome { remaining: outcome.remaining.saturating_add(held).min(outcome.limit), ..outcome }
}
