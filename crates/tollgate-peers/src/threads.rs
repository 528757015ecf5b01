//! The number of a thread, which chooses its connections: threads do not wait for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of connections to each node. Further threads share them.
pub(crate) const LINKS: usize = 8;

/// Returns the number of the connection of this thread.
pub(crate) fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINKS));
    NUMBER.get()
}
