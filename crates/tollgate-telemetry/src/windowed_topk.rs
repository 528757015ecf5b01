//! The most frequent elements of the last five minutes, from one sketch for each pane of 15 seconds.
//!
//! A query sums all panes. A key without an entry in a pane weighs at most the smallest count of that
//! pane, so this count is added to both its count and its error. The bounds of a sketch thus hold for
//! the sum, and the error is at most the sum of `N/m` over the panes, which is `N/m` of the whole.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::Timestamp;

use crate::sketch::{Entry, Sketch};
use crate::window::{PANE_SECONDS, PANES};

/// The length of a pane in microseconds.
const WINDOW_MICROS: u64 = PANE_SECONDS * 1_000_000;

/// The most frequent elements of the last five minutes.
pub(crate) struct WindowedTopK<P>([Mutex<TopKWindow<P>>; PANES]);

struct TopKWindow<P> {
    /// The number of the pane in time, counted from 1970.
    number: u64,
    sketch: Sketch<P>,
}

/// The bound by which entries are ranked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// The upper bound: no frequent key is missed.
    Most,
    /// The lower bound: no key is listed only because of its error.
    Least,
}

/// The sum of all panes.
pub(crate) struct Sum<P> {
    /// The most frequent entries, the most frequent first.
    pub(crate) entries: Vec<Entry<P>>,
    /// The weight of the stream.
    pub(crate) total: u64,
    /// The most by which a count may be too high, and the maximum weight of a key that is not listed.
    pub(crate) error: u64,
}

impl<P: Clone> WindowedTopK<P> {
    /// Creates sketches with `most` entries in each pane.
    pub(crate) fn new(most: usize) -> Self {
        Self(std::array::from_fn(|_| Mutex::new(TopKWindow { number: 0, sketch: Sketch::new(most) })))
    }

    fn lock(window: &Mutex<TopKWindow<P>>) -> MutexGuard<'_, TopKWindow<P>> {
        // After a panic, at worst one count is wrong.
        window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts in the pane of the given time.
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
            // A clock that is slightly behind would clear newer counts.
            if window.number > number && window.number - number < PANES as u64 * 2 {
                return;
            }
            window.number = number;
            window.sketch.clear();
        }
        window.sketch.add(key_hash, weight, marked, name);
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|window| Self::lock(window).sketch.clear());
    }

    /// Returns the most frequent entries in the window that ends now, at most `most`.
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
                // In a pane without an entry, the key may have been just below the smallest count.
                let unknown = unseen - seen;
                Entry { count: entry.count + unknown, error: entry.error + unknown, ..entry }
            })
            .collect();
        // Ties are ordered by the other bound.
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
