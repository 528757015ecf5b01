//! The timeouts of streams, and keep-alive.

use std::time::Duration;

use super::shutdown::Shutdown;
use super::{GrpcSurface, Session};
use crate::caps::Caps;
use crate::http2::UnaryReply;
use crate::http2::frame::{self, Reason};
use crate::http2::stream::Incoming;

/// The payload of the ping of keep-alive.
const KEEP_ALIVE_PING: [u8; 8] = *b"tollkeep";

impl<G: GrpcSurface> Session<G> {
    /// Checks the times of all streams. `Err`: a client does not read a response.
    pub(in crate::http2) fn check_times(&mut self, caps: &Caps, out: &mut Vec<u8>) -> Result<(), ()> {
        let now = self.now;
        let is_over = |since: u64, max: Duration| now.saturating_sub(since) >= millis(max);
        if is_over(self.budget.refilled_at(), caps.head) {
            self.budget.refill_at(now);
        }
        if self.streams.is_empty() {
            // An idle connection stays small.
            self.streams = Vec::new();
        }
        if let Shutdown::Announced(since) = self.shutdown
            && is_over(since, caps.head)
        {
            self.end_shutdown(out);
        }
        for at in (0..self.streams.len()).rev() {
            let stream = &self.streams[at];
            if stream.outgoing.blocked_since.is_some_and(|since| is_over(since, caps.stalled)) {
                return Err(());
            }
            match stream.incoming {
                Incoming::Unary { .. } if is_over(stream.since, self.surface.max_time()) => {
                    let refusal = self.surface.late_refusal();
                    self.reply(at, UnaryReply::Refusal(refusal), out);
                }
                Incoming::Discarded(_) if is_over(stream.since, caps.head) => {
                    self.write_reset(stream.id, Reason::NoError, out);
                    self.remove(at, out);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the time until the next check of the streams.
    pub(in crate::http2) fn next_check(&self, caps: &Caps) -> Duration {
        let left = |since: u64, max: Duration| {
            max.saturating_sub(Duration::from_millis(self.now.saturating_sub(since)))
        };
        let mut next = caps.head.min(self.surface.max_time());
        for stream in &self.streams {
            if let Some(since) = stream.outgoing.blocked_since {
                next = next.min(left(since, caps.stalled));
            }
            match stream.incoming {
                Incoming::Unary { .. } => next = next.min(left(stream.since, self.surface.max_time())),
                Incoming::Discarded(_) => next = next.min(left(stream.since, caps.head)),
                _ => {}
            }
        }
        next
    }

    /// Sends a ping, to detect a client that has vanished.
    pub(in crate::http2) fn write_keep_alive(out: &mut Vec<u8>) {
        frame::write_ping(out, 0, KEEP_ALIVE_PING);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
