//! Priorities, which are checked and not used (RFC 9113, sections 5.3 and 6.3).

use super::Outcome::{Answered, ConnectionError};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let priority = |stream: u32, payload: [u8; 5]| frame(PRIORITY, 0, stream, &payload);
    let dependent = |payload: [u8; 5]| {
        frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, &[&payload[..], &block(ECHO, &[])].concat())
    };
    vec![
        Case::new(
            "generic/3.3/1",
            "a weight of 1 is ignored",
            &[priority(1, [0, 0, 0, 0, 0]), call(1)],
            Answered(1),
        ),
        Case::new(
            "generic/3.3/2",
            "a weight of 256 is ignored",
            &[priority(1, [0, 0, 0, 0, 255]), call(1)],
            Answered(1),
        ),
        Case::new(
            "generic/3.3/3",
            "a dependency is ignored",
            &[call(1), priority(3, [0, 0, 0, 1, 9]), call(3)],
            Answered(3),
        ),
        Case::new(
            "generic/3.3/4",
            "an exclusive dependency is ignored",
            &[call(1), priority(3, [0x80, 0, 0, 1, 9]), call(3)],
            Answered(3),
        ),
        Case::new(
            "generic/3.3/5",
            "a priority opens no stream",
            &[priority(5, [0, 0, 0, 0, 255]), call(3)],
            Answered(3),
        ),
        // RFC 9113 has removed the error of RFC 7540 with the priorities themselves.
        Case::new(
            "http2/5.3.1/1",
            "headers that depend on their own stream are accepted",
            &[dependent([0, 0, 0, 1, 255]), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "http2/5.3.1/2",
            "a priority that depends on its own stream is ignored",
            &[priority(1, [0, 0, 0, 1, 255]), call(1)],
            Answered(1),
        ),
        Case::new(
            "http2/6.3/1",
            "a priority of no stream ends the connection",
            &[priority(0, [0, 0, 0, 0, 255])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        // An error of a stream that is idle cannot be reported as one.
        Case::new(
            "http2/6.3/2",
            "a priority of another size ends the connection",
            &[frame(PRIORITY, 0, 1, &[0, 0, 0, 1])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
    ]
}

#[test]
fn priorities_are_checked_and_ignored() {
    check(&cases());
}
