//! Striped counters that avoid contention between threads.
//!
//! Stripes do not share cache lines, so an increment is an atomic addition to memory that the current
//! core already owns. Readers sum the stripes. If there are more threads than stripes, some threads
//! share a stripe: slower, and still correct.
//!
//! All operations are relaxed, because the counters do not order other memory accesses.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The maximum number of stripes. Every limit takes memory for each stripe.
const MAX_STRIPES: usize = 16;

/// One copy of the counters for each stripe.
pub(crate) struct Striped<T>(Box<[Padded<T>]>);

/// Two cache lines, because processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl<T: Default> Striped<T> {
    pub(crate) fn new() -> Self {
        Self((0..stripes()).map(|_| Padded::default()).collect())
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Striped<T> {
    /// Returns the stripe of the current thread.
    #[inline]
    pub(crate) fn mine(&self) -> &T {
        // The number of stripes is a power of two, so the index is in range.
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// Iterates over all stripes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// Returns the number of stripes: one for each core, rounded up to a power of two.
fn stripes() -> usize {
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        cores.next_power_of_two().min(MAX_STRIPES)
    })
}

/// Returns the number of the current thread among the threads that count.
#[inline]
fn number() -> usize {
    const UNASSIGNED: usize = usize::MAX;
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(UNASSIGNED) };
    }
    static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);
    let known = STRIPE.get();
    if known != UNASSIGNED {
        return known;
    }
    let new = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % MAX_STRIPES;
    STRIPE.set(new);
    new
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn there_is_a_power_of_two_of_stripes_and_each_has_lines_of_its_own() {
        let striped = Striped::<AtomicU64>::new();
        assert!(striped.0.len().is_power_of_two() && striped.0.len() <= MAX_STRIPES);
        let places: Vec<_> = striped.iter().map(|it| std::ptr::from_ref(it).addr()).collect();
        assert!(places.iter().all(|place| place % 128 == 0), "{places:?}");
    }

    #[test]
    fn more_threads_than_stripes_lose_no_count() {
        let striped = Striped::<AtomicU64>::new();
        thread::scope(|scope| {
            for _ in 0..2 * MAX_STRIPES {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        striped.mine().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let sum: u64 = striped.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2 * 16 * 1000);
    }
}
