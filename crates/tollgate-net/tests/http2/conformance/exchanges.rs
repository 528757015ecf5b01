//! Exchanges of valid messages (RFC 9113, section 8.1).

use super::Outcome::Answered;
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let head = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x02\x04HEAD\x86\x84");
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal("x-test", "ok"));
    vec![
        Case::new("generic/4/1", "a GET request is answered", &[get(1)], Answered(1)),
        Case::new("generic/4/2", "a HEAD request is answered", &[head], Answered(1)),
        Case::new("generic/4/3", "a POST request is answered", &[call(1)], Answered(1)),
        Case::new(
            "generic/4/4",
            "a POST request with trailers is answered",
            &[open(1), frame(DATA, 0, 1, b"x"), trailers],
            Answered(1),
        ),
    ]
}

#[test]
fn valid_requests_are_answered() {
    check(&cases());
}
