//! Transparent huge pages: a small service does without them, a large one uses them.
//!
//! The allocator reserves a gigabyte and asks for huge pages in it, and many systems use huge pages without such a request.
//! Each first touch of two megabytes then takes two megabytes of memory: an idle service had 32 MiB on the heap, of
//! which it used 9. With many keys it is the other way round: each decision reads a few places at random in tens of
//! megabytes, and finding them through small pages cost a command of the Redis protocol 80 to 130 ns.
//!
//! So they are off at the start. Once the service has grown, they are on for new memory, and what is already in use is
//! moved into huge pages where at least half of one is used.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The memory from which on huge pages pay. With a million keys, a service has 57 MiB.
const LARGE_BYTES: u64 = 40 << 20;
/// The interval between two looks at the memory in use. A look takes some microseconds; moving memory early, while
/// there is little, takes the least time.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Whether the process may use transparent huge pages for memory that it touches from now on.
pub fn use_huge_pages(may_use: bool) {
    // A kernel without them has nothing to change.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(!may_use);
    #[cfg(not(target_os = "linux"))]
    let _ = may_use;
}

/// Uses huge pages as soon as the process is large, and for what it grows by, until the future is dropped.
pub(crate) async fn adopt_as_it_grows() {
    let mut next = LARGE_BYTES;
    loop {
        sleep(LOOK_INTERVAL).await;
        let Some(resident) = memory::resident_bytes() else { return };
        if resident < next {
            continue;
        }
        use_huge_pages(true);
        // On a thread of its own: gigabytes take seconds, and this one obeys signals.
        let _moved = spawn_blocking(memory::collapse).await;
        let after = memory::resident_bytes().unwrap_or(resident);
        next = after + after / 4;
        tracing::debug!(resident, after, "memory in use was moved into huge pages");
    }
}

#[cfg(target_os = "linux")]
mod memory {
    use std::fs::{self, File};
    use std::io;
    use std::ops::Range;
    use std::os::unix::fs::FileExt;

    /// The bytes of a huge page.
    const HUGE: u64 = 2 << 20;
    /// The bytes of an entry of `/proc/self/pagemap`.
    const ENTRY: u64 = 8;
    /// The bit of an entry whose page is in memory.
    const PRESENT: u64 = 1 << 63;

    /// `MADV_COLLAPSE`, since Linux 6.1, which the bindings have for some C libraries only.
    const COLLAPSE: libc::c_int = 25;

    /// Returns the memory in use, if the system tells.
    pub(super) fn resident_bytes() -> Option<u64> {
        let pages = fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = pages.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(pages * page_bytes())
    }

    /// Moves memory into huge pages, each of which is at least half in use.
    pub(super) fn collapse() {
        // Without these files, what was touched before stays in small pages.
        let (Ok(maps), Ok(pagemap)) =
            (fs::read_to_string("/proc/self/maps"), File::open("/proc/self/pagemap"))
        else {
            return;
        };
        let huge_pages = maps.lines().filter_map(anonymous).flat_map(huge_pages_in);
        for begin in huge_pages {
            let present = present_pages(&pagemap, begin).unwrap_or(0);
            if present * page_bytes() * 2 >= HUGE && !move_into_huge_page(begin) {
                return;
            }
        }
    }

    fn page_bytes() -> u64 {
        rustix::param::page_size() as u64
    }

    /// Returns the addresses of a line of `/proc/self/maps`, if it is writable memory without a file.
    pub(super) fn anonymous(line: &str) -> Option<Range<u64>> {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let is_writable = words.next()?.starts_with("rw");
        let [_offset, _device, inode] = [words.next()?, words.next()?, words.next()?];
        // The stacks have names, such as `[stack]`.
        let has_name = words.next().is_some();
        let address = |digits| u64::from_str_radix(digits, 16).ok();
        (is_writable && inode == "0" && !has_name).then_some(address(begin)?..address(end)?)
    }

    /// Returns the beginnings of the huge pages that lie in a mapping as a whole.
    pub(super) fn huge_pages_in(mapping: Range<u64>) -> impl Iterator<Item = u64> {
        let first = mapping.start.div_ceil(HUGE);
        (first..mapping.end / HUGE).map(|number| number * HUGE)
    }

    /// Returns how many small pages of a huge one are in memory.
    fn present_pages(pagemap: &File, begin: u64) -> io::Result<u64> {
        let mut entries = vec![0; usize::try_from(HUGE / page_bytes() * ENTRY).unwrap_or(0)];
        pagemap.read_exact_at(&mut entries, begin / page_bytes() * ENTRY)?;
        let entries = entries.chunks_exact(8).filter_map(|it| it.try_into().ok().map(u64::from_ne_bytes));
        Ok(entries.map(|entry| u64::from(entry & PRESENT != 0)).sum())
    }

    /// Moves a range into a huge page. Returns false if no more can be had.
    #[allow(unsafe_code, reason = "no safe library has this advice")]
    fn move_into_huge_page(begin: u64) -> bool {
        let (Ok(address), Ok(length)) = (usize::try_from(begin), usize::try_from(HUGE)) else { return false };
        let address = std::ptr::without_provenance_mut(address);
        // SAFETY: the advice changes where the kernel keeps the bytes of a range, never the bytes. A range that was
        // unmapped since it was read is an error.
        let result = unsafe { libc::madvise(address, length, COLLAPSE) };
        let error = io::Error::last_os_error().raw_os_error();
        // Other errors are about this range, or about a kernel that cannot do it.
        result == 0 || !matches!(error, Some(libc::ENOMEM | libc::EBUSY))
    }
}

#[cfg(not(target_os = "linux"))]
mod memory {
    pub(super) const fn resident_bytes() -> Option<u64> {
        None
    }

    pub(super) const fn collapse() {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::thread::transparent_huge_pages_are_disabled;

    use super::memory::{anonymous, huge_pages_in};
    use super::*;

    #[test]
    fn huge_pages_are_off_until_they_are_used_again() {
        use_huge_pages(false);
        assert!(transparent_huge_pages_are_disabled().unwrap());
        use_huge_pages(true);
        assert!(!transparent_huge_pages_are_disabled().unwrap());
    }

    #[test]
    fn only_writable_memory_without_a_file_is_moved() {
        let heap = "7f0000100000-7f0000900000 rw-p 00000000 00:00 0 ";
        assert_eq!(anonymous(heap), Some(0x7f00_0010_0000..0x7f00_0090_0000));
        for other in [
            "7f0000100000-7f0000900000 r--p 00000000 00:00 0 ",
            "7f0000100000-7f0000900000 rw-p 00000000 fe:00 1234  /usr/bin/tollgate",
            "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0  [stack]",
            "",
            "nonsense",
        ] {
            assert_eq!(anonymous(other), None, "{other}");
        }
    }

    #[test]
    fn only_whole_huge_pages_are_moved() {
        let pages: Vec<_> = huge_pages_in(0x10_0000..0x90_0000).collect();
        assert_eq!(pages, [0x20_0000, 0x40_0000, 0x60_0000]);
        assert_eq!(huge_pages_in(0x10_0000..0x30_0000).count(), 0);
    }

    #[test]
    fn memory_in_use_can_be_moved_at_any_time() {
        let held = vec![7_u8; 16 << 20];
        memory::collapse();
        assert!(held.iter().all(|&byte| byte == 7));
        assert!(memory::resident_bytes().unwrap() >= 16 << 20);
    }
}
