//! Counts the bytes that a subject allocates.
//!
//! Sizes are the requested ones, without the rounding of the allocator, which favors subjects with an allocation per
//! key.
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// A counting wrapper of the system allocator. Programs that call [`held_by`] install it.
pub struct Counting;

/// Off during timing: then an allocation costs one additional load.
static COUNTS: AtomicBool = AtomicBool::new(false);
static HELD: AtomicIsize = AtomicIsize::new(0);

fn note(bytes: usize, sign: isize) {
    if COUNTS.load(Ordering::Relaxed) {
        HELD.fetch_add(sign * bytes.cast_signed(), Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: `at` came from one of the above, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs a function, and returns the bytes that are held after it and not before; zero unless [`Counting`] is the
/// global allocator.
pub fn held_by<T>(make: impl FnOnce() -> T) -> (T, usize) {
    HELD.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let made = make();
    COUNTS.store(false, Ordering::Relaxed);
    (made, usize::try_from(HELD.load(Ordering::Relaxed)).unwrap_or(0))
}
