//! HEADERS frames (RFC 9113, section 6.2).

use super::Outcome::{Answered, ConnectionError};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let call_block = block(ECHO, &[]);
    let padded = [&[3][..], &call_block, &[0; 3]].concat();
    let with_priority = [&[0, 0, 0, 0, 255][..], &call_block].concat();
    let with_both = [&[3, 0, 0, 0, 0, 255][..], &call_block, &[0; 3]].concat();
    vec![
        Case::new("generic/3.2/1", "headers open a stream", &[call(1)], Answered(1)),
        Case::new(
            "generic/3.2/2",
            "padding is removed",
            &[frame(HEADERS, END_HEADERS | PADDED, 1, &padded), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "generic/3.2/3",
            "a priority is removed",
            &[frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, &with_priority), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "",
            "padding and a priority are removed",
            &[frame(HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, 1, &with_both), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "http2/6.2/1",
            "a priority after incomplete headers ends the connection",
            &[frame(HEADERS, 0, 1, &call_block), frame(PRIORITY, 0, 1, &[0; 5])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.2/2",
            "headers of another stream after incomplete headers end the connection",
            &[frame(HEADERS, END_STREAM, 1, &call_block), call(3)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.2/3",
            "headers of no stream end the connection",
            &[frame(HEADERS, END_HEADERS, 0, &call_block)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.2/4",
            "padding of more than the frame ends the connection",
            &[frame(HEADERS, END_HEADERS | PADDED, 1, &[&[0xff][..], &call_block].concat())],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "a priority that is cut off ends the connection",
            &[frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, &[0; 4])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
    ]
}

#[test]
fn headers_open_streams() {
    check(&cases());
}
