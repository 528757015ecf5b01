//! Sorts the requests of one input by time, in bounded memory.
//!
//! Servers write a line when a request has ended, with the time of its start, and several workers write concurrently,
//! so lines are nearly sorted. Lines in order go into a queue, the others into a heap; the earlier of the two heads
//! is next. Both hold only times and positions: the requests stay packed in their batches.
//!
//! Invariants: requests come out in the order of times, then of lines, if they are at most `most` lines late. At most
//! `most` requests plus one batch, or [`MAX_HELD_BYTES`] plus one batch, are held. Batches with few remaining
//! requests are compacted, so that a few lines from the far future do not keep whole batches in memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::batch::Batch;
use crate::Entry;

/// The most bytes of held requests, for any number of lines.
const MAX_HELD_BYTES: usize = 128 << 20;

/// The least bytes that are worth a compaction.
const MIN_COMPACTION_BYTES: usize = 8 << 20;

/// A held request: its time, then its position, which orders requests of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuedEntry {
    at: u64,
    batch: u64,
    index: u32,
}

#[derive(Debug)]
struct HeldEntries {
    batch: Batch,
    left: usize,
    bytes: usize,
}

/// Requests of one input that are held back for late ones.
#[derive(Debug)]
pub(super) struct Sorter {
    most: usize,
    queue: VecDeque<QueuedEntry>,
    strays: BinaryHeap<Reverse<QueuedEntry>>,
    batches: VecDeque<HeldEntries>,
    /// The number of the first batch.
    first: u64,
    /// Memory of all batches, and of the requests that are still held.
    bytes: usize,
    waiting_bytes: usize,
    /// The time of the last request that was yielded.
    last: u64,
    late: u64,
    /// Empty batches, for reuse by the reading thread.
    done: Vec<Batch>,
}

impl Sorter {
    /// Creates a sorter that holds back this many requests.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            queue: VecDeque::new(),
            strays: BinaryHeap::new(),
            batches: VecDeque::new(),
            first: 0,
            bytes: 0,
            waiting_bytes: 0,
            last: 0,
            late: 0,
            done: Vec::new(),
        }
    }

    /// Whether the next request may be yielded although more input follows.
    pub(super) fn is_full(&self) -> bool {
        self.len() > self.most || self.waiting_bytes > MAX_HELD_BYTES
    }

    /// Returns the number of requests that were too late to be sorted.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of held requests.
    fn len(&self) -> usize {
        self.queue.len() + self.strays.len()
    }

    /// Returns the time of the next request.
    pub(super) fn head(&self) -> Option<u64> {
        self.front().map(|waiting| waiting.at)
    }

    /// Adds a batch of the input.
    pub(super) fn push(&mut self, batch: Batch) {
        let number = self.first + self.batches.len() as u64;
        let mut bytes = 0;
        for (index, place) in (0..batch.len()).zip(0_u32..) {
            let mut at = batch.at(index);
            if at < self.last {
                self.late += 1;
                at = self.last;
            }
            self.wait(QueuedEntry { at, batch: number, index: place });
            bytes += batch.bytes(index);
        }
        self.bytes += bytes;
        self.waiting_bytes += bytes;
        self.batches.push_back(HeldEntries { left: batch.len(), bytes, batch });
        if self.bytes > 2 * self.waiting_bytes + MIN_COMPACTION_BYTES {
            self.pack();
        }
    }

    fn wait(&mut self, waiting: QueuedEntry) {
        if self.queue.back().is_none_or(|last| last.at <= waiting.at) {
            self.queue.push_back(waiting);
        } else {
            self.strays.push(Reverse(waiting));
        }
    }

    fn front(&self) -> Option<QueuedEntry> {
        match (self.queue.front(), self.strays.peek()) {
            (Some(first), Some(Reverse(stray))) => Some(*first.min(stray)),
            (first, stray) => first.or(stray.map(|it| &it.0)).copied(),
        }
    }

    /// Returns an empty batch for reuse, if there is one.
    pub(super) fn done(&mut self) -> Option<Batch> {
        self.done.pop()
    }

    /// Unpacks the next request. Returns `false` if there is none.
    pub(super) fn pop(&mut self, entry: &mut Entry) -> bool {
        let Some(next) = self.front() else { return false };
        if self.queue.front() == Some(&next) {
            self.queue.pop_front();
        } else {
            self.strays.pop();
        }
        self.last = next.at;
        let held = usize::try_from(next.batch - self.first).ok().and_then(|at| self.batches.get_mut(at));
        let Some(held) = held else { return false };
        let index = next.index as usize;
        held.batch.load(index, entry);
        entry.at = next.at;
        self.waiting_bytes -= held.batch.bytes(index);
        held.left -= 1;
        if held.left > 0 {
            return true;
        }
        self.bytes -= held.bytes;
        self.done.push(std::mem::take(&mut held.batch));
        while self.batches.front().is_some_and(|held| held.left == 0) {
            self.batches.pop_front();
            self.first += 1;
        }
        true
    }

    /// Compacts all held requests into new batches, in the order of lines.
    fn pack(&mut self) {
        let mut waiting: Vec<QueuedEntry> =
            self.queue.drain(..).chain(self.strays.drain().map(|it| it.0)).collect();
        waiting.sort_unstable_by_key(|it| (it.batch, it.index));
        let old = std::mem::take(&mut self.batches);
        let old_first = self.first;
        self.first += old.len() as u64;
        self.bytes = 0;
        let mut batch = Batch::default();
        for it in waiting {
            let Some(held) = usize::try_from(it.batch - old_first).ok().and_then(|at| old.get(at)) else {
                continue;
            };
            let place = u32::try_from(batch.len()).unwrap_or(u32::MAX);
            batch.copy(&held.batch, it.index as usize);
            self.wait(QueuedEntry { at: it.at, batch: self.first + self.batches.len() as u64, index: place });
            if batch.is_full() {
                self.hold(std::mem::take(&mut batch));
            }
        }
        if batch.len() > 0 {
            self.hold(batch);
        }
    }

    fn hold(&mut self, batch: Batch) {
        let bytes = (0..batch.len()).map(|index| batch.bytes(index)).sum();
        self.bytes += bytes;
        self.batches.push_back(HeldEntries { left: batch.len(), bytes, batch });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::address::Client;
    use super::super::batch::Facts;
    use super::*;
    use crate::entry::Slot;
    use tollgate::Request as _;

    fn batch(lines: &[(u64, String)]) -> Batch {
        let mut batch = Batch::default();
        for (at, path) in lines {
            batch.put(Slot::Path, path.as_bytes());
            batch.finish(Facts { at: *at, client: Client::Unknown, cost: None, status: None });
        }
        batch
    }

    /// Returns the times and paths in the order of output, and the number of late requests. Panics if more is held
    /// than allowed.
    fn sorted(lines: &[(u64, String)], most: usize, size: usize) -> (Vec<(u64, String)>, u64) {
        let (mut sorter, mut out, mut entry) = (Sorter::new(most), Vec::new(), Entry::default());
        for chunk in lines.chunks(size) {
            sorter.push(batch(chunk));
            assert!(sorter.len() <= most + size);
            assert!(
                sorter.bytes <= 2 * sorter.waiting_bytes + MIN_COMPACTION_BYTES + (1 << 20),
                "{} held",
                sorter.bytes
            );
            while sorter.is_full() && sorter.pop(&mut entry) {
                out.push((entry.at, entry.path().to_owned()));
            }
        }
        while sorter.pop(&mut entry) {
            out.push((entry.at, entry.path().to_owned()));
        }
        assert_eq!((sorter.bytes, sorter.waiting_bytes, sorter.batches.len()), (0, 0, 0));
        (out, sorter.late())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_not_too_late_comes_as_a_stable_sort_has_it(
            delays in proptest::collection::vec(0_u64..40, 0..400),
            size in 1_usize..30,
        ) {
            // A line at place i has a time of at least i - 40: none is more than 40 lines late. Many share a time.
            let lines: Vec<_> = delays
                .iter()
                .zip(100_u64..)
                .map(|(delay, place)| ((place - delay) / 3, format!("/{place}")))
                .collect();
            let mut expected = lines.clone();
            expected.sort_by_key(|(at, _)| *at);
            let (out, late) = sorted(&lines, 43, size);
            prop_assert_eq!(out, expected);
            prop_assert_eq!(late, 0);
        }

        #[test]
        fn whatever_comes_goes_once_and_time_never_goes_back(
            times in proptest::collection::vec(0_u64..1_000, 0..400),
            most in 0_usize..50,
        ) {
            let lines: Vec<_> = times.iter().zip(0..).map(|(at, place)| (*at, format!("/{place}"))).collect();
            let (out, late) = sorted(&lines, most, 7);
            prop_assert!(out.is_sorted_by_key(|(at, _)| *at));
            let moved = out
                .iter()
                .filter(|(at, path)| lines.iter().any(|(was, name)| name == path && was != at))
                .count();
            prop_assert_eq!(moved as u64, late);
            let mut paths: Vec<_> = out.into_iter().map(|(_, path)| path).collect();
            let mut expected: Vec<_> = lines.into_iter().map(|(_, path)| path).collect();
            paths.sort();
            expected.sort();
            prop_assert_eq!(paths, expected);
        }
    }

    #[test]
    fn lines_from_the_far_future_do_not_keep_whole_batches_in_memory() {
        let long = "x".repeat(2_000);
        let lines: Vec<_> = (0..40_000_u64)
            .map(|place| (if place % 500 == 0 { u64::MAX - place } else { place }, format!("/{place}{long}")))
            .collect();
        let (out, late) = sorted(&lines, 1_000, 500);
        assert_eq!(late, 0);
        assert!(out.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(out.len(), 40_000);
    }

    #[test]
    fn a_late_line_counts_at_the_time_of_the_last_yielded_one() {
        let lines: Vec<_> = [10, 20, 30, 40, 5].into_iter().map(|at| (at, format!("/{at}"))).collect();
        let (out, late) = sorted(&lines, 2, 1);
        assert_eq!(late, 1);
        let out: Vec<_> = out.iter().map(|(at, path)| (*at, path.as_str())).collect();
        assert_eq!(out, [(10, "/10"), (20, "/20"), (20, "/5"), (30, "/30"), (40, "/40")]);
    }
}
