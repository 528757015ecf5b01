//! Closed streams: frames that may still arrive for them, and frames that violate the protocol.
//!
//! A client that has not seen a reset of the server yet continues to send, which is not an error. A client that sends on
//! a stream that it has closed itself, or has skipped, is in error (RFC 9113, sections 5.1 and 5.1.1). Only ranges are
//! kept, because the number of closed streams is not bounded; a stream between two resets counts as reset.

use super::{ConnectionError, GrpcSurface, PROTOCOL_ERROR, Received, Session};
use crate::http2::frame::{self, Reason};

/// The streams that the client did not close.
#[derive(Debug, Default)]
pub(super) struct ClosedStreams {
    /// Streams that the server has reset.
    reset: StreamRange,
    /// Streams below the highest one that the client has never opened.
    skipped: StreamRange,
}

/// A range of streams; empty if the last one is zero.
#[derive(Debug, Default)]
struct StreamRange {
    first: u32,
    last: u32,
}

impl StreamRange {
    fn add(&mut self, first: u32, last: u32) {
        self.first = if self.last == 0 { first } else { self.first.min(first) };
        self.last = self.last.max(last);
    }

    const fn contains(&self, stream: u32) -> bool {
        self.first <= stream && stream <= self.last
    }
}

impl<G: GrpcSurface> Session<G> {
    /// Records that the client has opened a stream above all others.
    pub(super) fn open_highest(&mut self, id: u32) {
        if id > self.highest + 2 {
            self.closed.skipped.add(self.highest + 1, id - 1);
        }
        self.highest = id;
    }

    /// Writes a reset. Frames that the client has sent before it knows of it are ignored.
    pub(super) fn write_reset(&mut self, id: u32, reason: Reason, out: &mut Vec<u8>) {
        self.closed.reset.add(id, id);
        frame::write_reset(out, id, reason);
    }

    /// Checks that a frame of a closed stream can have been sent before the client knew that it is closed.
    pub(super) const fn check_closed(&self, id: u32) -> Received<()> {
        if self.closed.reset.contains(id) || id > self.accepted {
            Ok(())
        } else if self.closed.skipped.contains(id) {
            Err(PROTOCOL_ERROR)
        } else {
            Err(ConnectionError(Reason::StreamClosed))
        }
    }
}
