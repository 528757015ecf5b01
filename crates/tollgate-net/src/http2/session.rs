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
//! - A client that cancels many calls at once is not read until their tasks have ended (`serve`).
//! - The socket is not read while its output is blocked, so replies to control frames do not accumulate (`serve`).
//!
//! Invariants: no input causes a panic, a complete request gets exactly one response or reset, and every byte of a request
//! is reported as used. The fuzz target `http2_session` checks them, and `tests/http2/conformance` the standard.

mod bodies;
mod budget;
mod calls;
mod closed;
mod requests;
mod responses;
mod shutdown;
mod times;
mod windows;

use std::sync::Arc;
use std::task::Context;

use self::budget::FrameBudget;
use self::closed::ClosedStreams;
use self::requests::PartialBlock;
use self::shutdown::{SHUTDOWN_PING, Shutdown};
use self::windows::{CONNECTION_WINDOW, INITIAL_WINDOW, increment};
use super::GrpcSurface;
use super::frame::{self, FrameHead, Reason};
use super::header_list::HeaderList;
use super::hpack::{self, Decoder};
use super::mailbox::Mailbox;
use super::stream::Stream;
use crate::caps::Caps;

/// The client preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The number of calls that a client cancels before their tasks, which keep their memory until then, get a turn.
const MAX_CANCELLED: usize = 64;

/// The connection has to end for this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionError(pub(super) Reason);

type Received<T> = Result<T, ConnectionError>;

const PROTOCOL_ERROR: ConnectionError = ConnectionError(Reason::ProtocolError);
const FRAME_SIZE_ERROR: ConnectionError = ConnectionError(Reason::FrameSizeError);

/// The state that decoding a header block needs only for a moment. One for each thread.
#[derive(Default)]
pub(super) struct Scratch {
    list: HeaderList,
}

/// The surroundings of a frame: space for its headers, the task of the connection, and the output.
struct FrameContext<'f, 'c> {
    scratch: &'f mut Scratch,
    cx: &'f mut Context<'c>,
    out: &'f mut Vec<u8>,
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
    closed: ClosedStreams,
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
    budget: FrameBudget,
    shutdown: Shutdown,
    /// Whether the client opens no more streams.
    is_client_done: bool,
    mailbox: Option<Arc<Mailbox>>,
    /// The time of the connection in milliseconds.
    now: u64,
    answered: u64,
    /// The number of calls in progress that the client has reset since their tasks had a turn.
    cancelled: usize,
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
            closed: ClosedStreams::default(),
            has_preface: false,
            has_settings: false,
            partial: None,
            recv_window: CONNECTION_WINDOW,
            unreported: 0,
            send_window: INITIAL_WINDOW,
            initial_send_window: INITIAL_WINDOW,
            max_payload: frame::MAX_PAYLOAD_BYTES,
            budget: FrameBudget::new(),
            shutdown: Shutdown::No,
            is_client_done: false,
            mailbox: None,
            now: 0,
            answered: 0,
            cancelled: 0,
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

    /// Whether the client has cancelled so many calls that their tasks have to end before more frames are read.
    pub(super) const fn takes_turn(&mut self) -> bool {
        let is_over = self.cancelled >= MAX_CANCELLED;
        if is_over {
            self.cancelled = 0;
        }
        is_over
    }

    /// Whether a frame or a header block is incomplete that has to be completed in time.
    pub(super) const fn is_in_head(&self) -> bool {
        !self.has_settings || self.partial.is_some()
    }

    /// Whether the connection can be closed.
    pub(super) fn is_finished(&self) -> bool {
        self.streams.is_empty() && (self.is_client_done || self.shutdown == Shutdown::Final)
    }

    /// Handles the events of the tasks, and registers the connection for the next one. Returns the time if there were
    /// any; it is not read otherwise.
    pub(super) fn handle_events(
        &mut self,
        now: impl FnOnce() -> u64,
        cx: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let mailbox = self.mailbox.as_ref()?;
        let mut events = mailbox.take(cx.waker());
        if events.is_empty() {
            return None;
        }
        let mailbox = Arc::clone(mailbox);
        self.now = now();
        // The next event wakes this connection, too.
        while !events.is_empty() {
            for (stream, event) in events {
                self.apply(stream, event, out);
            }
            events = mailbox.take(cx.waker());
        }
        Some(self.now)
    }

    /// The number of received bytes that are kept: incomplete header blocks and messages, unread bodies, and the table.
    pub(super) fn received_bytes(&self) -> usize {
        let bodies: usize = self.streams.iter().map(Stream::received_bytes).sum();
        let block = self.partial.as_ref().map_or(0, |it| it.len());
        bodies + block + self.decoder.table_bytes()
    }

    /// The maximum of [`received_bytes`](Self::received_bytes).
    pub(super) fn max_received_bytes(&self) -> usize {
        let bodies = usize::try_from(CONNECTION_WINDOW).unwrap_or(usize::MAX);
        let block = self.bounds.header_bytes + frame::MAX_PAYLOAD_BYTES;
        bodies::MAX_COLLECTED_BYTES + bodies + block + hpack::MAX_TABLE_BYTES
    }

    /// Whether all bytes of requests have been reported as used.
    pub(super) const fn is_window_restored(&self) -> bool {
        self.recv_window + self.unreported == CONNECTION_WINDOW
    }

    /// Handles all complete frames, and returns the number of used bytes.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Received<usize> {
        let mut context = FrameContext { scratch, cx, out };
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
            self.frame(head, payload, &mut context)?;
            used = start + head.length;
        }
        Ok(used)
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8], context: &mut FrameContext<'_, '_>) -> Received<()> {
        if !self.has_settings && (head.kind != frame::SETTINGS || head.has(frame::ACK)) {
            return Err(PROTOCOL_ERROR);
        }
        // Nothing may come between the parts of a header block.
        if self.partial.is_some() && head.kind != frame::CONTINUATION {
            return Err(PROTOCOL_ERROR);
        }
        match head.kind {
            frame::DATA => self.data(head, payload, context),
            frame::HEADERS => self.headers(head, payload, context),
            frame::CONTINUATION => self.continuation(head, payload, context),
            frame::SETTINGS => self.settings(head, payload, context.out),
            frame::WINDOW_UPDATE => self.window_update(head, payload, context.out),
            frame::RST_STREAM => self.reset_by_client(head, payload, context.out),
            frame::PING => self.ping(head, payload, context.out),
            frame::GOAWAY => {
                if head.stream != 0 {
                    return Err(PROTOCOL_ERROR);
                }
                if payload.len() < 8 {
                    return Err(FRAME_SIZE_ERROR);
                }
                self.is_client_done = true;
                self.budget.spend()
            }
            frame::PRIORITY => {
                if head.stream == 0 {
                    return Err(PROTOCOL_ERROR);
                }
                if payload.len() != 5 {
                    return Err(FRAME_SIZE_ERROR);
                }
                self.budget.spend()
            }
            frame::PUSH_PROMISE => Err(PROTOCOL_ERROR),
            // Unknown frames are ignored.
            _ => self.budget.spend(),
        }
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Received<()> {
        if head.stream != 0 {
            return Err(PROTOCOL_ERROR);
        }
        if head.has(frame::ACK) {
            self.budget.confirm();
            return if payload.is_empty() { self.budget.spend() } else { Err(FRAME_SIZE_ERROR) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(FRAME_SIZE_ERROR);
        }
        self.has_settings = true;
        self.budget.spend()?;
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

    fn ping(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Received<()> {
        if head.stream != 0 {
            return Err(PROTOCOL_ERROR);
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else { return Err(FRAME_SIZE_ERROR) };
        self.budget.spend()?;
        if !head.has(frame::ACK) {
            frame::write_ping(out, frame::ACK, payload);
        } else if payload == SHUTDOWN_PING && matches!(self.shutdown, Shutdown::Announced(_)) {
            self.end_shutdown(out);
        }
        Ok(())
    }

    fn find(&self, id: u32) -> Option<usize> {
        // New streams are at the end.
        self.streams.iter().rposition(|it| it.id == id)
    }

    /// Checks that a frame belongs to a stream that the client has opened.
    const fn is_idle(&self, stream: u32) -> bool {
        stream == 0 || stream > self.highest || stream.is_multiple_of(2)
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
