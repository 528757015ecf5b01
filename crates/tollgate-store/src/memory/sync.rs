//! The synchronization primitives of the tables, real or model-checked.
//!
//! Under `--cfg loom` the same code runs on loom's atomics, which try every interleaving and every
//! reordering that the memory model allows.

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

/// Locks, and continues with the data if a holder panicked: states are plain numbers, written as a
/// whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Yields to the thread that this one waits for.
#[inline]
pub(super) fn pause() {
    wait(8);
}

/// Waits after another thread has won a cache line.
///
/// Moving a line between cores takes longer than a decision, so the thread that has the line should make several decisions
/// before it loses it again. On AMD EPYC this waits for some hundred nanoseconds; with a quarter of it, two threads with one
/// key take up to 1.7 times as long.
#[inline]
pub(super) fn back_off() {
    wait(32);
}

#[inline]
fn wait(rounds: u32) {
    #[cfg(not(loom))]
    (0..rounds).for_each(|_| std::hint::spin_loop());
    #[cfg(loom)]
    {
        let _ = rounds;
        loom::thread::yield_now();
    }
}
