//! DATA frames: the messages of unary calls are collected, other bodies are passed on to the service.

use std::sync::Arc;

use bytes::Bytes;

use super::windows::{INITIAL_WINDOW, STREAM_UPDATE_BYTES};
use super::{
    ConnectionError, FrameContext, GrpcSurface, PROTOCOL_ERROR, Received, Session, signed, unpadded,
};
use crate::http2::UnaryReply;
use crate::http2::body::BodyEnd;
use crate::http2::frame::{self, FrameHead, Reason};
use crate::http2::stream::{Incoming, Stream};

/// The maximum number of bytes of incomplete messages of unary calls on one connection: two of the largest messages of
/// gRPC, or 16 KiB for each of 128 calls. Messages usually arrive in one frame and are never incomplete.
pub(super) const MAX_COLLECTED_BYTES: usize = 2 << 20;
/// The maximum number of bytes that are read and dropped after an early answer.
pub(super) const MAX_DISCARDED_BYTES: usize = 64 * 1024;

impl<G: GrpcSurface> Session<G> {
    pub(super) fn data(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        FrameContext { cx, out, .. }: &mut FrameContext<'_, '_>,
    ) -> Received<()> {
        if self.is_idle(head.stream) {
            return Err(PROTOCOL_ERROR);
        }
        let data = unpadded(head, payload)?;
        // Padding counts too.
        let size = signed(payload.len());
        self.recv_window -= size;
        if self.recv_window < 0 {
            return Err(ConnectionError(Reason::FlowControlError));
        }
        let ends = head.has(frame::END_STREAM);
        if data.is_empty() && !ends {
            self.budget.spend()?;
        }
        let Some(at) = self.find(head.stream) else {
            self.check_closed(head.stream)?;
            self.release(size, out);
            return self.budget.spend_refused();
        };
        let stream = &mut self.streams[at];
        if ends && matches!(stream.incoming, Incoming::Discarded(_)) {
            // Both sides are closed now. An error of this request could not be reported any more.
            self.release(size, out);
            self.remove(at, out);
            return Ok(());
        }
        stream.recv_window -= size;
        let mut reason = (stream.recv_window < 0).then_some(Reason::FlowControlError);
        if matches!(stream.incoming, Incoming::Ended) {
            reason = Some(Reason::StreamClosed);
        }
        if reason.is_none()
            && let Some(left) = &mut stream.length_left
        {
            match left.checked_sub(data.len() as u64) {
                Some(rest) if rest == 0 || !ends => *left = rest,
                _ => reason = Some(Reason::ProtocolError),
            }
        }
        if let Some(reason) = reason {
            self.release(size, out);
            return self.reset(at, reason, out);
        }
        match &mut stream.incoming {
            Incoming::Unary { method, timeout, message } => {
                if ends {
                    let (method, timeout) = (*method, *timeout);
                    let message = if message.is_empty() {
                        Bytes::copy_from_slice(data)
                    } else {
                        message.extend_from_slice(data);
                        std::mem::take(message).into()
                    };
                    stream.incoming = Incoming::Ended;
                    self.release(size, out);
                    let surface = Arc::clone(&self.surface);
                    self.call(at, surface.call(method, message, timeout), cx, out);
                } else {
                    message.extend_from_slice(data);
                    self.release(size, out);
                    self.check_partial(at, out);
                }
            }
            Incoming::Streaming(channel) => {
                let kept = if channel.push(data) { signed(data.len()) } else { 0 };
                if ends {
                    channel.end(BodyEnd::Complete);
                    stream.incoming = Incoming::Ended;
                }
                self.release_stream(at, size - kept, out);
                self.release(size - kept, out);
            }
            Incoming::Discarded(left) => {
                let rest = left.checked_sub(data.len());
                *left = rest.unwrap_or(0);
                self.release(size, out);
                if rest.is_none() {
                    return self.reset(at, Reason::NoError, out);
                }
                self.release_stream(at, size, out);
            }
            Incoming::Ended => {}
        }
        Ok(())
    }

    /// Checks the size of a message that has not arrived completely, and lets the client continue.
    fn check_partial(&mut self, at: usize, out: &mut Vec<u8>) {
        let Incoming::Unary { message, .. } = &self.streams[at].incoming else { return };
        let collected: usize = self.streams.iter().map(Stream::collected_bytes).sum();
        let checked = if collected > MAX_COLLECTED_BYTES {
            Err(self.surface.full_refusal())
        } else {
            self.surface.check_partial(message)
        };
        match checked {
            Ok(()) => {
                let used = INITIAL_WINDOW - self.streams[at].recv_window;
                if used >= STREAM_UPDATE_BYTES {
                    self.release_stream(at, used, out);
                }
            }
            Err(refusal) => self.reply(at, UnaryReply::Refusal(refusal), out),
        }
    }
}
