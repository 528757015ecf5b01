//! DATA frames (RFC 9113, section 6.1).

use super::Outcome::{Answered, ConnectionError, StreamError};
use super::*;
use crate::surface::NEVER;

pub(super) fn cases() -> Vec<Case> {
    let half_closed = [frame(HEADERS, END_HEADERS, 1, &block(NEVER, &[])), end(1, b"x")].concat();
    vec![
        Case::new("generic/3.1/1", "data are a message", &[open(1), end(1, b"hello")], Answered(1)),
        Case::new(
            "generic/3.1/2",
            "several frames are one message",
            &[open(1), frame(DATA, 0, 1, b"hel"), end(1, b"lo")],
            Answered(1),
        ),
        Case::new(
            "generic/3.1/3",
            "padding is removed",
            &[open(1), frame(DATA, PADDED | END_STREAM, 1, b"\x06hello\0\0\0\0\0\0")],
            Answered(1),
        ),
        Case::new(
            "http2/6.1/1",
            "data of no stream end the connection",
            &[end(0, b"x")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "data of an even stream end the connection",
            &[call(3), end(2, b"x")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.1/2",
            "data of a stream that is not open reset it",
            &[half_closed, end(1, b"x")],
            StreamError(1, STREAM_CLOSED),
        ),
        Case::new(
            "http2/6.1/3",
            "padding of the size of the frame ends the connection",
            &[open(1), frame(DATA, PADDED | END_STREAM, 1, b"\x06hello")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "a padded frame without a length ends the connection",
            &[open(1), frame(DATA, PADDED | END_STREAM, 1, b"")],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "",
            "a frame may be padding only",
            &[open(1), frame(DATA, 0, 1, b"x"), frame(DATA, PADDED | END_STREAM, 1, b"\x03\0\0\0")],
            Answered(1),
        ),
    ]
}

#[test]
fn data_are_accepted_on_open_streams() {
    check(&cases());
}
