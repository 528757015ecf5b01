//! Striped counters that avoid contention between threads.
//!
//! Each of the first threads that count owns a stripe: only it writes there, so an increment is a load and a store. All
//! further threads share the last stripe and add atomically, which takes several times as long. A thread that ends
//! passes its stripe on. Stripes do not share cache lines. Readers sum the stripes.
//!
//! Operations on counters are relaxed, because they do not order other memory accesses.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

/// The maximum number of stripes. Every limit takes memory for each stripe.
const MAX_STRIPES: usize = 16;

/// One copy of the counters for each stripe.
pub(crate) struct Striped<T>(Box<[Padded<T>]>);

/// Two cache lines, because processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// The stripe of the current thread, for all counters that a request changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripe {
    /// The same for all counters, because all of them have as many stripes.
    pub(crate) index: usize,
    pub(crate) adder: Adder,
}

/// How the current thread writes to its stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adder {
    /// Whether no other thread writes to the stripe.
    is_owner: bool,
}

impl Adder {
    /// Adds to counters that only this thread writes to.
    pub(crate) const OWNER: Self = Self { is_owner: true };

    /// Adds to counters that other threads write to, too.
    pub(crate) const SHARED: Self = Self { is_owner: false };

    /// Whether no other thread writes to the stripe.
    #[inline]
    pub(crate) const fn is_owner(self) -> bool {
        self.is_owner
    }

    /// Adds to a counter. Counters wrap.
    #[inline]
    pub(crate) fn add(self, counter: &AtomicU64, value: u64) {
        if self.is_owner {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        } else {
            counter.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Takes one back from a counter, which may be that of another stripe: their sum is right.
    pub(crate) fn take_back(self, counter: &AtomicU64) {
        self.add(counter, 1_u64.wrapping_neg());
    }
}

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
    /// Returns the stripe of the current thread, and how to write to it.
    #[inline]
    pub(crate) fn mine(&self) -> (&T, Adder) {
        let stripe = self.current();
        (self.at(stripe), stripe.adder)
    }

    /// Returns the stripe of the current thread. It is the same for all counters.
    #[inline]
    pub(crate) fn current(&self) -> Stripe {
        let (number, shared) = (number(), self.0.len() - 1);
        // The last stripe is shared. There are at least two.
        Stripe { index: number.min(shared), adder: Adder { is_owner: number < shared } }
    }

    /// Returns one stripe.
    #[inline]
    pub(crate) fn at(&self, stripe: Stripe) -> &T {
        &self.0[stripe.index].0
    }

    /// Iterates over all stripes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// Returns the number of stripes: one for each core, and one that is shared.
fn stripes() -> usize {
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (cores + 1).clamp(2, MAX_STRIPES)
    })
}

/// The number of a thread that owns no stripe.
const NO_STRIPE: usize = usize::MAX - 1;

/// The stripes that a thread owns now, as bits.
static OWNED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    static OWNER: Owner = const { Owner(Cell::new(NO_STRIPE)) };
}

/// The stripe that a thread owns. Other threads may own it after the thread has ended.
struct Owner(Cell<usize>);

impl Drop for Owner {
    fn drop(&mut self) {
        // Destructors of the thread that count after this one use the shared stripe.
        STRIPE.set(NO_STRIPE);
        release(self.0.get());
    }
}

/// Passes a stripe on to other threads.
fn release(number: usize) {
    if number < MAX_STRIPES {
        // Release: the next owner reads the counts of this one.
        OWNED.fetch_and(!(1 << number), Ordering::Release);
    }
}

/// Returns the number of the stripe that the current thread owns.
#[inline]
fn number() -> usize {
    match STRIPE.get() {
        usize::MAX => own_stripe(),
        known => known,
    }
}

/// Takes a free stripe for the current thread, if there is one.
#[cold]
fn own_stripe() -> usize {
    let free = |owned: u32| owned.trailing_ones();
    let take = |owned| (free(owned) as usize <= MAX_STRIPES - 2).then(|| owned | 1 << free(owned));
    // Acquire: the counts of the previous owner are read.
    let number = match OWNED.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
        Ok(owned) => free(owned) as usize,
        Err(_) => NO_STRIPE,
    };
    if OWNER.try_with(|owner| owner.0.set(number)).is_err() {
        // The thread is ending, and its destructor has run.
        release(number);
        STRIPE.set(NO_STRIPE);
        return NO_STRIPE;
    }
    STRIPE.set(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_shared_stripe_and_each_stripe_has_lines_of_its_own() {
        let striped = Striped::<AtomicU64>::new();
        assert!((2..=MAX_STRIPES).contains(&striped.0.len()));
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
                        let (counter, adder) = striped.mine();
                        adder.add(counter, 2);
                        adder.take_back(counter);
                    }
                });
            }
        });
        let sum: u64 = striped.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2 * 16 * 1000);
    }

    #[test]
    fn threads_that_follow_each_other_lose_no_count() {
        let striped = Striped::<AtomicU64>::new();
        for _ in 0..10 * MAX_STRIPES {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let (counter, adder) = striped.mine();
                    adder.add(counter, 1);
                });
            });
        }
        let sum: u64 = striped.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 160);
    }
}
