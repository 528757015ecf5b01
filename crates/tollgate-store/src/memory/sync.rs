//! The synchronisation the tables are built from, real or model-checked.
//!
//! Under `--cfg loom` the same code runs on loom's atomics, which try every
//! interleaving and every reordering the memory model allows.

#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// Locks, and goes on with the data if a holder panicked: states are plain
/// numbers, written whole, and never half made.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Lets another thread get on with what this one waits for.
#[inline]
pub(super) fn pause() {
    #[cfg(not(loom))]
    (0..8).for_each(|_| std::hint::spin_loop());
    #[cfg(loom)]
    loom::thread::yield_now();
}
