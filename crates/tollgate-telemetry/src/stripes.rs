//! Counters that threads do not fight over: each has a stripe of its own.
//!
//! A stripe is on cache lines that no other stripe is on, so counting is an atomic
//! addition to memory that this core already owns. Whoever reads adds the stripes up.
//! More threads than stripes share some: slower, and still right.
//!
//! All of it is relaxed: a counter says how many, and orders nothing.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The most stripes: each is memory for every limit.
const MAX_STRIPES: usize = 16;

/// The same counters, once for each stripe.
pub(crate) struct Striped<T>(Box<[Padded<T>]>);

/// Two lines: processors fetch a line together with its neighbour.
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl<T: Default> Striped<T> {
    pub(crate) fn new() -> Self {
        Self((0..stripes()).map(|_| Padded::default()).collect())
    }
}

impl<T> Striped<T> {
    /// The stripe of this thread.
    #[inline]
    pub(crate) fn mine(&self) -> &T {
        // There is a power of two of them, so this stays within.
        &self.0[number() & (self.0.len() - 1)].0
    }

    /// Every stripe.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// How many stripes: one for each core, rounded up to a power of two.
fn stripes() -> usize {
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        cores.next_power_of_two().min(MAX_STRIPES)
    })
}

/// The number of this thread, among those that count.
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
