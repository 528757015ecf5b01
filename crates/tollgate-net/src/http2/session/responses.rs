//! Responses: written as far as the windows permit, until the stream ends.

use bytes::Bytes;

use super::bodies::MAX_DISCARDED_BYTES;
use super::budget::{ANSWER_REFILL, PIECE_REFILL};
use super::windows::INITIAL_WINDOW;
use super::{FRAME_SIZE_ERROR, GrpcSurface, PROTOCOL_ERROR, Received, Session, signed};
use crate::http2::UnaryReply;
use crate::http2::frame::{self, FrameHead, Reason};
use crate::http2::mailbox::Event;
use crate::http2::stream::{Incoming, Outgoing, ResponseEnd};

/// `:status: 200` and `content-type: application/grpc`, without a table.
const RESPONSE_HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
const OK_TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

impl<G: GrpcSurface> Session<G> {
    /// Writes the reply to a unary call.
    pub(super) fn reply(&mut self, at: usize, reply: UnaryReply, out: &mut Vec<u8>) {
        let stream = &mut self.streams[at];
        match reply {
            UnaryReply::Message(message) => {
                frame::write_head(out, RESPONSE_HEAD.len(), frame::HEADERS, frame::END_HEADERS, stream.id);
                out.extend_from_slice(RESPONSE_HEAD);
                stream.outgoing.data = message;
                stream.outgoing.end = Some(ResponseEnd::GrpcOk);
            }
            UnaryReply::Refusal(headers) => {
                let block = frame::encode(Some(200), &headers);
                frame::write_block(out, stream.id, &block, true, self.max_payload);
                return self.finish(at, out);
            }
        }
        self.send(at, out);
    }

    /// Handles an event of a task.
    pub(in crate::http2) fn apply(&mut self, id: u32, event: Event, out: &mut Vec<u8>) {
        let found = self.find(id);
        if let Event::Consumed(bytes) = event {
            if let Some(at) = found {
                self.release_stream(at, signed(bytes), out);
            }
            return self.release(signed(bytes), out);
        }
        let Some(at) = found else { return };
        match event {
            Event::Reply(reply) => self.reply(at, reply, out),
            Event::Head(status, headers, ends) => {
                let block = frame::encode(Some(status.as_u16()), &headers);
                frame::write_block(out, id, &block, ends, self.max_payload);
                if ends {
                    self.finish(at, out);
                }
            }
            Event::Data(data, permit) => {
                let outgoing = &mut self.streams[at].outgoing;
                (outgoing.data, outgoing.permit) = (data, Some(permit));
                self.send(at, out);
            }
            Event::End(trailers) => {
                let end = trailers.map_or(ResponseEnd::Empty, ResponseEnd::Trailers);
                self.streams[at].outgoing.end = Some(end);
                self.send(at, out);
            }
            Event::Failed => {
                self.write_reset(id, Reason::InternalError, out);
                self.remove(at, out);
            }
            Event::Consumed(_) => {}
        }
    }

    /// Writes as much of a response as the windows permit.
    pub(super) fn send(&mut self, at: usize, out: &mut Vec<u8>) {
        let stream = &mut self.streams[at];
        let outgoing = &mut stream.outgoing;
        while !outgoing.data.is_empty() {
            let window = stream.send_window.min(self.send_window);
            let length = usize::try_from(window).unwrap_or(0).min(self.max_payload).min(outgoing.data.len());
            if length == 0 {
                outgoing.blocked_since.get_or_insert(self.now);
                return;
            }
            let is_last = length == outgoing.data.len() && matches!(outgoing.end, Some(ResponseEnd::Empty));
            let flags = if is_last { frame::END_STREAM } else { 0 };
            frame::write_head(out, length, frame::DATA, flags, stream.id);
            out.extend_from_slice(&outgoing.data[..length]);
            stream.send_window -= signed(length);
            self.send_window -= signed(length);
            self.budget.refill(PIECE_REFILL);
            if length == outgoing.data.len() {
                outgoing.data = Bytes::new();
            } else {
                let _sent = outgoing.data.split_to(length);
            }
            if is_last {
                return self.finish(at, out);
            }
        }
        outgoing.blocked_since = None;
        outgoing.permit = None;
        match outgoing.end.take() {
            None => return,
            Some(ResponseEnd::GrpcOk) => {
                let flags = frame::END_HEADERS | frame::END_STREAM;
                frame::write_head(out, OK_TRAILERS.len(), frame::HEADERS, flags, stream.id);
                out.extend_from_slice(OK_TRAILERS);
            }
            Some(ResponseEnd::Trailers(trailers)) => {
                let block = frame::encode(None, &trailers);
                frame::write_block(out, stream.id, &block, true, self.max_payload);
            }
            Some(ResponseEnd::Empty) => {
                frame::write_head(out, 0, frame::DATA, frame::END_STREAM, stream.id);
            }
        }
        self.finish(at, out);
    }

    /// Ends a stream whose response is complete. The rest of its request is read and dropped: some clients lose the
    /// response if the stream is reset.
    fn finish(&mut self, at: usize, out: &mut Vec<u8>) {
        self.answered += 1;
        self.budget.refill(ANSWER_REFILL);
        let now = self.now;
        let stream = &mut self.streams[at];
        (stream.task, stream.length_left) = (None, None);
        match &stream.incoming {
            Incoming::Ended => return self.remove(at, out),
            Incoming::Unary { .. } => {
                let used = INITIAL_WINDOW - stream.recv_window;
                stream.incoming = Incoming::Discarded(MAX_DISCARDED_BYTES);
                self.release_stream(at, used, out);
            }
            Incoming::Streaming(channel) => {
                let unread = signed(channel.abort());
                stream.incoming = Incoming::Discarded(MAX_DISCARDED_BYTES);
                self.release(unread, out);
                self.release_stream(at, unread, out);
            }
            Incoming::Discarded(_) => {}
        }
        let stream = &mut self.streams[at];
        stream.since = now;
        stream.outgoing = Outgoing::default();
    }

    pub(super) fn remove(&mut self, at: usize, out: &mut Vec<u8>) {
        let stream = self.streams.swap_remove(at);
        if let Incoming::Streaming(channel) = &stream.incoming {
            let unread = signed(channel.abort());
            self.release(unread, out);
        }
        if self.streams.is_empty() && self.streams.capacity() > 16 {
            self.streams = Vec::new();
        }
    }

    /// Resets a stream because of an error of the client.
    pub(super) fn reset(&mut self, at: usize, reason: Reason, out: &mut Vec<u8>) -> Received<()> {
        self.write_reset(self.streams[at].id, reason, out);
        self.remove(at, out);
        self.budget.spend()
    }

    pub(super) fn reset_by_client(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Received<()> {
        if payload.len() != 4 {
            return Err(FRAME_SIZE_ERROR);
        }
        if self.is_idle(head.stream) {
            return Err(PROTOCOL_ERROR);
        }
        let Some(at) = self.find(head.stream) else { return self.budget.spend() };
        // A unary call that was received completely has cost the client as much as any other call.
        let is_call = matches!(self.streams[at].incoming, Incoming::Ended);
        self.cancelled += usize::from(self.streams[at].task.is_some());
        self.remove(at, out);
        if is_call { Ok(()) } else { self.budget.spend() }
    }
}
