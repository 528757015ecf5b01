//! A counting allocator, for tests of code that must not allocate, or only so many bytes.
//!
//! ```
//! use tollgate_testkit::{CountingAllocator, allocations, retained_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! assert_eq!(allocations(|| drop(Box::new(1))), 1);
//! assert_eq!(allocations(|| ()), 0);
//! assert_eq!(retained_bytes(|| Box::new([0_u8; 100])).1, 100);
//! ```

#![allow(unsafe_code, reason = "an allocator must implement an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system allocator, which counts the allocations of each thread.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The bytes that this thread has allocated and not freed. Wraps if it frees those of others.
    static LIVE_BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE_BYTES.set(LIVE_BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the number of allocations that `work` makes on this thread, in a program whose allocator
/// is [`CountingAllocator`].
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Returns the result of `work`, and the bytes that `work` allocated on this thread and did not free,
/// in a program whose allocator is [`CountingAllocator`].
pub fn retained_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_BYTES.get();
    let result = work();
    (result, LIVE_BYTES.get().wrapping_sub(before))
}
