//! The units that threads have spent and not yet added to the table of spenders.
//!
//! A lock takes longer than the rest of an update of the table, and a busy allowance is mostly spent from by one caller
//! at a time. So each thread sums the units of a few pairs of an allowance and a caller in places of its own, without a
//! lock. A pair gets a place when it is seen twice in a row, so traffic of many keys does not pay for moving places.
//!
//! A place belongs to one thread, which alone writes `units` and `last`. `key_hash`, `caller` and `added` are written
//! under the lock of the allowance's set in the table, so any thread that holds this lock can add what is pending:
//! readers, settlements, and updates that would otherwise replace a caller whose units are pending.
//!
//! A place is valid for at most [`MAX_AGE`] and not beyond the period of its allowance. After that the next update
//! adds what is pending, so entries of the table are at most that much older than their last use.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Span, Timestamp};

use crate::stripes::{Adder, Stripe, Striped};

/// The number of places of a thread. If two allowances of each request share a place, one of them takes the lock each time:
/// among three, this has a probability of 5 %.
const PLACES: usize = 64;
/// The longest time for which units are pending while their caller spends.
const MAX_AGE: Span = Span::from_secs(1);

/// The pending units of all threads.
pub(crate) struct PendingSpends(Striped<Places>);

/// The places of one thread, by the hash of the allowance.
struct Places([Place; PLACES]);

impl Default for Places {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Place::default()))
    }
}

impl Places {
    /// Returns the place for an allowance.
    #[inline(always)]
    fn of(&self, key_hash: u64) -> &Place {
        &self.0[index(key_hash)]
    }
}

/// The pending units of one caller of one allowance.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Place {
    /// The hash of the allowance. Zero marks a free place.
    key_hash: AtomicU64,
    /// The hash of the caller.
    caller: AtomicU64,
    /// All units that were spent here, of all allowances. Wraps.
    units: AtomicU64,
    /// The part of `units` that is in the table.
    added: AtomicU64,
    /// The time of the last request, in microseconds.
    last: AtomicU64,
    /// The start and the length of the time in which the place is valid, in microseconds.
    start: AtomicU64,
    length: AtomicU64,
    /// The pair that found no place last: hash of the allowance xor hash of the caller.
    candidate: AtomicU64,
}

/// What is pending in a place.
pub(crate) struct PendingSpend {
    pub(crate) caller: u64,
    pub(crate) units: u64,
    pub(crate) last: Timestamp,
}

/// The places of the current thread.
#[derive(Clone, Copy)]
pub(crate) struct OwnPlaces<'p> {
    places: &'p Places,
    /// The number of the thread's stripe.
    pub(crate) stripe: usize,
}

/// Returns the index of the place for an allowance.
fn index(key_hash: u64) -> usize {
    // Bits that do not select the lock or the set of the table.
    usize::try_from((key_hash >> 16) % PLACES as u64).unwrap_or(0)
}

impl PendingSpends {
    pub(crate) fn new() -> Self {
        Self(Striped::new())
    }

    /// Returns the places of the current thread; `None` if it owns none.
    #[cfg(test)]
    pub(crate) fn own(&self) -> Option<OwnPlaces<'_>> {
        self.at(self.0.current())
    }

    /// Returns the places of the thread of a stripe; `None` if it owns none.
    #[inline]
    pub(crate) fn at(&self, stripe: Stripe) -> Option<OwnPlaces<'_>> {
        let Stripe { index, adder } = stripe;
        adder.is_owner().then(|| OwnPlaces { places: self.0.at(stripe), stripe: index })
    }

    /// Takes what is pending for an allowance at the stripes in `stripes`, one bit for each, and passes it to `add`. The
    /// caller holds the lock of the allowance.
    pub(crate) fn take(&self, key_hash: u64, stripes: u16, mut add: impl FnMut(PendingSpend)) {
        for (number, places) in self.0.iter().enumerate() {
            let place = places.of(key_hash);
            if stripes >> number & 1 == 0 || place.key_hash.load(Ordering::Relaxed) != key_hash {
                continue;
            }
            let units = place.units.load(Ordering::Relaxed);
            let added = place.added.load(Ordering::Relaxed);
            place.added.store(units, Ordering::Relaxed);
            add(PendingSpend {
                caller: place.caller.load(Ordering::Relaxed),
                units: units.wrapping_sub(added),
                last: Timestamp::from_micros(place.last.load(Ordering::Relaxed)),
            });
        }
    }

    /// Frees the places of an allowance. The caller holds its lock, and has taken what is pending.
    pub(crate) fn free(&self, key_hash: u64, stripes: u16) {
        for (number, places) in self.0.iter().enumerate() {
            let place = places.of(key_hash);
            if stripes >> number & 1 == 1 && place.key_hash.load(Ordering::Relaxed) == key_hash {
                place.key_hash.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl OwnPlaces<'_> {
    /// Adds units to the place of this pair, if it has a valid one.
    #[inline]
    pub(crate) fn try_add(&self, key_hash: u64, caller: u64, units: u64, at: Timestamp) -> bool {
        let place = self.places.of(key_hash);
        // A clock that stepped back is outside, too.
        let since = at.as_micros().wrapping_sub(place.start.load(Ordering::Relaxed));
        if place.key_hash.load(Ordering::Relaxed) != key_hash
            || place.caller.load(Ordering::Relaxed) != caller
            || since >= place.length.load(Ordering::Relaxed)
        {
            return false;
        }
        Adder::OWNER.add(&place.units, units);
        place.last.store(at.as_micros(), Ordering::Relaxed);
        place.candidate.store(0, Ordering::Relaxed);
        true
    }

    /// Returns whether the pair, which has no valid place, is to get one: if it also was the previous one without.
    pub(crate) fn is_candidate(&self, key_hash: u64, caller: u64) -> bool {
        let candidate = &self.places.of(key_hash).candidate;
        let pair = (key_hash ^ caller).max(1);
        if candidate.load(Ordering::Relaxed) == pair {
            return true;
        }
        candidate.store(pair, Ordering::Relaxed);
        false
    }

    /// Returns the allowance that has the place of this one, if it is another.
    pub(crate) fn occupant(&self, key_hash: u64) -> Option<u64> {
        let occupant = self.places.of(key_hash).key_hash.load(Ordering::Relaxed);
        (occupant != 0 && occupant != key_hash).then_some(occupant)
    }

    /// Gives the pair its place, which is free or of the same allowance. The caller holds the lock of the allowance, and
    /// has taken what is pending. `left` is the time until the end of the period.
    pub(crate) fn occupy(&self, key_hash: u64, caller: u64, at: Timestamp, left: Span) {
        let place = self.places.of(key_hash);
        place.caller.store(caller, Ordering::Relaxed);
        place.added.store(place.units.load(Ordering::Relaxed), Ordering::Relaxed);
        place.last.store(at.as_micros(), Ordering::Relaxed);
        place.start.store(at.as_micros(), Ordering::Relaxed);
        place.length.store(left.min(MAX_AGE).as_micros(), Ordering::Relaxed);
        place.candidate.store(0, Ordering::Relaxed);
        place.key_hash.store(key_hash, Ordering::Relaxed);
    }
}
