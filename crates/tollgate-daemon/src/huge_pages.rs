//! Turns transparent huge pages off.
//!
//! The allocator reserves a gigabyte and asks for huge pages in it, and many systems use them without being asked.
//! Each first touch of two megabytes then takes two megabytes of memory: an idle service had 32 MiB on the heap, of
//! which it used 9. The table of keys is sparse on purpose, so its memory would grow in such steps, too.

/// Turns transparent huge pages off for the process.
pub fn turn_off() {
    #[cfg(target_os = "linux")]
    // A kernel without them has nothing to turn off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_off_afterwards() {
        turn_off();
        assert!(rustix::thread::transparent_huge_pages_are_disabled().unwrap());
    }
}
