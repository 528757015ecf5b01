//! The client of a request that is forwarded: the rest of its body, its presence, and its response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::buffer::{Buffer, OutputBuffer};
use super::chunked::{ChunkError, ChunkedDecoder, LAST_CHUNK, write_chunk};
use super::request_head::RequestBody;
use crate::conn_timer::{ConnTimer, RequestGuard};
use crate::wire::Wire;

/// The client of one request.
pub struct Http1Client<'c> {
    pub(super) wire: &'c mut Wire,
    pub(super) conn_timer: &'c ConnTimer,
    /// Bytes that were read and not used: the start of the body, or of the next request.
    pub(super) input: &'c mut Option<Buffer>,
    pub(super) body: BodyRest,
    /// Whether the client asked for the end of the connection.
    pub(super) is_last: bool,
    /// The request in progress.
    pub(super) running: RequestGuard,
}

/// The part of the body of a request that was not taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyRest {
    /// This number of bytes.
    Length(u64),
    /// The rest of a chunked body. `taken` is the number of bytes of data so far.
    Chunked { decoder: ChunkedDecoder, taken: u64 },
}

impl BodyRest {
    pub(super) const fn of(body: RequestBody) -> Self {
        match body {
            RequestBody::Length(length) => Self::Length(length),
            RequestBody::Chunked => Self::Chunked { decoder: ChunkedDecoder::new(), taken: 0 },
        }
    }
}

/// A piece of the body of a request.
#[derive(Debug)]
pub enum ClientBody {
    /// These bytes are unread in the buffer.
    Bytes(Buffer),
    /// Data of a chunked body, in new chunks, with the end of the body if it is complete.
    Chunks(OutputBuffer),
    /// The chunked body has more data than permitted.
    TooLarge,
    /// The chunked body is malformed.
    Malformed(ChunkError),
    /// The client left before the end of the body.
    Left,
}

impl Http1Client<'_> {
    /// Whether a part of the body was not taken yet.
    pub fn has_body_left(&self) -> bool {
        match &self.body {
            BodyRest::Length(left) => *left > 0,
            BodyRest::Chunked { decoder, .. } => !decoder.is_done(),
        }
    }

    /// Whether the connection ends after this response: the client asked for it, or the server drains.
    pub fn is_last(&self) -> bool {
        self.is_last || self.running.is_last()
    }

    /// Takes a part of the body. `max_data` bounds the data of a chunked body. Must not be called without a rest of
    /// the body.
    pub fn poll_body(&mut self, max_data: Option<u64>, cx: &mut Context<'_>) -> Poll<ClientBody> {
        let BodyRest::Length(left) = self.body else { return self.poll_chunks(max_data, cx) };
        if let Some(input) = self.input.take() {
            return Poll::Ready(ClientBody::Bytes(self.split(input, left)));
        }
        let mut buffer = Buffer::take();
        match buffer.poll_fill(Pin::new(&mut *self.wire), left, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(count @ 1..)) => {
                self.body = BodyRest::Length(left - count as u64);
                Poll::Ready(ClientBody::Bytes(buffer))
            }
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(ClientBody::Left),
        }
    }

    /// Takes the body from bytes that were read with the head, and leaves the rest for the next request.
    fn split(&mut self, mut input: Buffer, left: u64) -> Buffer {
        let unread = input.unread().len();
        let of_body = usize::try_from(left).unwrap_or(usize::MAX).min(unread);
        self.body = BodyRest::Length(left - of_body as u64);
        if of_body < unread {
            let mut next = Buffer::take();
            next.put(&input.unread()[of_body..]);
            *self.input = Some(next);
            input.truncate(of_body);
        }
        input
    }

    /// Takes a part of a chunked body. Bytes after its end stay for the next request.
    fn poll_chunks(&mut self, max_data: Option<u64>, cx: &mut Context<'_>) -> Poll<ClientBody> {
        let BodyRest::Chunked { decoder, taken } = &mut self.body else {
            return Poll::Ready(ClientBody::Left);
        };
        let mut out = OutputBuffer::take();
        loop {
            let mut input = if let Some(input) = self.input.take() {
                input
            } else {
                let mut buffer = Buffer::take();
                match ready!(buffer.poll_fill(Pin::new(&mut *self.wire), u64::MAX, cx)) {
                    Ok(1..) => buffer,
                    Ok(0) | Err(_) => return Poll::Ready(ClientBody::Left),
                }
            };
            while !input.is_empty() && !decoder.is_done() {
                let (used, data) = match decoder.decode(input.unread()) {
                    Ok(decoded) => decoded,
                    Err(error) => return Poll::Ready(ClientBody::Malformed(error)),
                };
                *taken = taken.saturating_add(data.len() as u64);
                if max_data.is_some_and(|max_data| *taken > max_data) {
                    return Poll::Ready(ClientBody::TooLarge);
                }
                write_chunk(&mut out, data);
                input.consume(used);
            }
            if !input.is_empty() {
                *self.input = Some(input);
            }
            if decoder.is_done() {
                out.extend_from_slice(LAST_CHUNK);
            }
            // A size without data is no reason to write.
            if !out.is_empty() {
                return Poll::Ready(ClientBody::Chunks(out));
            }
        }
    }

    /// Skips the body of a request that is answered by the server itself, if all of it has arrived. `false`: the
    /// start of the next request is unknown, so the connection has to end after the response.
    pub fn skip_body(&mut self) -> bool {
        let Some(mut input) = self.input.take() else { return !self.has_body_left() };
        let is_skipped = match &mut self.body {
            BodyRest::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.unread().len());
                input.consume(count);
                *left -= count as u64;
                *left == 0
            }
            BodyRest::Chunked { decoder, .. } => {
                let mut is_valid = true;
                while is_valid && !input.is_empty() && !decoder.is_done() {
                    match decoder.decode(input.unread()) {
                        Ok((used, _)) => input.consume(used),
                        Err(_) => is_valid = false,
                    }
                }
                is_valid && decoder.is_done()
            }
        };
        if !input.is_empty() {
            *self.input = Some(input);
        }
        is_skipped
    }

    /// Resolves when the client has left. A client that has sent its next request already is not watched, nor one that
    /// still sends its body.
    pub fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_body_left() || self.input.is_some() {
            return Poll::Pending;
        }
        let mut buffer = Buffer::take();
        match buffer.poll_fill(Pin::new(&mut *self.wire), u64::MAX, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(1..)) => {
                *self.input = Some(buffer);
                Poll::Pending
            }
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(()),
        }
    }

    /// Writes a part of the response.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.wire).poll_write(cx, bytes)
    }

    /// Writes what a TLS session holds back.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.wire).poll_flush(cx)
    }

    /// Writes bytes completely. `written` is the number of bytes that were written so far.
    pub fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *written < bytes.len() {
            match ready!(self.poll_write(cx, &bytes[*written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *written += count,
            }
        }
        self.poll_flush(cx)
    }

    /// Records that the response was aborted, so that the client cannot take it for complete.
    pub fn abort(&self) {
        self.conn_timer.cut();
    }
}

impl std::fmt::Debug for Http1Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Client").field("body", &self.body).finish_non_exhaustive()
    }
}
