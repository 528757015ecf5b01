//! Buffers that belong to a thread.
//!
//! A connection takes a buffer when bytes arrive, and returns it when the last byte has been used. An idle connection
//! therefore owns no buffer. Each thread keeps some unused buffers; the others are freed.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The size of an input buffer, which is also the maximum size of a head.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// The maximum size of a buffer that grows for the head of a response.
pub(crate) const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// The maximum number of unused buffers of each kind that a thread keeps.
const MAX_UNUSED: usize = 32;

/// The maximum capacity of an output buffer that is kept.
const MAX_KEPT_CAPACITY: usize = 64 * 1024;

thread_local! {
    static INPUTS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An input buffer: bytes that were read and not used yet.
#[derive(Debug)]
pub struct Buffer {
    /// Empty only while the buffer is dropped.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Takes an empty buffer of this thread.
    pub fn take() -> Self {
        let unused = INPUTS.with_borrow_mut(Vec::pop);
        Self { bytes: unused.unwrap_or_else(|| vec![0; BUFFER_BYTES].into()), start: 0, end: 0 }
    }

    /// Returns the unused bytes.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether there are no unused bytes.
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing more can be read before bytes are consumed.
    pub fn is_full(&self) -> bool {
        self.end - self.start == self.bytes.len()
    }

    /// Marks the first bytes as used.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Removes all bytes but the first ones.
    pub(super) fn truncate(&mut self, count: usize) {
        self.end = self.end.min(self.start + count);
    }

    /// Appends bytes, as many as fit.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + count].copy_from_slice(&bytes[..count]);
        self.end += count;
    }

    /// Makes a full buffer larger. Returns whether there is room now.
    pub fn grow(&mut self) -> bool {
        if !self.is_full() {
            return true;
        }
        if self.bytes.len() >= MAX_BUFFER_BYTES {
            return false;
        }
        let mut larger = vec![0; self.bytes.len() * 2].into_boxed_slice();
        larger[..self.bytes.len()].copy_from_slice(&self.bytes);
        self.bytes = larger;
        true
    }

    /// Reads at most `most` bytes after the unused ones. Zero: the other end has closed.
    pub fn poll_fill(
        &mut self,
        source: Pin<&mut impl AsyncRead>,
        most: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = (self.bytes.len() - self.end).min(usize::try_from(most).unwrap_or(usize::MAX));
        let mut space = ReadBuf::new(&mut self.bytes[self.end..self.end + room]);
        ready!(source.poll_read(cx, &mut space))?;
        let count = space.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.len() == BUFFER_BYTES {
            keep(&INPUTS, bytes);
        }
    }
}

/// An output buffer: bytes that are to be written.
#[derive(Debug, Default)]
pub struct OutputBuffer(Vec<u8>);

impl OutputBuffer {
    /// Takes an empty buffer of this thread.
    pub fn take() -> Self {
        Self(OUTPUTS.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Deref for OutputBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for OutputBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if (1..=MAX_KEPT_CAPACITY).contains(&bytes.capacity()) {
            bytes.clear();
            keep(&OUTPUTS, bytes);
        }
    }
}

/// Keeps an unused buffer, unless the thread has enough of them or ends.
fn keep<T>(unused: &'static std::thread::LocalKey<RefCell<Vec<T>>>, buffer: T) {
    let _ending = unused.try_with(|unused| {
        let mut unused = unused.borrow_mut();
        if unused.len() < MAX_UNUSED {
            unused.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut Buffer, mut source: &[u8], most: u64) -> usize {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match buffer.poll_fill(Pin::new(&mut source), most, &mut cx) {
            Poll::Ready(Ok(count)) => count,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unused_bytes_stay_in_order_when_the_buffer_wraps() {
        let mut buffer = Buffer::take();
        assert_eq!(fill(&mut buffer, &vec![b'a'; BUFFER_BYTES + 1], u64::MAX), BUFFER_BYTES);
        assert!(buffer.is_full());
        buffer.consume(BUFFER_BYTES - 2);
        assert_eq!(fill(&mut buffer, b"bcd", 2), 2);
        assert_eq!(buffer.unread(), b"aabc");
        buffer.consume(100);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_buffer_is_used_again_by_its_thread() {
        let buffer = Buffer::take();
        let place = buffer.bytes.as_ptr();
        drop(buffer);
        assert_eq!(Buffer::take().bytes.as_ptr(), place);
    }
}
