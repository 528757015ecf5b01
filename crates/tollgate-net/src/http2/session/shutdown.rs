//! The graceful shutdown: announced first, then final when the client has confirmed it.

use super::{ConnectionError, GrpcSurface, Session};
use crate::http2::frame::{self, Reason};
use crate::http2::stream::Incoming;

/// The payload of the ping that follows the announcement of a shutdown.
pub(super) const SHUTDOWN_PING: [u8; 8] = *b"tollgate";

/// The stage of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    No,
    /// Announced; requests on the way are accepted until the client has confirmed it.
    Announced(u64),
    /// Later requests are ignored.
    Final,
}

impl<G: GrpcSurface> Session<G> {
    /// Announces that the connection is closed after the requests in progress.
    pub(in crate::http2) fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced(self.now);
            // The client may have sent requests that have not arrived; its reply to the ping follows them.
            frame::write_go_away(out, u32::MAX >> 1, Reason::NoError);
            frame::write_ping(out, 0, SHUTDOWN_PING);
        }
    }

    pub(super) fn end_shutdown(&mut self, out: &mut Vec<u8>) {
        self.shutdown = Shutdown::Final;
        frame::write_go_away(out, self.accepted, Reason::NoError);
    }

    /// Removes the requests that have not arrived completely, because the client sends no more. The others are answered.
    pub(in crate::http2) fn end_input(&mut self, out: &mut Vec<u8>) {
        (self.is_client_done, self.partial) = (true, None);
        for at in (0..self.streams.len()).rev() {
            if !matches!(self.streams[at].incoming, Incoming::Ended) {
                self.remove(at, out);
            }
        }
        // The socket of a client that has closed it refuses this frame, and so tells the difference.
        if self.has_streams() && self.shutdown != Shutdown::Final {
            self.end_shutdown(out);
        }
    }

    /// Writes the reason why the connection ends.
    pub(in crate::http2) fn write_error(&self, error: ConnectionError, out: &mut Vec<u8>) {
        frame::write_go_away(out, self.accepted, error.0);
    }
}
