//! Header blocks: they open a stream with a request, or end one with trailers.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::bodies::MAX_DISCARDED_BYTES;
use super::shutdown::Shutdown;
use super::windows::INITIAL_WINDOW;
use super::{
    ConnectionError, FRAME_SIZE_ERROR, FrameContext, GrpcSurface, PROTOCOL_ERROR, Received, Scratch, Session,
    unpadded,
};
use crate::http2::body::BodyEnd;
use crate::http2::frame::{self, FrameHead, Reason};
use crate::http2::header_list::HeaderList;
use crate::http2::mailbox::Event;
use crate::http2::request_head::{RequestHead, check_trailers};
use crate::http2::stream::{Incoming, Outgoing, Stream};

/// A header block whose end has not arrived.
#[derive(Debug)]
pub(super) struct PartialBlock {
    stream: u32,
    ends: bool,
    block: Vec<u8>,
}

impl PartialBlock {
    /// The number of bytes that have arrived.
    pub(super) const fn len(&self) -> usize {
        self.block.len()
    }
}

impl<G: GrpcSurface> Session<G> {
    pub(super) fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        context: &mut FrameContext<'_, '_>,
    ) -> Received<()> {
        if head.stream.is_multiple_of(2) {
            return Err(PROTOCOL_ERROR);
        }
        let mut block = unpadded(head, payload)?;
        if head.has(frame::HAS_PRIORITY) {
            block = block.get(5..).ok_or(FRAME_SIZE_ERROR)?;
        }
        let (stream, ends) = (head.stream, head.has(frame::END_STREAM));
        if head.has(frame::END_HEADERS) {
            return self.block(stream, ends, block, context);
        }
        self.partial = Some(Box::new(PartialBlock { stream, ends, block: block.to_vec() }));
        self.budget.spend()
    }

    pub(super) fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        context: &mut FrameContext<'_, '_>,
    ) -> Received<()> {
        let Some(mut partial) = self.partial.take().filter(|it| it.stream == head.stream) else {
            return Err(PROTOCOL_ERROR);
        };
        // Huffman codes make a block smaller than its headers.
        if partial.block.len() + payload.len() > self.bounds.header_bytes {
            return Err(ConnectionError(Reason::EnhanceYourCalm));
        }
        partial.block.extend_from_slice(payload);
        if head.has(frame::END_HEADERS) {
            return self.block(partial.stream, partial.ends, &partial.block, context);
        }
        self.partial = Some(partial);
        self.budget.spend()
    }

    /// Handles a complete header block: a new request, or the trailers of one.
    fn block(
        &mut self,
        id: u32,
        ends: bool,
        block: &[u8],
        context: &mut FrameContext<'_, '_>,
    ) -> Received<()> {
        let FrameContext { scratch: Scratch { list }, cx, out } = context;
        list.reset(self.bounds.header_bytes, self.bounds.headers);
        // Every block is decoded, because it changes the table.
        if self.decoder.decode(block, list).is_err() {
            let is_excessive = list.is_excessive();
            let reason = if is_excessive { Reason::EnhanceYourCalm } else { Reason::CompressionError };
            return Err(ConnectionError(reason));
        }
        if let Some(at) = self.find(id) {
            return self.trailers(at, ends, list, cx, out);
        }
        if id <= self.highest {
            self.check_closed(id)?;
            return self.budget.spend();
        }
        self.open_highest(id);
        if self.shutdown == Shutdown::Final {
            // The client knows that it is not served.
            return self.budget.spend();
        }
        self.accepted = id;
        if self.streams.len() >= self.bounds.streams {
            self.write_reset(id, Reason::RefusedStream, out);
            return self.budget.spend_refused();
        }
        if list.is_too_large() {
            self.open(id, None, Incoming::Discarded(MAX_DISCARDED_BYTES), ends);
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            self.apply(id, Event::Head(status, HeaderMap::new(), true), out);
            return self.budget.spend();
        }
        let Ok(head) = RequestHead::read(list) else {
            self.write_reset(id, Reason::ProtocolError, out);
            return self.budget.spend();
        };
        if ends && head.content_length.is_some_and(|it| it > 0) {
            self.write_reset(id, Reason::ProtocolError, out);
            return self.budget.spend();
        }
        let is_call = head.method == b"POST";
        let method = if is_call { self.surface.unary_method(head.path, head.content_type) } else { None };
        if let Some(method) = method {
            let (length, timeout) = (head.content_length, head.timeout);
            if ends {
                let at = self.open(id, length, Incoming::Ended, ends);
                let surface = Arc::clone(&self.surface);
                self.call(at, surface.call(method, Bytes::new(), timeout), cx, out);
            } else {
                self.open(id, length, Incoming::Unary { method, timeout, message: Vec::new() }, ends);
            }
            return Ok(());
        }
        self.start_service(id, ends, &head, list, out)
    }

    pub(super) fn open(
        &mut self,
        id: u32,
        length_left: Option<u64>,
        incoming: Incoming,
        ends: bool,
    ) -> usize {
        self.streams.push(Stream {
            id,
            since: self.now,
            recv_window: INITIAL_WINDOW,
            send_window: self.initial_send_window,
            length_left,
            incoming: if ends { Incoming::Ended } else { incoming },
            outgoing: Outgoing::default(),
            task: None,
        });
        self.streams.len() - 1
    }

    fn trailers(
        &mut self,
        at: usize,
        ends: bool,
        list: &HeaderList,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Received<()> {
        let stream = &mut self.streams[at];
        if matches!(stream.incoming, Incoming::Ended) {
            return self.reset(at, Reason::StreamClosed, out);
        }
        if ends && matches!(stream.incoming, Incoming::Discarded(_)) {
            // Both sides are closed now. An error of this request could not be reported any more.
            self.remove(at, out);
            return Ok(());
        }
        let is_short = stream.length_left.is_some_and(|left| left > 0);
        if !ends || is_short || list.is_too_large() || check_trailers(list).is_err() {
            return self.reset(at, Reason::ProtocolError, out);
        }
        match std::mem::replace(&mut stream.incoming, Incoming::Ended) {
            Incoming::Unary { method, timeout, message } => {
                let surface = Arc::clone(&self.surface);
                self.call(at, surface.call(method, message.into(), timeout), cx, out);
            }
            Incoming::Streaming(channel) => channel.end(BodyEnd::Complete),
            Incoming::Discarded(_) | Incoming::Ended => {}
        }
        Ok(())
    }
}
