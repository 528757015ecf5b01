//! PING frames (RFC 9113, section 6.7).

use super::Outcome::{ConnectionError, Ignored, Received};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "generic/3.7/1",
            "a PING is answered",
            &[frame(PING, 0, 0, b"12345678")],
            Received(PING, ACK, b"12345678"),
        ),
        Case::new(
            "http2/6.7/1",
            "a PING is answered with the same payload",
            &[frame(PING, 0, 0, b"h2spec\0\0")],
            Received(PING, ACK, b"h2spec\0\0"),
        ),
        // The name of this case has no type of frame: no such frame may arrive.
        Case::new(
            "http2/6.7/2",
            "a confirmation is not answered",
            &[frame(PING, ACK, 0, b"invalid ")],
            Ignored,
        ),
        Case::new(
            "http2/6.7/3",
            "a PING of a stream is invalid",
            &[frame(PING, 0, 1, &[0; 8])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.7/4",
            "a PING of another size is invalid",
            &[frame(PING, 0, 0, &[0; 6])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
    ]
}

#[test]
fn pings_are_answered() {
    check(&cases());
}
