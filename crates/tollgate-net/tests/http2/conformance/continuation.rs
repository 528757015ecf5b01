//! CONTINUATION frames (RFC 9113, section 6.10).

use super::Outcome::{Answered, ConnectionError};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let call_block = block(ECHO, &[]);
    let start = frame(HEADERS, 0, 1, &call_block);
    let more = |flags: u8| frame(CONTINUATION, flags, 1, &literal("x", "y"));
    let (first, rest) = call_block.split_at(7);
    vec![
        Case::new(
            "generic/3.10/1",
            "one frame continues headers",
            &[start.clone(), more(END_HEADERS), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "generic/3.10/2",
            "several frames continue headers",
            &[start.clone(), more(0), more(END_HEADERS), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "http2/6.10/1",
            "a block may be cut anywhere",
            &[
                frame(HEADERS, 0, 1, first),
                frame(CONTINUATION, 0, 1, &[]),
                frame(CONTINUATION, 4, 1, rest),
                end(1, b"x"),
            ],
            Answered(1),
        ),
        Case::new(
            "http2/6.10/2",
            "another frame than a continuation ends the connection",
            &[start.clone(), more(0), end(1, b"x")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.10/3",
            "a continuation of no stream ends the connection",
            &[start.clone(), frame(CONTINUATION, END_HEADERS, 0, &literal("x", "y"))],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "a continuation of another stream ends the connection",
            &[start.clone(), frame(CONTINUATION, END_HEADERS, 3, &literal("x", "y"))],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.10/4",
            "a continuation of complete headers ends the connection",
            &[open(1), more(END_HEADERS)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.10/5",
            "a continuation after the last one ends the connection",
            &[start, more(END_HEADERS), more(END_HEADERS)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.10/6",
            "a continuation after data ends the connection",
            &[open(1), frame(DATA, 0, 1, b"x"), more(END_HEADERS)],
            ConnectionError(PROTOCOL_ERROR),
        ),
    ]
}

#[test]
fn continuations_complete_headers() {
    check(&cases());
}
