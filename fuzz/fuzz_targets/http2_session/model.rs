//! The view of the client: the streams that it has opened, its windows, and the checks of every frame that it receives.

use std::collections::BTreeMap;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

const HEAD_BYTES: usize = 9;
const MAX_PAYLOAD_BYTES: usize = 16_384;
const INITIAL_WINDOW: i64 = 65_535;
/// The maximum of the window of a connection that the server opens.
const MAX_CONNECTION_WINDOW: i64 = 1 << 20;

/// Writes a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The length of the frame at the start, with its head; `None` if the head is incomplete.
pub(crate) fn frame_length(input: &[u8]) -> Option<usize> {
    let [a, b, c, _, _, _, _, _, _, ..] = *input else { return None };
    Some(HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize)
}

struct Frame<'f> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'f [u8],
}

impl<'f> Frame<'f> {
    fn read(input: &mut &'f [u8]) -> Option<Self> {
        let length = frame_length(input)?;
        let (frame, rest) = input.split_at_checked(length)?;
        *input = rest;
        let stream = u32::from_be_bytes([frame[5] & 0x7f, frame[6], frame[7], frame[8]]);
        Some(Frame { kind: frame[3], flags: frame[4], stream, payload: &frame[HEAD_BYTES..] })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.payload[at..at + 4].try_into().expect("four bytes");
        u32::from_be_bytes(bytes)
    }
}

/// A stream that the client has opened.
#[derive(Debug)]
struct Stream {
    /// Whether the request is complete, and whether the client has reset it.
    is_request_ended: bool,
    is_reset_by_client: bool,
    /// The number of header blocks of the response, and whether it is complete or reset.
    blocks: usize,
    is_response_ended: bool,
    is_reset_by_server: bool,
    /// The bytes that the server may send.
    window: i64,
    /// The bytes that the client may send.
    request_window: i64,
}

/// The client of a session.
pub(crate) struct Client {
    pub(crate) has_preface: bool,
    streams: BTreeMap<u32, Stream>,
    decoder: loona_hpack::Decoder<'static>,
    /// The stream of an incomplete header block of a request, and whether it ends the request.
    sent_partial: Option<(u32, bool)>,
    /// The stream, the block, and the end of an incomplete header block of a response.
    received_partial: Option<(u32, Vec<u8>, bool)>,
    initial_window: i64,
    /// The amount by which the initial window was higher before the last of several settings in one frame.
    slack: i64,
    window: i64,
    request_window: i64,
    highest: u32,
    /// The last stream that is served, after a shutdown.
    last_served: u32,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            has_preface: false,
            streams: BTreeMap::new(),
            decoder: loona_hpack::Decoder::new(),
            sent_partial: None,
            received_partial: None,
            initial_window: INITIAL_WINDOW,
            slack: 0,
            window: INITIAL_WINDOW,
            request_window: INITIAL_WINDOW,
            highest: 0,
            last_served: u32::MAX >> 1,
        }
    }

    /// The next stream that the client may open.
    pub(crate) fn next_stream(&self) -> u32 {
        (self.highest + 1) | 1
    }

    /// Records a frame that the session has accepted.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        let frame = Frame::read(&mut &*bytes).expect("a complete frame");
        match frame.kind {
            HEADERS if frame.has(END_HEADERS) => self.sent_block(frame.stream, frame.has(END_STREAM)),
            HEADERS => self.sent_partial = Some((frame.stream, frame.has(END_STREAM))),
            CONTINUATION if frame.has(END_HEADERS) => {
                let (stream, ends) = self.sent_partial.take().expect("a header block");
                self.sent_block(stream, ends);
            }
            DATA => {
                let size = i64::try_from(frame.payload.len()).expect("a short payload");
                self.request_window -= size;
                assert!(self.request_window >= 0);
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.request_window -= size;
                    stream.is_request_ended |= frame.has(END_STREAM);
                }
            }
            RST_STREAM => {
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.is_reset_by_client = true;
                }
            }
            SETTINGS if frame.flags & 1 == 0 => self.sent_settings(frame.payload),
            WINDOW_UPDATE => {
                let increment = i64::from(frame.number(0) & 0x7fff_ffff);
                if frame.stream == 0 {
                    self.window += increment;
                } else if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.window += increment;
                }
            }
            _ => {}
        }
    }

    fn sent_block(&mut self, id: u32, ends: bool) {
        if id > self.highest {
            self.highest = id;
            let stream = Stream {
                is_request_ended: false,
                is_reset_by_client: false,
                blocks: 0,
                is_response_ended: false,
                is_reset_by_server: false,
                window: self.initial_window,
                request_window: INITIAL_WINDOW,
            };
            self.streams.insert(id, stream);
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_request_ended |= ends;
        }
    }

    fn sent_settings(&mut self, payload: &[u8]) {
        let before = self.initial_window;
        let mut highest = before;
        for setting in payload.chunks_exact(6) {
            if setting[..2] == [0, 4] {
                self.initial_window =
                    i64::from(u32::from_be_bytes(setting[2..].try_into().expect("four bytes")));
                highest = highest.max(self.initial_window);
            }
        }
        for stream in self.streams.values_mut() {
            stream.window += self.initial_window - before;
        }
        self.slack = highest - self.initial_window;
    }

    /// Records that the client sends no more: requests that are incomplete get no response.
    pub(crate) fn end_input(&mut self) {
        for stream in self.streams.values_mut() {
            stream.is_reset_by_client |= !stream.is_request_ended;
        }
    }

    /// Checks the frames that the session has written.
    pub(crate) fn check(&mut self, out: &[u8]) {
        let mut rest = out;
        while !rest.is_empty() {
            let frame = Frame::read(&mut rest).expect("complete frames");
            assert!(frame.payload.len() <= MAX_PAYLOAD_BYTES);
            self.received(&frame);
        }
        assert!(self.received_partial.is_none(), "an incomplete header block");
        self.slack = 0;
    }

    /// Checks the last frames of a connection that ends with an error.
    pub(crate) fn check_last(&mut self, out: &[u8], code: u32) {
        let (mut rest, mut last) = (out, None);
        while !rest.is_empty() {
            last = Some(Frame::read(&mut rest).expect("complete frames"));
        }
        let last = last.expect("a last frame");
        assert_eq!((last.kind, last.stream), (GOAWAY, 0));
        assert!(
            last.number(0) <= self.highest.max(self.sent_partial.map_or(0, |it| it.0))
                && last.number(4) == code
        );
    }

    fn received(&mut self, frame: &Frame<'_>) {
        let is_of_stream = matches!(frame.kind, DATA | HEADERS | RST_STREAM | CONTINUATION);
        assert!(!is_of_stream || frame.stream != 0);
        match self.received_partial.take() {
            Some((stream, block, ends)) => {
                assert_eq!(
                    (frame.kind, frame.stream),
                    (CONTINUATION, stream),
                    "a frame inside a header block"
                );
                return self.received_block(frame, [&block, frame.payload].concat(), ends);
            }
            None => assert_ne!(frame.kind, CONTINUATION, "a continuation of nothing"),
        }
        match frame.kind {
            HEADERS => self.received_block(frame, frame.payload.to_vec(), frame.has(END_STREAM)),
            DATA => {
                let size = i64::try_from(frame.payload.len()).expect("a short payload");
                let slack = self.slack;
                self.window -= size;
                assert!(self.window >= 0 || size == 0, "data beyond the window of the connection");
                let stream = self.responding(frame.stream);
                stream.window -= size;
                assert!(stream.window + slack >= 0 || size == 0, "data beyond the window of a stream");
                assert_eq!(stream.blocks, 1, "data before or after the headers");
                stream.is_response_ended = frame.has(END_STREAM);
            }
            RST_STREAM => {
                assert_eq!(frame.payload.len(), 4);
                let stream = self.stream(frame.stream);
                assert!(!stream.is_reset_by_server && !stream.is_reset_by_client, "a second reset");
                assert!(!(stream.is_request_ended && stream.is_response_ended), "a reset of a closed stream");
                stream.is_reset_by_server = true;
            }
            SETTINGS => assert!(frame.stream == 0 && frame.payload.len() % 6 == 0),
            PING => assert!(frame.stream == 0 && frame.payload.len() == 8),
            GOAWAY => {
                assert!(frame.stream == 0 && frame.number(4) == 0);
                assert!(frame.number(0) <= self.last_served);
                self.last_served = frame.number(0);
            }
            WINDOW_UPDATE => {
                assert_eq!(frame.payload.len(), 4);
                let increment = i64::from(frame.number(0));
                assert!(increment > 0);
                if frame.stream == 0 {
                    self.request_window += increment;
                    assert!(self.request_window <= MAX_CONNECTION_WINDOW);
                } else {
                    let stream = self.stream(frame.stream);
                    stream.request_window += increment;
                    assert!(stream.request_window <= INITIAL_WINDOW, "a window beyond that of the settings");
                    let is_closed = stream.is_reset_by_server || stream.is_reset_by_client;
                    assert!(!is_closed && !stream.is_request_ended, "a window of a closed stream");
                }
            }
            other => panic!("a frame of type {other}"),
        }
    }

    fn received_block(&mut self, frame: &Frame<'_>, block: Vec<u8>, ends: bool) {
        if !frame.has(END_HEADERS) {
            self.received_partial = Some((frame.stream, block, ends));
            return;
        }
        let fields = self.decoder.decode(&block).expect("a valid header block");
        let stream = self.responding(frame.stream);
        stream.blocks += 1;
        let is_head = stream.blocks == 1;
        assert!(is_head || ends, "trailers that do not end the response");
        stream.is_response_ended = ends;
        let pseudo = fields.iter().filter(|(name, _)| name.starts_with(b":")).count();
        assert_eq!(pseudo, usize::from(is_head));
        if is_head {
            let (name, value) = &fields[0];
            assert!(name == b":status" && value.len() == 3 && value.iter().all(u8::is_ascii_digit));
        }
        assert!(fields.iter().all(|(name, _)| !name.is_empty() && !name.iter().any(u8::is_ascii_uppercase)));
    }

    fn stream(&mut self, id: u32) -> &mut Stream {
        self.streams.get_mut(&id).unwrap_or_else(|| panic!("a frame of stream {id}, which was not opened"))
    }

    /// The stream of a frame of a response.
    fn responding(&mut self, id: u32) -> &mut Stream {
        let stream = self.stream(id);
        assert!(!stream.is_response_ended, "a frame after the response");
        assert!(
            !stream.is_reset_by_server && !stream.is_reset_by_client,
            "a frame of a stream that was reset"
        );
        stream
    }

    /// The end of a header block that the client has not completed.
    pub(crate) fn rest_of_block(&self) -> Option<Vec<u8>> {
        self.sent_partial.map(|(stream, _)| frame(CONTINUATION, END_HEADERS, stream, &[]))
    }

    /// The windows of the connection and of all responses that are not complete.
    pub(crate) fn open_windows(&self) -> Vec<(u32, i64)> {
        let streams = self.streams.iter().filter(|(_, it)| !it.is_response_ended && !it.is_reset());
        // The connection needs a window for all streams.
        let connection = self.window - i64::from(u32::MAX >> 2);
        std::iter::once((0, connection)).chain(streams.map(|(id, it)| (*id, it.window))).collect()
    }

    /// The requests that are neither complete nor reset.
    pub(crate) fn open_requests(&self) -> Vec<u32> {
        let streams = self.streams.iter();
        streams
            .filter(|(id, it)| !it.is_request_ended && !it.is_reset() && **id <= self.last_served)
            .map(|it| *it.0)
            .collect()
    }

    /// Checks that every complete request has got its response.
    pub(crate) fn check_answered(&self) {
        for (id, stream) in &self.streams {
            let is_complete =
                stream.is_request_ended && !stream.is_reset_by_client && *id <= self.last_served;
            let is_answered = stream.is_response_ended || stream.is_reset_by_server;
            assert!(!is_complete || is_answered, "stream {id} has no response: {stream:?}");
        }
    }
}

impl Stream {
    const fn is_reset(&self) -> bool {
        self.is_reset_by_client || self.is_reset_by_server
    }
}
