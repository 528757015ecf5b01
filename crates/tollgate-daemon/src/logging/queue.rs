//! A bounded queue of log lines. Lines stay in order, and each is written completely or not at all.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum number of queued bytes. The writer may hold as many again.
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// A bounded queue of log lines.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified when a line is added, or when all lines are written.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    dropped: u64,
}

impl Queue {
    /// Adds a line if there is room, or counts it as dropped. Never blocks.
    pub(super) fn add(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > MAX_QUEUED_BYTES {
            state.dropped += 1;
            return;
        }
        state.waiting.extend_from_slice(line);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for lines, and replaces the contents of `lines` with them.
    pub(super) fn take(&self, lines: &mut Vec<u8>) {
        lines.clear();
        let state = self.changed.wait_while(self.lock(), |state| state.waiting.is_empty());
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.waiting, lines);
        state.is_writing = true;
    }

    /// Marks the taken lines as written.
    pub(super) fn written(&self) {
        self.lock().is_writing = false;
        self.changed.notify_all();
    }

    /// Waits until the queue is empty; returns whether it is.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Returns the number of dropped lines.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// The state is plain data, so a poisoned lock is usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_in_order_and_all_at_once() {
        let (queue, mut lines) = (Queue::default(), b"old".to_vec());
        queue.add(b"a\n");
        queue.add(b"b\n");
        queue.take(&mut lines);
        assert_eq!(lines, b"a\nb\n");
        assert!(!queue.settle(Duration::ZERO), "the lines are not written yet");
        queue.written();
        assert!(queue.settle(Duration::ZERO));
    }

    #[test]
    fn adding_never_blocks_and_dropped_lines_are_counted() {
        let (queue, line) = (Queue::default(), [b'x'; 1024]);
        for _ in 0..MAX_QUEUED_BYTES / 1024 + 3 {
            queue.add(&line);
        }
        assert_eq!(queue.dropped(), 3);
        let mut lines = Vec::new();
        queue.take(&mut lines);
        assert_eq!(lines.len(), MAX_QUEUED_BYTES);
        queue.add(&line);
        assert_eq!(queue.dropped(), 3, "there is room again");
    }
}
