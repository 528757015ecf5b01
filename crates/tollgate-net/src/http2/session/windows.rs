//! Flow control: the bytes that the client may send, and those that it reads.

use super::{ConnectionError, FRAME_SIZE_ERROR, GrpcSurface, PROTOCOL_ERROR, Received, Session};
use crate::http2::frame::{self, FrameHead, MAX_WINDOW, Reason};
use crate::http2::stream::Incoming;

/// The initial windows of HTTP/2.
pub(super) const INITIAL_WINDOW: i64 = 65_535;
/// The window of a connection for the bodies of all requests.
pub(super) const CONNECTION_WINDOW: i64 = 1 << 20;
/// The bytes of a stream or a connection after which its window is opened again.
pub(super) const STREAM_UPDATE_BYTES: i64 = INITIAL_WINDOW / 2;
const CONNECTION_UPDATE_BYTES: i64 = CONNECTION_WINDOW / 4;

impl<G: GrpcSurface> Session<G> {
    /// Reports bytes as used, so that the client may send more on this connection.
    pub(super) fn release(&mut self, bytes: i64, out: &mut Vec<u8>) {
        self.unreported += bytes;
        if self.unreported >= CONNECTION_UPDATE_BYTES {
            frame::write_window_update(out, 0, increment(self.unreported));
            self.recv_window += self.unreported;
            self.unreported = 0;
        }
    }

    /// Reports bytes as used, so that the client may send more on a stream.
    pub(super) fn release_stream(&mut self, at: usize, bytes: i64, out: &mut Vec<u8>) {
        let stream = &mut self.streams[at];
        if bytes > 0 && !matches!(stream.incoming, Incoming::Ended) {
            stream.recv_window += bytes;
            frame::write_window_update(out, stream.id, increment(bytes));
        }
    }

    pub(super) fn set_initial_window(&mut self, window: i64, out: &mut Vec<u8>) -> Received<()> {
        if window > MAX_WINDOW {
            return Err(ConnectionError(Reason::FlowControlError));
        }
        let change = window - self.initial_send_window;
        self.initial_send_window = window;
        for stream in &mut self.streams {
            stream.send_window += change;
            if stream.send_window > MAX_WINDOW {
                return Err(ConnectionError(Reason::FlowControlError));
            }
        }
        if change > 0 {
            self.send_blocked(out);
        }
        Ok(())
    }

    pub(super) fn window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Received<()> {
        let Ok(payload) = <[u8; 4]>::try_from(payload) else { return Err(FRAME_SIZE_ERROR) };
        let increment = i64::from(u32::from_be_bytes(payload) & 0x7fff_ffff);
        self.budget.spend()?;
        if head.stream == 0 {
            if increment == 0 {
                return Err(PROTOCOL_ERROR);
            }
            self.send_window += increment;
            if self.send_window > MAX_WINDOW {
                return Err(ConnectionError(Reason::FlowControlError));
            }
            self.send_blocked(out);
            return Ok(());
        }
        if self.is_idle(head.stream) {
            return Err(PROTOCOL_ERROR);
        }
        let Some(at) = self.find(head.stream) else { return Ok(()) };
        if increment == 0 {
            return self.reset(at, Reason::ProtocolError, out);
        }
        self.streams[at].send_window += increment;
        if self.streams[at].send_window > MAX_WINDOW {
            return self.reset(at, Reason::FlowControlError, out);
        }
        if self.streams[at].outgoing.blocked_since.is_some() {
            self.send(at, out);
        }
        Ok(())
    }

    /// Continues all responses that wait for a window.
    fn send_blocked(&mut self, out: &mut Vec<u8>) {
        // From the end: a stream that ends is replaced by the last one.
        for at in (0..self.streams.len()).rev() {
            if self.send_window <= 0 {
                return;
            }
            if self.streams.get(at).is_some_and(|it| it.outgoing.blocked_since.is_some()) {
                self.send(at, out);
            }
        }
    }
}

pub(super) fn increment(bytes: i64) -> u32 {
    u32::try_from(bytes.min(MAX_WINDOW)).unwrap_or(0)
}
