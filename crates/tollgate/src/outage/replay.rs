//! Replay: charges the store with missed usage, one key at a time.
//!
//! Calls to the store are in `Limiter::reconcile`.

use std::sync::atomic::Ordering;

use super::ledger::{Entry, Name, Pass};
use super::{Outage, Share};

/// The number of names that are read under one lock, small enough to hold it briefly.
const KEYS_PER_LOCK: usize = 64;

/// The usage of one key that the store does not have, removed from the ledger. If dropped before it
/// is settled or put back, it is lost: the store may have been charged with it.
pub(crate) struct Debt<'o> {
    outage: &'o Outage,
    name: &'o Name,
    entry: Option<Entry>,
}

impl Outage {
    /// Starts a pass over the keys with debts.
    pub(crate) fn pass(&self) -> Pass {
        self.ledger.pass()
    }

    /// Returns keys with debts that this pass has not tried.
    pub(crate) fn due(&self, pass: &mut Pass) -> Vec<Name> {
        if self.ledger.keys() == 0 { Vec::new() } else { self.ledger.next(pass, KEYS_PER_LOCK) }
    }

    /// Removes the debt of a key from the ledger.
    pub(crate) fn take_debt<'o>(&'o self, name: &'o Name) -> Option<Debt<'o>> {
        let entry = self.ledger.take(name)?;
        Some(Debt { outage: self, name, entry: Some(entry) })
    }
}

impl Debt<'_> {
    /// Returns the share that the usage was counted under.
    pub(crate) fn share(&self) -> Option<&Share> {
        self.entry.as_ref().map(|entry| &*entry.share)
    }

    /// Returns the units that still count.
    pub(crate) fn units(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.used(self.outage.now()))
    }

    /// Ends the debt: it was charged, or no longer counts.
    pub(crate) fn settle(mut self, units: u64) {
        self.entry = None;
        self.outage.counts.replayed.fetch_add(units, Ordering::Relaxed);
    }

    /// Puts the debt back: it was not charged, or the charge is compensated. This pass does not try
    /// it again.
    pub(crate) fn put_back(mut self, pass: &Pass) {
        if let Some(entry) = self.entry.take() {
            self.outage.ledger.put_back(self.name, entry, pass, self.outage.now());
        }
    }
}

impl Drop for Debt<'_> {
    fn drop(&mut self) {
        if self.entry.is_some() {
            self.outage.ledger.count_lost();
        }
    }
}
