//! The protocol of a connection without its socket: received frames change the state, and frames to send are appended
//! to a buffer.
//!
//! ```text
//! HEADERS ─► hpack ─► RequestHead ─┬─ unary method: the message is collected, the call is polled once
//!                                  │     ├─ ready: head, message and status are written immediately
//!                                  │     └─ pending: a task awaits it
//!                                  └─ other: a task runs the service with an Http2Body
//! ```
//!
//! Bounds against hostile clients:
//! - Streams, headers, header blocks and messages have maximum sizes and numbers ([`Bounds`]).
//! - Frames that achieve nothing (pings, settings, resets of requests that were not answered, empty or late frames, refused
//!   streams) use up a budget that answers and time refill. A client without budget is disconnected
//!   (`ENHANCE_YOUR_CALM`).
//! - The socket is not read while its output is blocked, so replies to control frames do not accumulate (`serve`).
//!
//! Invariant: no input causes a panic. `tests/http2.rs` checks this with seeded random frames.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::{BodyChannel, BodyEnd, Http2Body};
use super::frame::{self, FrameHead, MAX_WINDOW, Reason};
use super::header_list::HeaderList;
use super::hpack::Decoder;
use super::mailbox::{Event, Mailbox};
use super::request_head::{RequestHead, check_trailers};
use super::stream::{Incoming, Outgoing, ResponseEnd, Stream, TaskGuard};
use super::{GrpcSurface, UnaryCall, UnaryReply};
use crate::caps::Caps;

/// The client preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The initial windows of HTTP/2.
const INITIAL_WINDOW: i64 = 65_535;
/// The window of a connection for the bodies of all requests.
const CONNECTION_WINDOW: i64 = 1 << 20;
/// The bytes of a stream or a connection after which its window is opened again.
const STREAM_UPDATE_BYTES: i64 = INITIAL_WINDOW / 2;
const CONNECTION_UPDATE_BYTES: i64 = CONNECTION_WINDOW / 4;

/// The maximum number of bytes of incomplete messages of unary calls on one connection.
const MAX_COLLECTED_BYTES: usize = 8 << 20;
/// The maximum number of bytes that are read and dropped after an early answer.
const MAX_DISCARDED_BYTES: usize = 64 * 1024;

/// The number of frames without effect that a client may send before the next refill.
const FRAME_BUDGET: u32 = 1_000;
/// The part of the budget that an answered request, and a sent piece of a response, refill.
const ANSWER_REFILL: u32 = 8;
const PIECE_REFILL: u32 = 2;

/// The payload of the ping that follows the announcement of a shutdown, and of keep-alive.
const SHUTDOWN_PING: [u8; 8] = *b"tollgate";
const KEEP_ALIVE_PING: [u8; 8] = *b"tollkeep";

/// `:status: 200` and `content-type: application/grpc`, without a table.
const RESPONSE_HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
const OK_TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// The connection has to end for this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionError(pub(super) Reason);

type Received<T> = Result<T, ConnectionError>;

const PROTOCOL_ERROR: ConnectionError = ConnectionError(Reason::ProtocolError);
const FRAME_SIZE_ERROR: ConnectionError = ConnectionError(Reason::FrameSizeError);

/// A header block whose end has not arrived.
#[derive(Debug)]
struct PartialBlock {
    stream: u32,
    ends: bool,
    block: Vec<u8>,
}

/// The stage of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// Announced; requests on the way are accepted until the client has confirmed it.
    Announced(u64),
    /// Later requests are ignored.
    Final,
}

/// The state that decoding a header block needs only for a moment. One for each thread.
#[derive(Default)]
pub(super) struct Scratch {
    list: HeaderList,
}

/// The protocol state of a connection.
pub(super) struct Session<G> {
    surface: Arc<G>,
    bounds: Bounds,
    decoder: Decoder,
    streams: Vec<Stream>,
    /// The highest stream that the client has opened.
    highest: u32,
    /// The highest stream that is served.
    accepted: u32,
    has_preface: bool,
    has_settings: bool,
    partial: Option<Box<PartialBlock>>,
    /// The bytes that the client may send, and the received bytes that are not reported as used.
    recv_window: i64,
    unreported: i64,
    send_window: i64,
    /// Settings of the client.
    initial_send_window: i64,
    max_payload: usize,
    budget: u32,
    refilled_at: u64,
    shutdown: Shutdown,
    /// Whether the client opens no more streams.
    is_client_done: bool,
    mailbox: Option<Arc<Mailbox>>,
    /// The time of the connection in milliseconds.
    now: u64,
    answered: u64,
}

/// The bounds of a connection.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    header_bytes: usize,
    headers: usize,
    streams: usize,
}

impl<G: GrpcSurface> Session<G> {
    /// Creates the state of a new connection, and writes the first frames.
    pub(super) fn new(surface: Arc<G>, caps: &Caps, out: &mut Vec<u8>) -> Self {
        let bounds = Bounds {
            header_bytes: caps.header_bytes,
            headers: caps.headers,
            streams: usize::try_from(caps.streams).unwrap_or(usize::MAX),
        };
        let header_bytes = u32::try_from(caps.header_bytes).unwrap_or(u32::MAX);
        let settings = [
            (frame::SETTING_MAX_CONCURRENT_STREAMS, caps.streams),
            (frame::SETTING_MAX_HEADER_LIST_SIZE, header_bytes),
        ];
        frame::write_settings(out, &settings);
        frame::write_window_update(out, 0, increment(CONNECTION_WINDOW - INITIAL_WINDOW));
        Self {
            surface,
            bounds,
            decoder: Decoder::default(),
            streams: Vec::new(),
            highest: 0,
            accepted: 0,
            has_preface: false,
            has_settings: false,
            partial: None,
            recv_window: CONNECTION_WINDOW,
            unreported: 0,
            send_window: INITIAL_WINDOW,
            initial_send_window: INITIAL_WINDOW,
            max_payload: frame::MAX_PAYLOAD_BYTES,
            budget: FRAME_BUDGET,
            refilled_at: 0,
            shutdown: Shutdown::No,
            is_client_done: false,
            mailbox: None,
            now: 0,
            answered: 0,
        }
    }

    /// Sets the time of the connection.
    pub(super) const fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    pub(super) const fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// The number of answered requests.
    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether a frame or a header block is incomplete that has to be completed in time.
    pub(super) const fn is_in_head(&self) -> bool {
        !self.has_settings || self.partial.is_some()
    }

    /// Whether the connection can be closed.
    pub(super) fn is_finished(&self) -> bool {
        self.streams.is_empty() && (self.is_client_done || self.shutdown == Shutdown::Final)
    }

    pub(super) fn mailbox(&self) -> Option<&Arc<Mailbox>> {
        self.mailbox.as_ref()
    }

    /// Handles all complete frames, and returns the number of used bytes.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Received<usize> {
        let mut used = 0;
        if !self.has_preface {
            if !input.starts_with(PREFACE) {
                return if PREFACE.starts_with(input) { Ok(0) } else { Err(PROTOCOL_ERROR) };
            }
            self.has_preface = true;
            used = PREFACE.len();
        }
        while let Some(head) = FrameHead::read(&input[used..]) {
            if head.length > frame::MAX_PAYLOAD_BYTES {
                return Err(FRAME_SIZE_ERROR);
            }
            let start = used + frame::HEAD_BYTES;
            let Some(payload) = input.get(start..start + head.length) else { break };
            self.frame(head, payload, scratch, cx, out)?;
            used = start + head.length;
        }
        Ok(used)
    }

    fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Received<()> {
        if !self.has_settings && (head.kind != frame::SETTINGS || head.has(frame::ACK)) {
            return Err(PROTOCOL_ERROR);
        }
        // Nothing may come between the parts of a header block.
        if self.partial.is_some() && head.kind != frame::CONTINUATION {
            return Err(PROTOCOL_ERROR);
        }
        match head.kind {
            frame::DATA => self.data(head, payload, cx, out),
            frame::HEADERS => self.headers(head, payload, scratch, cx, out),
            frame::CONTINUATION => self.continuation(head, payload, scratch, cx, out),
            frame::SETTINGS => self.settings(head, payload, out),
            frame::WINDOW_UPDATE => self.window_update(head, payload, out),
            frame::RST_STREAM => self.reset_by_client(head, payload, out),
            frame::PING => self.ping(head, payload, out),
            frame::GOAWAY => {
                if head.stream != 0 {
                    return Err(PROTOCOL_ERROR);
                }
                if payload.len() < 8 {
                    return Err(FRAME_SIZE_ERROR);
                }
                self.is_client_done = true;
                self.spend()
            }
            frame::PRIORITY => {
                if head.stream == 0 {
                    return Err(PROTOCOL_ERROR);
                }
                if payload.len() != 5 {
                    return Err(FRAME_SIZE_ERROR);
                }
                self.spend()
            }
            frame::PUSH_PROMISE => Err(PROTOCOL_ERROR),
            // Unknown frames are ignored.
            _ => self.spend(),
        }
    }

    /// Counts a frame that achieves nothing.
    fn spend(&mut self) -> Received<()> {
        self.budget = self.budget.checked_sub(1).ok_or(ConnectionError(Reason::EnhanceYourCalm))?;
        Ok(())
    }

    fn refill(&mut self, frames: u32) {
        self.budget = (self.budget + frames).min(FRAME_BUDGET);
    }

    fn find(&self, id: u32) -> Option<usize> {
        // New streams are at the end.
        self.streams.iter().rposition(|it| it.id == id)
    }

    /// Checks that a frame belongs to a stream that the client has opened.
    const fn is_idle(&self, stream: u32) -> bool {
        stream == 0 || stream > self.highest || stream.is_multiple_of(2)
    }

    fn data(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
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
            self.spend()?;
        }
        let Some(at) = self.find(head.stream) else {
            // The stream was closed while this was on the way.
            self.release(size, out);
            return self.spend();
        };
        let stream = &mut self.streams[at];
        stream.recv_window -= size;
        let mut reason = (stream.recv_window < 0).then_some(Reason::FlowControlError);
        if matches!(stream.incoming, Incoming::Ended) {
            reason = Some(Reason::StreamClosed);
        }
        if let Some(left) = &mut stream.length_left {
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
            Incoming::Discarded(left) => match left.checked_sub(data.len()) {
                Some(_) if ends => {
                    stream.incoming = Incoming::Ended;
                    self.release(size, out);
                    self.remove(at, out);
                }
                Some(rest) => {
                    *left = rest;
                    self.release(size, out);
                    self.release_stream(at, size, out);
                }
                None => {
                    self.release(size, out);
                    self.reset(at, Reason::NoError, out)?;
                }
            },
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

    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
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
            return self.block(stream, ends, block, scratch, cx, out);
        }
        self.partial = Some(Box::new(PartialBlock { stream, ends, block: block.to_vec() }));
        self.spend()
    }

    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
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
            return self.block(partial.stream, partial.ends, &partial.block, scratch, cx, out);
        }
        self.partial = Some(partial);
        self.spend()
    }

    /// Handles a complete header block: a new request, or the trailers of one.
    fn block(
        &mut self,
        id: u32,
        ends: bool,
        block: &[u8],
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Received<()> {
        let list = &mut scratch.list;
        list.reset(self.bounds.header_bytes, self.bounds.headers);
        // Every block is decoded, because it changes the table.
        if self.decoder.decode(block, list).is_err() {
            return Err(ConnectionError(Reason::CompressionError));
        }
        if let Some(at) = self.find(id) {
            return self.trailers(at, ends, list, cx, out);
        }
        if id <= self.highest {
            // The stream was closed while this was on the way.
            return self.spend();
        }
        self.highest = id;
        if self.shutdown == Shutdown::Final {
            // The client knows that it is not served.
            return self.spend();
        }
        self.accepted = id;
        if self.streams.len() >= self.bounds.streams {
            frame::write_reset(out, id, Reason::RefusedStream);
            return self.spend();
        }
        if list.is_too_large() {
            self.open(id, None, Incoming::Discarded(MAX_DISCARDED_BYTES), ends);
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            self.apply(id, Event::Head(status, HeaderMap::new(), true), out);
            return self.spend();
        }
        let Ok(head) = RequestHead::read(list) else {
            frame::write_reset(out, id, Reason::ProtocolError);
            return self.spend();
        };
        if ends && head.content_length.is_some_and(|it| it > 0) {
            frame::write_reset(out, id, Reason::ProtocolError);
            return self.spend();
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

    fn open(&mut self, id: u32, length_left: Option<u64>, incoming: Incoming, ends: bool) -> usize {
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
            Incoming::Discarded(_) => self.remove(at, out),
            Incoming::Ended => {}
        }
        Ok(())
    }

    /// Runs a unary call: immediately if it does not wait, else in a task.
    fn call(&mut self, at: usize, mut call: UnaryCall, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        if let Poll::Ready(reply) = call.as_mut().poll(cx) {
            return self.reply(at, reply, out);
        }
        let (surface, mailbox) = (Arc::clone(&self.surface), self.shared_mailbox());
        let completion = Completion { mailbox, id: self.streams[at].id, is_sent: false };
        let task = tokio::spawn(async move {
            let reply = timeout(surface.max_time(), call).await;
            let reply = reply.unwrap_or_else(|_| UnaryReply::Refusal(surface.late_refusal()));
            completion.send(Event::Reply(reply));
        });
        self.streams[at].task = Some(TaskGuard(task.abort_handle()));
    }

    fn shared_mailbox(&mut self) -> Arc<Mailbox> {
        Arc::clone(self.mailbox.get_or_insert_default())
    }

    /// Starts the service with a request that is not a unary call.
    fn start_service(
        &mut self,
        id: u32,
        ends: bool,
        head: &RequestHead<'_>,
        list: &HeaderList,
        out: &mut Vec<u8>,
    ) -> Received<()> {
        let (channel, mailbox) = (Arc::new(BodyChannel::default()), self.shared_mailbox());
        if ends {
            channel.end(BodyEnd::Complete);
        }
        let body = Http2Body::new(id, Arc::clone(&channel), Arc::clone(&mailbox));
        let Ok(request) = head.request(list, body) else {
            frame::write_reset(out, id, Reason::ProtocolError);
            return self.spend();
        };
        let answering = self.surface.answer(request);
        let completion = Completion { mailbox, id, is_sent: false };
        let task = tokio::spawn(async move { send_response(answering.await, completion).await });
        let at = self.open(id, head.content_length, Incoming::Streaming(channel), ends);
        self.streams[at].task = Some(TaskGuard(task.abort_handle()));
        Ok(())
    }

    /// Writes the reply to a unary call.
    fn reply(&mut self, at: usize, reply: UnaryReply, out: &mut Vec<u8>) {
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
    pub(super) fn apply(&mut self, id: u32, event: Event, out: &mut Vec<u8>) {
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
                frame::write_reset(out, id, Reason::InternalError);
                self.remove(at, out);
            }
            Event::Consumed(_) => {}
        }
    }

    /// Writes as much of a response as the windows permit.
    fn send(&mut self, at: usize, out: &mut Vec<u8>) {
        let stream = &mut self.streams[at];
        let outgoing = &mut stream.outgoing;
        while !outgoing.data.is_empty() {
            let window = stream.send_window.min(self.send_window);
            let length = usize::try_from(window).unwrap_or(0).min(self.max_payload).min(outgoing.data.len());
            if length == 0 {
                outgoing.blocked_since.get_or_insert(self.now);
                return;
            }
            outgoing.blocked_since = None;
            let is_last = length == outgoing.data.len() && matches!(outgoing.end, Some(ResponseEnd::Empty));
            let flags = if is_last { frame::END_STREAM } else { 0 };
            frame::write_head(out, length, frame::DATA, flags, stream.id);
            out.extend_from_slice(&outgoing.data[..length]);
            stream.send_window -= signed(length);
            self.send_window -= signed(length);
            self.budget = (self.budget + PIECE_REFILL).min(FRAME_BUDGET);
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
        self.refill(ANSWER_REFILL);
        let now = self.now;
        let stream = &mut self.streams[at];
        stream.task = None;
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

    fn remove(&mut self, at: usize, out: &mut Vec<u8>) {
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
    fn reset(&mut self, at: usize, reason: Reason, out: &mut Vec<u8>) -> Received<()> {
        frame::write_reset(out, self.streams[at].id, reason);
        self.remove(at, out);
        self.spend()
    }

    /// Reports bytes as used, so that the client may send more on this connection.
    fn release(&mut self, bytes: i64, out: &mut Vec<u8>) {
        self.unreported += bytes;
        if self.unreported >= CONNECTION_UPDATE_BYTES {
            frame::write_window_update(out, 0, increment(self.unreported));
            self.recv_window += self.unreported;
            self.unreported = 0;
        }
    }

    /// Reports bytes as used, so that the client may send more on a stream.
    fn release_stream(&mut self, at: usize, bytes: i64, out: &mut Vec<u8>) {
        let stream = &mut self.streams[at];
        if bytes > 0 && !matches!(stream.incoming, Incoming::Ended) {
            stream.recv_window += bytes;
            frame::write_window_update(out, stream.id, increment(bytes));
        }
    }

    fn reset_by_client(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Received<()> {
        if payload.len() != 4 {
            return Err(FRAME_SIZE_ERROR);
        }
        if self.is_idle(head.stream) {
            return Err(PROTOCOL_ERROR);
        }
        let Some(at) = self.find(head.stream) else { return self.spend() };
        // A unary call that was received completely has cost the client as much as any other call.
        let is_call = matches!(self.streams[at].incoming, Incoming::Ended);
        self.remove(at, out);
        if is_call { Ok(()) } else { self.spend() }
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Received<()> {
        if head.stream != 0 {
            return Err(PROTOCOL_ERROR);
        }
        if head.has(frame::ACK) {
            return if payload.is_empty() { self.spend() } else { Err(FRAME_SIZE_ERROR) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(FRAME_SIZE_ERROR);
        }
        self.has_settings = true;
        self.spend()?;
        for setting in payload.chunks_exact(6) {
            let [n0, n1, v0, v1, v2, v3] = *setting else { continue };
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([n0, n1]) {
                frame::SETTING_ENABLE_PUSH if value > 1 => return Err(PROTOCOL_ERROR),
                frame::SETTING_INITIAL_WINDOW_SIZE => self.set_initial_window(i64::from(value), out)?,
                // A valid size is not used: larger frames save nothing here.
                frame::SETTING_MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err(PROTOCOL_ERROR);
                }
                _ => {}
            }
        }
        frame::write_head(out, 0, frame::SETTINGS, frame::ACK, 0);
        Ok(())
    }

    fn set_initial_window(&mut self, window: i64, out: &mut Vec<u8>) -> Received<()> {
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

    fn window_update(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Received<()> {
        let Ok(payload) = <[u8; 4]>::try_from(payload) else { return Err(FRAME_SIZE_ERROR) };
        let increment = i64::from(u32::from_be_bytes(payload) & 0x7fff_ffff);
        self.spend()?;
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

    fn ping(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Received<()> {
        if head.stream != 0 {
            return Err(PROTOCOL_ERROR);
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else { return Err(FRAME_SIZE_ERROR) };
        self.spend()?;
        if !head.has(frame::ACK) {
            frame::write_ping(out, frame::ACK, payload);
        } else if payload == SHUTDOWN_PING && matches!(self.shutdown, Shutdown::Announced(_)) {
            self.end_shutdown(out);
        }
        Ok(())
    }

    /// Announces that the connection is closed after the requests in progress.
    pub(super) fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced(self.now);
            // The client may have sent requests that have not arrived; its reply to the ping follows them.
            frame::write_go_away(out, u32::MAX >> 1, Reason::NoError);
            frame::write_ping(out, 0, SHUTDOWN_PING);
        }
    }

    fn end_shutdown(&mut self, out: &mut Vec<u8>) {
        self.shutdown = Shutdown::Final;
        frame::write_go_away(out, self.accepted, Reason::NoError);
    }

    /// Writes the reason why the connection ends.
    pub(super) fn write_error(&self, error: ConnectionError, out: &mut Vec<u8>) {
        frame::write_go_away(out, self.accepted, error.0);
    }

    /// Sends a ping, to detect a client that has vanished.
    pub(super) fn write_keep_alive(out: &mut Vec<u8>) {
        frame::write_ping(out, 0, KEEP_ALIVE_PING);
    }

    /// Checks the times of all streams. `Err`: a client does not read a response.
    pub(super) fn check_times(&mut self, caps: &Caps, out: &mut Vec<u8>) -> Result<(), ()> {
        let now = self.now;
        let is_over = |since: u64, max: Duration| now.saturating_sub(since) >= millis(max);
        if is_over(self.refilled_at, caps.head) {
            (self.budget, self.refilled_at) = (FRAME_BUDGET, now);
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
                    frame::write_reset(out, stream.id, Reason::NoError);
                    self.remove(at, out);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the time until the next check of the streams.
    pub(super) fn next_check(&self, caps: &Caps) -> Duration {
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
}

impl Stream {
    /// The bytes of an incomplete message.
    fn collected_bytes(&self) -> usize {
        if let Incoming::Unary { message, .. } = &self.incoming { message.len() } else { 0 }
    }
}

/// Reports the end of a task. A task that panics fails its stream, not its connection.
struct Completion {
    mailbox: Arc<Mailbox>,
    id: u32,
    is_sent: bool,
}

impl Completion {
    fn send(mut self, event: Event) {
        self.is_sent = true;
        self.mailbox.send(self.id, event);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_sent {
            self.mailbox.send(self.id, Event::Failed);
        }
    }
}

/// Sends the response of a service, one piece at a time.
async fn send_response<B: Body<Data = Bytes>>(response: Response<B>, completion: Completion) {
    let (parts, body) = response.into_parts();
    let mut body = pin!(body);
    let is_empty = body.is_end_stream();
    let head = Event::Head(parts.status, parts.headers, is_empty);
    if is_empty {
        return completion.send(head);
    }
    completion.mailbox.send(completion.id, head);
    let places = Arc::new(Semaphore::new(1));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&places).acquire_owned().await else { return };
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let event = match frame.map(|it| it.map(http_body::Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                if !data.is_empty() {
                    completion.mailbox.send(completion.id, Event::Data(data, permit));
                }
                continue;
            }
            Some(Ok(Err(other))) => Event::End(other.into_trailers().ok()),
            Some(Err(_)) => Event::Failed,
            None => Event::End(None),
        };
        return completion.send(event);
    }
}

/// Removes the padding of a frame.
fn unpadded(head: FrameHead, payload: &[u8]) -> Received<&[u8]> {
    if !head.has(frame::PADDED) {
        return Ok(payload);
    }
    let (length, rest) = payload.split_first().ok_or(FRAME_SIZE_ERROR)?;
    let end = rest.len().checked_sub(usize::from(*length)).ok_or(PROTOCOL_ERROR)?;
    Ok(&rest[..end])
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn increment(bytes: i64) -> u32 {
    u32::try_from(bytes.min(MAX_WINDOW)).unwrap_or(0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
