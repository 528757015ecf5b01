//! The states, identifiers and concurrency of streams (RFC 9113, section 5.1), and errors of connections (section 5.4).

use super::Outcome::{Answered, ConnectionError, Ignored, StreamError};
use super::*;
use crate::surface::{NEVER, STREAM};

pub(super) const COVERED: &[&str] = &["http2/5.1.2/1"];

/// A call that gets no response, whose client sends no more.
fn half_closed(stream: u32) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, &block(NEVER, &[])), end(stream, b"x")].concat()
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

pub(super) fn cases() -> Vec<Case> {
    let continuation = frame(CONTINUATION, END_HEADERS, 1, &literal("x", "y"));
    let window = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]);
    let mut cases = idle_and_half_closed(&continuation, &window);
    cases.extend(closed(&continuation, &window));
    cases.extend(identifiers());
    cases
}

fn idle_and_half_closed(continuation: &[u8], window: &[u8]) -> Vec<Case> {
    let invalid_ping = frame(PING, 0, 3, &[0; 8]);
    vec![
        Case::new(
            "http2/5.1/1",
            "idle: data end the connection",
            &[end(1, b"x")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.1/2",
            "idle: a reset ends the connection",
            &[reset(1)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.1/3",
            "idle: a window update ends the connection",
            &[window.to_vec()],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.1/4",
            "idle: a continuation ends the connection",
            &[continuation.to_vec()],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.1/5",
            "half-closed: data reset the stream",
            &[half_closed(1), end(1, b"x")],
            StreamError(1, STREAM_CLOSED),
        ),
        Case::new(
            "http2/5.1/6",
            "half-closed: headers reset the stream",
            &[half_closed(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal("x", "y"))],
            StreamError(1, STREAM_CLOSED),
        ),
        Case::new(
            "",
            "half-closed: data beyond the announced length reset the stream for the same reason",
            &[
                frame(HEADERS, END_HEADERS, 1, &block(NEVER, &[("content-length", "1")])),
                end(1, b"x"),
                end(1, b"x"),
            ],
            StreamError(1, STREAM_CLOSED),
        ),
        Case::new(
            "http2/5.1/7",
            "half-closed: a continuation ends the connection",
            &[half_closed(1), continuation.to_vec()],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "generic/2/1",
            "idle: a priority is ignored",
            &[frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 255]), call(1)],
            Answered(1),
        ),
        Case::new(
            "generic/2/2",
            "half-closed: a window update lets the response continue",
            &[frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), call(1), window.to_vec()],
            Answered(1),
        ),
        Case::new(
            "generic/2/3",
            "half-closed: a priority is ignored",
            &[half_closed(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 255])],
            Ignored,
        ),
        Case::new("generic/2/4", "half-closed: a reset is accepted", &[half_closed(1), reset(1)], Ignored),
        Case::new(
            "http2/5.4.1/1",
            "an invalid PING ends the connection",
            std::slice::from_ref(&invalid_ping),
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.4.1/2",
            "an invalid PING after a request ends the connection with a GOAWAY",
            &[half_closed(1), invalid_ping],
            ConnectionError(PROTOCOL_ERROR),
        ),
    ]
}

fn closed(continuation: &[u8], window: &[u8]) -> Vec<Case> {
    // RFC 7540 wants stream errors after a reset of the client; RFC 9113 permits an error of the connection for every
    // frame that a client sends on a stream that it has closed itself.
    let cancelled = [open(1), reset(1)].concat();
    let early = frame(HEADERS, END_HEADERS, 1, &block("/other", &[("content-length", "9")]));
    let refused = frame(HEADERS, END_HEADERS, 1, &block(ECHO, &[("X", "y")]));
    vec![
        Case::new(
            "http2/5.1/8",
            "closed by a reset: data end the connection",
            &[cancelled.clone(), end(1, b"x")],
            ConnectionError(STREAM_CLOSED),
        ),
        Case::new(
            "http2/5.1/9",
            "closed by a reset: headers end the connection",
            &[cancelled.clone(), call(1)],
            ConnectionError(STREAM_CLOSED),
        ),
        Case::new(
            "http2/5.1/10",
            "closed by a reset: a continuation ends the connection",
            &[cancelled, continuation.to_vec()],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.1/11",
            "closed: data end the connection",
            &[end(1, b"x")],
            ConnectionError(STREAM_CLOSED),
        )
        .after(&[call(1)], 1),
        Case::new(
            "http2/5.1/12",
            "closed: headers end the connection",
            &[call(1)],
            ConnectionError(STREAM_CLOSED),
        )
        .after(&[call(1)], 1),
        Case::new(
            "http2/5.1/13",
            "closed: a continuation ends the connection",
            &[continuation.to_vec()],
            ConnectionError(PROTOCOL_ERROR),
        )
        .after(&[call(1)], 1),
        Case::new("generic/2/5", "closed: a priority is ignored", &[frame(PRIORITY, 0, 1, &[0; 5])], Ignored)
            .after(&[call(1)], 1),
        Case::new(
            "",
            "closed: a reset and a window update are ignored",
            &[reset(1), window.to_vec()],
            Ignored,
        )
        .after(&[call(1)], 1),
        // The client may have sent these before it knew of the reset.
        Case::new(
            "",
            "closed by the server: data and trailers are ignored",
            &[
                refused,
                frame(DATA, 0, 1, b"x"),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal("x", "y")),
            ],
            StreamError(1, PROTOCOL_ERROR),
        ),
        // The end of the request closes the stream, so that no error can be reported.
        Case::new(
            "",
            "answered early: an end before the announced length closes the stream",
            &[end(1, b"x")],
            Ignored,
        )
        .after(std::slice::from_ref(&early), 1),
        Case::new(
            "",
            "answered early: invalid trailers close the stream",
            &[frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal("X", "y"))],
            Ignored,
        )
        .after(&[early], 1),
        Case::new(
            "",
            "closed by the server: a request with a body is answered early",
            &[frame(HEADERS, END_HEADERS, 1, &block("/other", &[])), end(1, &[0; 1_000])],
            Answered(1),
        ),
    ]
}

fn identifiers() -> Vec<Case> {
    let stream = frame(HEADERS, END_HEADERS, 1, &block(STREAM, &[]));
    vec![
        Case::new(
            "http2/5.1.1/1",
            "an even stream ends the connection",
            &[call(2)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/5.1.1/2",
            "a stream below the last one ends the connection",
            &[half_closed(5), call(3)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "",
            "data of a stream that was skipped end the connection",
            &[half_closed(5), end(3, b"x")],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new("", "streams may be skipped", &[call(1), call(7), call(9)], Answered(9)),
        Case::new("", "two streams are independent", &[stream, call(3)], Answered(3)),
    ]
}

#[test]
fn frames_are_accepted_in_the_states_of_the_standard() {
    check(&cases());
}

#[test]
fn a_stream_beyond_the_maximum_is_refused() {
    let server = Server::start(Caps { streams: 2, ..Caps::default() });
    let mut client = RawClient::connect(server.address);
    let settings = client.next().unwrap();
    assert_eq!(settings.payload[..6], [0, 3, 0, 0, 0, 2], "the maximum is announced");
    client.send(&[half_closed(1), half_closed(3), half_closed(5)].concat());
    let refused = client.until(RST_STREAM);
    assert_eq!((refused.stream, refused.payload[3]), (5, REFUSED_STREAM));
    server.stop(client);
}
