//! A response whose client is gone, while the slots of its request are held (`crate::detached`).
//!
//! The upstream is judged as if the client were there: one that closes the connection or does not start its response in
//! time has failed, and is ejected after some failures. Clients that leave would otherwise hide an upstream that hangs.
//!
//! If the request is incomplete, the gateway closes its side of the connection: an upstream that waits for the rest of a
//! body would hold the slots until their `ttl`, and a client that sends half a body and leaves costs itself nothing.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;
use tollgate_net::http1::{Buffer, OutputBuffer, ResponseHead};

use super::download::{Download, Nominated};
use super::metering::{Recipient, ResponseMeter};
use super::pool::{RawConnection, RawPool};
use crate::detached::{HeldSlots, MAX_DRAINED_BYTES};
use crate::upstream::{Load, Upstreams};

/// The rest of a response that is read in place of its client.
pub(super) struct AbandonedResponse {
    pub(super) connection: RawConnection,
    pub(super) upstreams: Arc<Upstreams>,
    /// The index of the upstream, and its load, which is counted until the last byte.
    pub(super) upstream: usize,
    pub(super) load: Load,
    pub(super) input: Buffer,
    pub(super) download: Download,
    pub(super) is_head: bool,
    /// Reads the response, if the cost of the request may be in it.
    pub(super) meter: Option<Box<ResponseMeter>>,
    /// Whether the connection to the upstream can be used again: the request was sent completely, and the head of the
    /// response does not end the connection.
    pub(super) is_reusable: bool,
    /// Whether a part of the request is missing, and the upstream is to be told so.
    pub(super) is_cut: bool,
    /// The time until which the upstream has to start its response. `None`: its success or failure was recorded.
    pub(super) head_due: Option<Instant>,
}

impl AbandonedResponse {
    /// Reads the response to its end, and releases the slots then. A response that is too long is cut: the connection is
    /// closed, and the slots are kept until their `ttl`.
    pub(super) async fn discard(mut self, mut slots: HeldSlots, pool: Arc<RawPool>) {
        let (mut bytes_left, mut out) = (MAX_DRAINED_BYTES, OutputBuffer::take());
        if let Some(due) = self.head_due {
            self.connection.timer.as_mut().reset(due);
        }
        while self.download.min_bytes_left() <= bytes_left {
            let Ok(count @ 1..) = poll_fn(|cx| self.poll_read(cx)).await else {
                // An upstream may close an idle connection, and a request that was sent then is not its failure.
                if !self.connection.is_reused {
                    self.record_failure("the connection was closed");
                }
                return slots.release();
            };
            let recipient = Recipient {
                meters: &mut slots,
                meter: self.meter.as_deref_mut(),
                write_head: |_: &mut Vec<u8>, _: &ResponseHead<'_, '_>, _: &Nominated, _: &HeldSlots| {},
            };
            let taken = self.download.take(&mut self.input, self.is_head, &mut out, recipient);
            out.clear();
            match taken {
                Ok(Some(head)) => {
                    self.is_reusable &= head.is_reusable;
                    if self.head_due.take().is_some() {
                        self.upstreams.succeeded(self.upstream);
                    }
                    if let Ok(status) = StatusCode::from_u16(head.status) {
                        slots.observe_status(status);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    self.record_failure(&error.to_string());
                    return slots.release();
                }
            }
            if matches!(self.download, Download::Done) {
                return self.finish(slots, &pool);
            }
            let Some(left) = bytes_left.checked_sub(count as u64) else { return };
            bytes_left = left;
        }
    }

    /// Reads from the upstream, records that its response is late, and closes the side of the gateway if it has to.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_cut {
            self.is_cut = Pin::new(&mut self.connection.stream).poll_shutdown(cx).is_pending();
        }
        let read = self.input.poll_fill(Pin::new(&mut self.connection.stream), u64::MAX, cx);
        if read.is_pending() && self.head_due.is_some() && self.connection.timer.as_mut().poll(cx).is_ready()
        {
            self.record_failure("no response in time");
        }
        read
    }

    /// Records that the upstream has failed, unless its response has started.
    fn record_failure(&mut self, why: &str) {
        if self.head_due.take().is_some() {
            self.upstreams.failed(self.upstream, why);
        }
    }

    fn finish(self, slots: HeldSlots, pool: &RawPool) {
        if self.is_reusable && self.input.is_empty() {
            pool.put(self.upstream, self.connection, Instant::now());
        }
        drop(self.load);
        slots.release();
    }
}
