//! Frames of HTTP/2: their heads, and writing them.

use http::HeaderMap;

/// The size of the head of a frame.
pub(super) const HEAD_BYTES: usize = 9;
/// The maximum payload of a frame that is received: the default of HTTP/2, which is never raised.
pub(super) const MAX_PAYLOAD_BYTES: usize = 16_384;
/// The maximum of a flow control window.
pub(super) const MAX_WINDOW: i64 = (1 << 31) - 1;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const HAS_PRIORITY: u8 = 32;

pub(super) const SETTING_ENABLE_PUSH: u16 = 2;
pub(super) const SETTING_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const SETTING_INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const SETTING_MAX_FRAME_SIZE: u16 = 5;
pub(super) const SETTING_MAX_HEADER_LIST_SIZE: u16 = 6;

/// An error code of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    FlowControlError = 3,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    CompressionError = 9,
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    /// Reads a head; `None` if it is incomplete.
    #[inline]
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = *input else { return None };
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The highest bit is reserved and ignored.
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        Some(Self { length, kind, flags, stream })
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes the head of a frame.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the length of a frame has 24 bits")]
pub(super) fn write_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    let (a, b, c) = ((length >> 16) as u8, (length >> 8) as u8, length as u8);
    out.extend_from_slice(&[a, b, c, kind, flags, s0, s1, s2, s3]);
}

pub(super) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    write_head(out, settings.len() * 6, SETTINGS, 0, 0);
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn write_ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    write_head(out, 8, PING, flags, 0);
    out.extend_from_slice(&payload);
}

pub(super) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_head(out, 4, WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    write_head(out, 4, RST_STREAM, 0, stream);
    out.extend_from_slice(&(reason as u32).to_be_bytes());
}

pub(super) fn write_go_away(out: &mut Vec<u8>, last: u32, reason: Reason) {
    write_head(out, 8, GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(reason as u32).to_be_bytes());
}

/// Writes a header block, in several frames if one is too small for it.
pub(super) fn write_block(out: &mut Vec<u8>, stream: u32, block: &[u8], ends: bool, max_payload: usize) {
    let end_stream = if ends { END_STREAM } else { 0 };
    let (first, mut rest) = block.split_at(block.len().min(max_payload));
    let end_headers = if rest.is_empty() { END_HEADERS } else { 0 };
    write_head(out, first.len(), HEADERS, end_stream | end_headers, stream);
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (next, more) = rest.split_at(rest.len().min(max_payload));
        let end_headers = if more.is_empty() { END_HEADERS } else { 0 };
        write_head(out, next.len(), CONTINUATION, end_headers, stream);
        out.extend_from_slice(next);
        rest = more;
    }
}

/// Encodes headers without a table, so that no state is kept for them. `status`: of a response, not of trailers.
pub(super) fn encode(status: Option<u16>, headers: &HeaderMap) -> Vec<u8> {
    let mut block = Vec::with_capacity(64 + 48 * headers.len());
    match status {
        Some(200) => block.push(0x88),
        Some(status) => {
            block.extend_from_slice(&[0x08, 3]);
            block.extend_from_slice(format!("{status:03}").as_bytes());
        }
        None => {}
    }
    for (name, value) in headers {
        block.push(0);
        encode_string(&mut block, name.as_str().as_bytes());
        encode_string(&mut block, value.as_bytes());
    }
    block
}

#[allow(clippy::cast_possible_truncation, reason = "the remaining bits fit into seven")]
fn encode_string(block: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        short @ ..0x7f => block.push(short as u8),
        long => {
            block.push(0x7f);
            let mut rest = long - 0x7f;
            while rest >= 0x80 {
                block.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text);
}
