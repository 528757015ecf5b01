//! The most frequent of the last five minutes: a sketch for each quarter of a minute.
//!
//! Who reads gets the sum of all panes. A key that has no entry in a pane weighs at most
//! that pane's smallest count there, so that is added, and to its error as well: what is
//! told of a sum is as true as what is told of each part, and the error is at most the
//! sum of the panes' `N/m`, which is `N/m` of the whole.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::Timestamp;

use crate::sketch::{Entry, Sketch};
use crate::window::{PANE_SECONDS, PANES};

/// The length of a pane in microseconds.
const WINDOW_MICROS: u64 = PANE_SECONDS * 1_000_000;

/// The most frequent of the last minutes.
pub(crate) struct WindowedTopK<P>([Mutex<TopKWindow<P>>; PANES]);

struct TopKWindow<P> {
    /// Which stretch of time it is of, counted from 1970.
    number: u64,
    sketch: Sketch<P>,
}

/// What the heaviest are found by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// What they weigh at most: none of the heaviest is missed.
    Most,
    /// What they weigh at least: none is told of that a crowd of others lifted up.
    Least,
}

/// What all panes come to.
pub(crate) struct Sum<P> {
    /// The heaviest, the heaviest first.
    pub(crate) entries: Vec<Entry<P>>,
    /// The weight of all.
    pub(crate) total: u64,
    /// By how much any count may be too high, and what a key that is not told of may
    /// weigh at most.
    pub(crate) error: u64,
}

impl<P: Clone> WindowedTopK<P> {
    /// So many entries in each pane.
    pub(crate) fn new(most: usize) -> Self {
        Self(std::array::from_fn(|_| Mutex::new(TopKWindow { number: 0, sketch: Sketch::new(most) })))
    }

    fn lock(window: &Mutex<TopKWindow<P>>) -> MutexGuard<'_, TopKWindow<P>> {
        // A panic in between leaves a count wrong at worst.
        window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts in the pane of this time.
    pub(crate) fn add(
        &self,
        key_hash: u64,
        weight: u64,
        marked: bool,
        at: Timestamp,
        name: impl FnOnce() -> P,
    ) {
        let number = at.as_micros() / WINDOW_MICROS;
        let place = usize::try_from(number % PANES as u64).unwrap_or(0);
        let Some(window) = self.0.get(place) else { return };
        let mut window = Self::lock(window);
        if window.number != number {
            // A clock that is behind by less than the window would clear what is newer.
            if window.number > number && window.number - number < PANES as u64 * 2 {
                return;
            }
            window.number = number;
            window.sketch.clear();
        }
        window.sketch.add(key_hash, weight, marked, name);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|window| Self::lock(window).sketch.clear());
    }

    /// The heaviest of the window that ends now, at most so many.
    pub(crate) fn heaviest(&self, now: Timestamp, most: usize, by: By) -> Sum<P> {
        let newest = now.as_micros() / WINDOW_MICROS;
        let mut found: HashMap<u64, (Entry<P>, u64)> = HashMap::new();
        let (mut total, mut unseen) = (0, 0);
        for window in &self.0 {
            let (entries, smallest) = {
                let window = Self::lock(window);
                if window.number > newest || newest - window.number >= PANES as u64 {
                    continue;
                }
                total += window.sketch.total();
                (window.sketch.entries().to_vec(), window.sketch.smallest())
            };
            unseen += smallest;
            for entry in entries {
                let (sum, seen) = found
                    .entry(entry.key_hash)
                    .or_insert_with(|| (Entry { count: 0, error: 0, marked: 0, ..entry.clone() }, 0));
                sum.count += entry.count;
                sum.error += entry.error;
                sum.marked += entry.marked;
                sum.payload = entry.payload;
                *seen += smallest;
            }
        }
        let mut entries: Vec<_> = found
            .into_values()
            .map(|(entry, seen)| {
                // Where it has no entry it may have been just below the smallest.
                let unknown = unseen - seen;
                Entry { count: entry.count + unknown, error: entry.error + unknown, ..entry }
            })
            .collect();
        // By the other where they are the same in one.
        entries.sort_unstable_by_key(|it| {
            let least = it.count - it.error;
            let (first, second) = match by {
                By::Most => (it.count, least),
                By::Least => (least, it.count),
            };
            std::cmp::Reverse((first, second, it.key_hash))
        });
        entries.truncate(most);
        Sum { entries, total, error: unseen }
    }
}
