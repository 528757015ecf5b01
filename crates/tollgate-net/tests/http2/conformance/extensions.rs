//! Unknown frames and error codes (RFC 9113, sections 5.5 and 7).

use super::Outcome::{Closed, ConnectionError, Ignored};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "http2/5.5/1",
            "an unknown frame is ignored",
            &[frame(0x16, 0, 0, b"unknown"), open(1), frame(0x16, 0, 1, b"unknown"), end(1, b"x")],
            Outcome::Answered(1),
        ),
        Case::new(
            "http2/5.5/2",
            "an unknown frame inside a header block ends the connection",
            &[frame(HEADERS, 0, 1, &block(ECHO, &[])), frame(0x16, 0, 0, b"unknown")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/7/1",
            "a GOAWAY with an unknown code closes the connection",
            &[frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff])],
            Closed,
        ),
        Case::new(
            "http2/7/2",
            "a reset with an unknown code is accepted",
            &[open(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 0xff])],
            Ignored,
        ),
    ]
}

#[test]
fn unknown_frames_and_codes_have_no_effect() {
    check(&cases());
}
