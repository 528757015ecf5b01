//! Charging the store with what it missed, one key at a time.
//!
//! Not here: asking the store (`Limiter::reconcile`).

use std::sync::atomic::Ordering;

use super::ledger::{Entry, Name, Pass};
use super::{Outage, Share};

/// How many names are looked up at once: few enough to keep no lock for long.
const KEYS_PER_LOCK: usize = 64;

/// What one key owes the store, taken out of the ledger. Dropped before it is settled
/// or put back, it is lost: the store may have been charged with it.
pub(crate) struct Debt<'o> {
    outage: &'o Outage,
    name: &'o Name,
    entry: Option<Entry>,
}

impl Outage {
    /// Begins a walk over those who owe something.
    pub(crate) fn pass(&self) -> Pass {
        self.ledger.pass()
    }

    /// Some of those who owe something and have not been tried in this pass.
    pub(crate) fn due(&self, pass: &mut Pass) -> Vec<Name> {
        if self.ledger.keys() == 0 { Vec::new() } else { self.ledger.next(pass, KEYS_PER_LOCK) }
    }

    /// Takes out what a key owes.
    pub(crate) fn take_debt<'o>(&'o self, name: &'o Name) -> Option<Debt<'o>> {
        let entry = self.ledger.take(name)?;
        Some(Debt { outage: self, name, entry: Some(entry) })
    }
}

impl Debt<'_> {
    /// The rule it was charged under.
    pub(crate) fn share(&self) -> Option<&Share> {
        self.entry.as_ref().map(|entry| &*entry.share)
    }

    /// What of it still counts.
    pub(crate) fn units(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.used(self.outage.now()))
    }

    /// It was charged, or counts no more.
    pub(crate) fn settle(mut self, units: u64) {
        self.entry = None;
        self.outage.counts.replayed.fetch_add(units, Ordering::Relaxed);
    }

    /// It was not charged, or that is taken back. Not to be tried again in this pass.
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
