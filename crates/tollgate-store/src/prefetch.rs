//! Asks the processor to load memory that is used soon.

/// The bytes that a processor loads at once.
const LINE_BYTES: usize = 64;

/// Starts to load a value of a few cache lines into the nearest cache, while other work goes on.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T: ?Sized>(value: &T) {
    // Miri and loom do not know prefetches.
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    {
        let size = size_of_val(value);
        // The last byte, too: the value may begin within a line.
        for at in (0..size).step_by(LINE_BYTES).chain(size.checked_sub(1)) {
            // SAFETY: a prefetch is a hint that cannot fault, and the address is within a live reference.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast::<i8>().add(at));
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    let _ = (value, LINE_BYTES);
}
