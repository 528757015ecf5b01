//! The events of a run, in the order of their times.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::callers::CallInfo;

/// An event.
pub(super) enum Event {
    /// A new call.
    Call(CallInfo),
    /// A further attempt of a call.
    Retry(CallInfo),
    /// The end of the work on an attempt.
    Done(usize),
    /// The end of the patience of a caller. The second number is the generation of the attempt.
    Timeout(usize, u32),
}

/// The events to come. Events of the same time are in the order in which they were added.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

struct Entry {
    at: u64,
    number: u64,
    event: Event,
}

impl Events {
    /// Adds an event at a time in microseconds since the start.
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.added += 1;
        self.heap.push(Reverse(Entry { at, number: self.added, event }));
    }

    /// Returns the time of the next event.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|it| it.0.at)
    }

    /// Removes and returns the next event.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|it| it.0.event)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
