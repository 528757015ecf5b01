//! The format and the size of frames, and header blocks (RFC 9113, sections 4.1 to 4.3).

use super::Outcome::{Answered, ConnectionError, Ignored, Received};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let call_block = block(ECHO, &[]);
    let large = |kind: u8| frame(kind, END_HEADERS | END_STREAM, 1, &vec![0; 16_385]);
    vec![
        Case::new(
            "http2/4.1/1",
            "a frame of unknown type is ignored",
            &[frame(0xff, 0, 0, &[0; 8])],
            Ignored,
        ),
        Case::new(
            "http2/4.1/2",
            "undefined flags of a PING are ignored",
            &[frame(PING, 0x16, 0, b"received")],
            Received(PING, ACK, b"received"),
        ),
        Case::new(
            "http2/4.1/3",
            "the reserved bit of a PING is ignored",
            &[frame(PING, 0, 0x8000_0000, b"received")],
            Received(PING, ACK, b"received"),
        ),
        Case::new(
            "http2/4.2/1",
            "data of 2^14 bytes are accepted",
            &[open(1), end(1, &[0; 16_384])],
            Answered(1),
        ),
        // A frame size error of a stream may be one of the connection (section 5.4.1).
        Case::new(
            "http2/4.2/2",
            "data of more than the maximum are refused",
            &[open(1), large(DATA)],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "http2/4.2/3",
            "headers of more than the maximum are refused",
            &[large(HEADERS)],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "http2/4.3/1",
            "an invalid header block ends the connection",
            &[frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x40\x02\x20")],
            ConnectionError(COMPRESSION_ERROR),
        ),
        Case::new(
            "http2/4.3/2",
            "a priority inside a header block ends the connection",
            &[frame(HEADERS, 0, 1, &call_block), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 255])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/4.3/3",
            "headers of another stream inside a header block end the connection",
            &[frame(HEADERS, 0, 1, &call_block), open(3)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "data inside a header block end the connection",
            &[frame(HEADERS, 0, 1, &call_block), end(1, b"x")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "a PING inside a header block ends the connection",
            &[frame(HEADERS, 0, 1, &call_block), frame(PING, 0, 0, &[0; 8])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "settings inside a header block end the connection",
            &[frame(HEADERS, 0, 1, &call_block), frame(SETTINGS, 0, 0, &[])],
            ConnectionError(PROTOCOL_ERROR),
        ),
    ]
}

#[test]
fn frames_have_the_format_and_the_size_of_the_standard() {
    check(&cases());
}
