//! The table of places: set-associative and of a fixed size.
//!
//! A key has four candidate places. A new key takes a free one, or the one that was idle for the
//! longest time. A place with live lots is never taken, so that a flood of keys cannot make a node
//! forget its leases; a key without a place is decided by the store.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::quality::FixedState;
use tollgate_core::{Rule, RuleId, Timestamp};

use crate::leased::Counts;
use crate::lot::Tick;
use crate::place::Place;
use crate::sync::Ordering;

/// The number of candidate places of a key.
const WAYS: usize = 4;

/// The number of places.
const PLACES: usize = 16_384;

/// The places of the keys that this node asks for.
pub(crate) struct Table {
    places: Box<[Place]>,
    hasher: FixedState,
    /// The indices of the places that hold lots or may soon.
    listed: Mutex<Vec<u32>>,
    /// Held while a place is assigned, so that a key does not get two places.
    assigning: Mutex<()>,
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            places: (0..PLACES).map(|_| Place::new()).collect(),
            hasher: FixedState::with_seed(seed),
            listed: Mutex::default(),
            assigning: Mutex::default(),
        }
    }

    /// Returns the tag of a key, which is not zero.
    #[inline]
    pub(crate) fn tag(&self, rule: RuleId, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(rule.0);
        hasher.write(key);
        hasher.finish() | 1
    }

    #[inline]
    fn ways(tag: u64) -> std::ops::Range<usize> {
        // The upper bits: the lowest one is always set.
        let set = usize::try_from(tag >> 32).unwrap_or(0) % (PLACES / WAYS);
        WAYS * set..WAYS * (set + 1)
    }

    /// Returns the place of a key, if it has one.
    #[inline]
    pub(crate) fn find(&self, tag: u64) -> Option<&Place> {
        self.places[Self::ways(tag)].iter().find(|it| it.tag.load(Ordering::Acquire) == tag)
    }

    pub(crate) fn at(&self, index: u32) -> &Place {
        &self.places[index as usize % PLACES]
    }

    fn index(&self, place: &Place) -> u32 {
        let at = self.places.iter().position(|it| std::ptr::eq(it, place)).unwrap_or(0);
        u32::try_from(at).unwrap_or(0)
    }

    /// Returns the place of a key, or assigns one if a candidate is idle.
    pub(crate) fn claim(
        &self,
        (rule, key): (&Rule, &[u8]),
        now: (Timestamp, Tick),
        counts: &Counts,
    ) -> Option<&Place> {
        let tag = self.tag(rule.id, key);
        if let Some(place) = self.find(tag) {
            return Some(place);
        }
        let _assigning = self.assigning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = self.find(tag) {
            return Some(place);
        }
        let ways = self.places[Self::ways(tag)].iter();
        let idle = ways.filter_map(|place| place.idle_since(now.1).map(|since| (place, since)));
        let (place, _) = idle.min_by_key(|(_, since)| *since)?;
        place.assign(tag, (rule, key), now.0, counts);
        Some(place)
    }

    /// Returns the index of a place.
    pub(crate) fn position(&self, place: &Place) -> u32 {
        let tag = place.tag.load(Ordering::Acquire);
        let at = Self::ways(tag).find(|&at| std::ptr::eq(&raw const self.places[at], place));
        at.and_then(|at| u32::try_from(at).ok()).unwrap_or_else(|| self.index(place))
    }

    /// Adds a place to those that `tend` visits.
    pub(crate) fn list(&self, place: &Place) {
        let at = self.position(place);
        self.listed().push(at);
    }

    /// Adds a place to those that `tend` visits, unless it is one of them.
    pub(crate) fn ensure_listed(&self, place: &Place) {
        let is_listed = match &mut *place.state() {
            Some(state) => std::mem::replace(&mut state.is_listed, true),
            None => true,
        };
        if !is_listed {
            self.list(place);
        }
    }

    /// Returns all places.
    pub(crate) fn all(&self) -> &[Place] {
        &self.places
    }

    pub(crate) fn listed(&self) -> MutexGuard<'_, Vec<u32>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
