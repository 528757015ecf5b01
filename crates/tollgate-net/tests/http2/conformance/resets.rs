//! `RST_STREAM` frames (RFC 9113, section 6.4).

use super::Outcome::{ConnectionError, Ignored};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "generic/3.4/1",
            "a reset closes a stream",
            &[open(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])],
            Ignored,
        ),
        Case::new(
            "http2/6.4/1",
            "a reset of no stream ends the connection",
            &[frame(RST_STREAM, 0, 0, &[0, 0, 0, 8])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.4/2",
            "a reset of an idle stream ends the connection",
            &[frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.4/3",
            "a reset of another size ends the connection",
            &[open(1), frame(RST_STREAM, 0, 1, &[0, 0, 8])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "",
            "a reset of an even stream ends the connection",
            &[call(3), frame(RST_STREAM, 0, 2, &[0, 0, 0, 8])],
            ConnectionError(PROTOCOL_ERROR),
        ),
    ]
}

#[test]
fn resets_close_open_streams() {
    check(&cases());
}
