//! The state of one stream.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use super::body::BodyChannel;
use super::request_head::GrpcTimeout;

/// A stream that is not closed.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// When it was opened, or when its response was complete, in milliseconds of the connection.
    pub(super) since: u64,
    /// The bytes that the client may send.
    pub(super) recv_window: i64,
    /// The bytes that the client reads.
    pub(super) send_window: i64,
    /// The bytes of the announced `content-length` that have not arrived.
    pub(super) length_left: Option<u64>,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    /// The task that answers it. Aborted with the stream.
    pub(super) task: Option<TaskGuard>,
}

impl Stream {
    /// The bytes of an incomplete message.
    pub(super) fn collected_bytes(&self) -> usize {
        if let Incoming::Unary { message, .. } = &self.incoming { message.len() } else { 0 }
    }

    /// The received bytes that are kept.
    pub(super) fn received_bytes(&self) -> usize {
        match &self.incoming {
            Incoming::Streaming(channel) => channel.unread_bytes(),
            _ => self.collected_bytes(),
        }
    }
}

/// The request of a stream.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A unary call whose message has not arrived completely.
    Unary { method: u8, timeout: GrpcTimeout, message: Vec<u8> },
    /// A request whose body is read by a task.
    Streaming(Arc<BodyChannel>),
    /// The rest of an answered request, of which this many bytes are read and dropped.
    Discarded(usize),
    /// The request has arrived completely.
    Ended,
}

/// The response of a stream.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Bytes that wait for a window.
    pub(super) data: Bytes,
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) end: Option<ResponseEnd>,
    /// Since when these bytes have been waiting for the client. Windows that let a part of them pass do not change it, so
    /// a client that opens them by single bytes cannot keep a response.
    pub(super) blocked_since: Option<u64>,
}

/// The end of a response.
#[derive(Debug)]
pub(super) enum ResponseEnd {
    /// The status of a successful call.
    GrpcOk,
    Trailers(HeaderMap),
    /// No trailers.
    Empty,
}

/// Aborts a task when it is dropped.
#[derive(Debug)]
pub(super) struct TaskGuard(pub(super) AbortHandle);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
