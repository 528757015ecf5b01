//! The bytes of a connection that were read and not answered.
//!
//! Bytes are read into a buffer of the thread, which the connection returns when it has answered all commands in it. The
//! start of a command whose rest has not arrived is moved to memory of its own, so that an idle connection owns no buffer,
//! and a slow client about as much memory as it has sent bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tollgate_net::http1::Buffer;

/// The unanswered bytes of a connection. One of the two is empty.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// The last read.
    shared: Option<Buffer>,
    /// An incomplete command, and the bytes that were read after it.
    own: BytesMut,
}

impl Input {
    /// Reads at most `most` bytes. Zero: the client has closed the connection. Must not be called before
    /// [`settle`](Self::settle).
    pub(crate) fn poll_fill(
        &mut self,
        source: Pin<&mut impl AsyncRead>,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.own.is_empty() {
            let mut buffer = Buffer::take();
            let count = ready!(buffer.poll_fill(source, most as u64, cx))?;
            self.shared = (count > 0).then_some(buffer);
            return Poll::Ready(Ok(count));
        }
        let start = self.own.len();
        // Grows with the bytes that arrive, not with their announced length.
        self.own.resize(start + most.min(start.max(MIN_READ_BYTES)), 0);
        let mut space = ReadBuf::new(&mut self.own[start..]);
        let read = source.poll_read(cx, &mut space).map_ok(|()| space.filled().len());
        self.own.truncate(start + if let Poll::Ready(Ok(count)) = read { count } else { 0 });
        read
    }

    /// Returns the bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.shared {
            Some(buffer) => buffer.unread(),
            None => &self.own,
        }
    }

    /// Marks the first bytes as answered.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        match &mut self.shared {
            Some(buffer) => buffer.consume(count),
            None => self.own.advance(count),
        }
    }

    /// Returns the buffer of the thread, and memory that is not used.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(buffer) = self.shared.take() {
            if !buffer.is_empty() {
                self.own = BytesMut::from(buffer.unread());
            }
        } else if self.own.is_empty() && self.own.capacity() > 0 {
            self.own = BytesMut::new();
        }
    }
}

/// The minimum number of bytes for which there is room in a read after an incomplete command.
const MIN_READ_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn fill(input: &mut Input, mut source: &[u8], most: usize) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        match input.poll_fill(Pin::new(&mut source), most, &mut cx) {
            Poll::Ready(Ok(count)) => count,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_idle_connection_owns_no_memory() {
        let mut input = Input::default();
        assert_eq!(fill(&mut input, b"abc", 1024), 3);
        assert_eq!(input.bytes(), b"abc");
        input.consume(3);
        input.settle();
        assert!(input.shared.is_none() && input.own.capacity() == 0);
        // The start of a command is kept, and not much more.
        assert_eq!(fill(&mut input, b"abcdef", 1024), 6);
        input.consume(2);
        input.settle();
        assert!(input.shared.is_none() && input.own.capacity() < 64);
        assert_eq!(input.bytes(), b"cdef");
        assert_eq!(fill(&mut input, b"ghi", 2), 2);
        assert_eq!(input.bytes(), b"cdefgh");
        input.consume(6);
        input.settle();
        assert_eq!(input.own.capacity(), 0);
    }

    #[test]
    fn memory_grows_with_the_bytes_that_arrive() {
        let mut input = Input::default();
        let (source, mut length) = (vec![b'a'; 1 << 20], 0);
        while length < 128 * 1024 {
            let count = fill(&mut input, &source, 16 * 1024);
            assert!(count > 0 && count <= 16 * 1024);
            length += count;
            input.settle();
            assert_eq!(input.bytes().len(), length);
            assert!(input.own.capacity() <= 2 * length.max(2 * MIN_READ_BYTES), "{length}");
        }
        let mut cx = Context::from_waker(Waker::noop());
        let (_writer, reader) = tokio::io::duplex(16);
        let mut reader = reader;
        assert!(input.poll_fill(Pin::new(&mut reader), 1024, &mut cx).is_pending());
        assert_eq!(input.bytes().len(), length, "no bytes are added while none arrive");
    }
}
