//! GOAWAY frames (RFC 9113, section 6.8).

use super::Outcome::{Answered, Closed, ConnectionError};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let goaway = frame(GOAWAY, 0, 0, &[0; 8]);
    vec![
        Case::new("generic/3.8/1", "an idle connection is closed", std::slice::from_ref(&goaway), Closed),
        Case::new(
            "http2/6.8/1",
            "a GOAWAY of a stream ends the connection",
            &[frame(GOAWAY, 0, 1, &[0; 8])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "a GOAWAY with data is accepted",
            &[frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0reason")],
            Closed,
        ),
        Case::new(
            "",
            "a GOAWAY that is cut off ends the connection",
            &[frame(GOAWAY, 0, 0, &[0; 7])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new("", "a request before the GOAWAY is answered", &[open(1), goaway, end(1, b"x")], Closed),
        Case::new("", "requests without a GOAWAY are answered", &[call(1), call(3)], Answered(3)),
    ]
}

#[test]
fn a_client_that_goes_away_is_disconnected() {
    check(&cases());
}

#[test]
fn a_request_in_progress_is_answered_after_the_goaway_of_its_client() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.send(&[open(1), frame(GOAWAY, 0, 0, &[0; 8]), end(1, b"in progress")].concat());
    assert_eq!(client.response(1).1, b"in progress");
    assert_eq!(client.next(), None);
    server.stop(client);
}
