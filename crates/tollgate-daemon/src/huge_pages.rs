//! Transparent huge pages, which a service does without.
//!
//! The allocator reserves a gigabyte and asks for huge pages in it, and many systems use huge pages without such a request.
//! Each first touch of two megabytes then takes two megabytes of memory: an idle service had 32 MiB on the heap, of
//! which it used 9. The table of keys is sparse on purpose, so its memory would grow in such steps, too.

/// Whether the process may use transparent huge pages for memory that it touches from now on.
pub fn use_huge_pages(may_use: bool) {
    // A kernel without them has nothing to change.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(!may_use);
    #[cfg(not(target_os = "linux"))]
    let _ = may_use;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::thread::transparent_huge_pages_are_disabled;

    use super::*;

    #[test]
    fn huge_pages_are_off_until_they_are_used_again() {
        use_huge_pages(false);
        assert!(transparent_huge_pages_are_disabled().unwrap());
        use_huge_pages(true);
        assert!(!transparent_huge_pages_are_disabled().unwrap());
    }
}
