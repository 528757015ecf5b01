//! A response whose client is gone, while the slots of its request are held (`crate::detached`).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;
use tollgate_net::http1::{Buffer, OutputBuffer};

use super::download::Download;
use super::pool::{RawConnection, RawPool};
use crate::detached::{HeldSlots, MAX_DRAINED_BYTES};
use crate::upstream::Load;

/// The rest of a response that is read in place of its client.
pub(super) struct AbandonedResponse {
    pub(super) connection: RawConnection,
    /// The index of the upstream, and its load, which is counted until the last byte.
    pub(super) upstream: usize,
    pub(super) load: Load,
    pub(super) input: Buffer,
    pub(super) download: Download,
    pub(super) is_head: bool,
    /// Whether the connection to the upstream can be used again: the request was sent completely, and the head of the
    /// response does not end the connection.
    pub(super) is_reusable: bool,
}

impl AbandonedResponse {
    /// Reads the response to its end, and releases the slots then. A response that is too long is cut: the connection is
    /// closed, and the slots are kept until their `ttl`.
    pub(super) async fn discard(mut self, slots: HeldSlots, pool: Arc<RawPool>) {
        let (mut bytes_left, mut out) = (MAX_DRAINED_BYTES, OutputBuffer::take());
        while self.download.min_bytes_left() <= bytes_left {
            let (input, mut stream) = (&mut self.input, Pin::new(&mut self.connection.stream));
            let Ok(count @ 1..) = poll_fn(|cx| input.poll_fill(stream.as_mut(), u64::MAX, cx)).await else {
                // The upstream has closed the connection.
                return slots.release();
            };
            let taken = self.download.take(&mut self.input, self.is_head, &mut out, |_, _| {});
            out.clear();
            match taken {
                Ok(Some(head)) => {
                    self.is_reusable &= head.is_reusable;
                    if let Ok(status) = StatusCode::from_u16(head.status) {
                        slots.observe_status(status);
                    }
                }
                Ok(None) => {}
                Err(_malformed) => return slots.release(),
            }
            if matches!(self.download, Download::Done) {
                return self.finish(slots, &pool);
            }
            let Some(left) = bytes_left.checked_sub(count as u64) else { return };
            bytes_left = left;
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
