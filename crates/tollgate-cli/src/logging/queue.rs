//! Lines that wait to be written: in order, each whole or not at all, and only so many.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most bytes that wait. As many again may be with whoever writes them.
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something has come, or all is written.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    dropped: u64,
}

impl Queue {
    /// Takes a line if there is room, and counts it if not. Never waits.
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

    /// Waits for lines; they take the place of what is in `lines`.
    pub(super) fn take(&self, lines: &mut Vec<u8>) {
        lines.clear();
        let state = self.changed.wait_while(self.lock(), |state| state.waiting.is_empty());
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.waiting, lines);
        state.is_writing = true;
    }

    /// What was taken is written.
    pub(super) fn written(&self) {
        self.lock().is_writing = false;
        self.changed.notify_all();
    }

    /// Waits until nothing waits. Whether that is so.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Lines for which there was no room.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Bytes and numbers: whoever panicked over them has left some.
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
        assert!(!queue.settle(Duration::ZERO), "they are not written yet");
        queue.written();
        assert!(queue.settle(Duration::ZERO));
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_does_not_fit_is_counted() {
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
