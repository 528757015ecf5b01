//! An allocator that counts, for the tests in this crate: each thread its own.
#![allow(unsafe_code, reason = "a global allocator that counts must implement an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// How often this thread has allocated.
    pub(crate) static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// How many bytes it has, if nobody else gave back what it took.
    pub(crate) static LIVE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
