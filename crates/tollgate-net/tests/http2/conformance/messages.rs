//! HTTP messages: pseudo-headers, headers of connections, and lengths (RFC 9113, section 8).

use super::Outcome::{Answered, ConnectionError, StreamError};
use super::*;
use crate::surface::STREAM;

/// The pseudo-headers of a request.
const PSEUDO: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "localhost")];

/// A request that consists of these headers.
fn request(headers: &[(&str, &str)]) -> Vec<u8> {
    let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
}

/// A request with other headers after the pseudo-headers.
fn with(headers: &[(&'static str, &'static str)]) -> Vec<u8> {
    request(&[&PSEUDO[..], headers].concat())
}

/// A request without one of the pseudo-headers.
fn without(name: &str) -> Vec<u8> {
    request(&PSEUDO.into_iter().filter(|it| it.0 != name).collect::<Vec<_>>())
}

fn malformed(number: &'static str, name: &'static str, frames: &[Vec<u8>]) -> Case {
    Case::new(number, name, frames, StreamError(1, PROTOCOL_ERROR))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = headers();
    cases.extend(pseudo_headers());
    cases.extend(lengths());
    cases.push(Case::new(
        "http2/8.2/1",
        "a push ends the connection",
        &[frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02\x82\x86\x84")],
        ConnectionError(PROTOCOL_ERROR),
    ));
    cases
}

fn headers() -> Vec<Case> {
    let trailers = |flags: u8, block: &[u8]| frame(HEADERS, END_HEADERS | flags, 1, block);
    let stream = frame(HEADERS, END_HEADERS, 1, &block(STREAM, &[]));
    vec![
        malformed(
            "http2/8.1/1",
            "second headers that do not end the request are malformed",
            &[open(1), trailers(0, &literal("x", "y"))],
        ),
        malformed(
            "",
            "second headers of a stream that do not end it are malformed",
            &[stream, trailers(0, &literal("x", "y"))],
        ),
        malformed("http2/8.1.2/1", "a name in upper case is malformed", &[with(&[("X-TEST", "ok")])]),
        malformed("", "a name with a space is malformed", &[with(&[("x test", "ok")])]),
        malformed("", "a name with a colon is malformed", &[with(&[("x:test", "ok")])]),
        malformed("", "an empty name is malformed", &[with(&[("", "ok")])]),
        malformed("", "a value with a line feed is malformed", &[with(&[("x", "a\nb")])]),
        malformed("", "a value with a carriage return is malformed", &[with(&[("x", "a\rb")])]),
        malformed("", "a value with a zero byte is malformed", &[with(&[("x", "a\0b")])]),
        malformed("", "a value that starts with a space is malformed", &[with(&[("x", " a")])]),
        malformed("", "a value that ends with a tab is malformed", &[with(&[("x", "a\t")])]),
        malformed(
            "http2/8.1.2.2/1",
            "a header of the connection is malformed",
            &[with(&[("connection", "keep-alive")])],
        ),
        malformed(
            "http2/8.1.2.2/2",
            "a TE other than trailers is malformed",
            &[with(&[("te", "trailers, deflate")])],
        ),
        malformed("", "an upgrade is malformed", &[with(&[("upgrade", "websocket")])]),
        malformed("", "a transfer encoding is malformed", &[with(&[("transfer-encoding", "chunked")])]),
        malformed("", "a keep-alive header is malformed", &[with(&[("keep-alive", "timeout=5")])]),
        malformed("", "a proxy connection is malformed", &[with(&[("proxy-connection", "keep-alive")])]),
        malformed(
            "",
            "a header of the connection in trailers is malformed",
            &[open(1), trailers(END_STREAM, &literal("connection", "close"))],
        ),
        Case::new("", "trailers may be accepted", &[with(&[("te", "trailers")])], Answered(1)),
    ]
}

fn pseudo_headers() -> Vec<Case> {
    let twice = |at: usize| request(&[&PSEUDO[..], &PSEUDO[at..=at]].concat());
    let late = [&[("x", "y")][..], &PSEUDO].concat();
    let path = |path: &'static str| request(&[PSEUDO[0], PSEUDO[1], (":path", path)]);
    vec![
        malformed("http2/8.1.2.1/1", "an unknown pseudo-header is malformed", &[with(&[(":test", "ok")])]),
        malformed(
            "http2/8.1.2.1/2",
            "a pseudo-header of a response is malformed",
            &[with(&[(":status", "200")])],
        ),
        malformed(
            "http2/8.1.2.1/3",
            "a pseudo-header in trailers is malformed",
            &[open(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal(":method", "POST"))],
        ),
        malformed("http2/8.1.2.1/4", "a pseudo-header after a header is malformed", &[request(&late)]),
        malformed("http2/8.1.2.3/1", "an empty path is malformed", &[path("")]),
        malformed("http2/8.1.2.3/2", "a request without a method is malformed", &[without(":method")]),
        malformed("http2/8.1.2.3/3", "a request without a scheme is malformed", &[without(":scheme")]),
        malformed("http2/8.1.2.3/4", "a request without a path is malformed", &[without(":path")]),
        malformed("http2/8.1.2.3/5", "a request with two methods is malformed", &[twice(0)]),
        malformed("http2/8.1.2.3/6", "a request with two schemes is malformed", &[twice(1)]),
        malformed("http2/8.1.2.3/7", "a request with two paths is malformed", &[twice(2)]),
        malformed("", "a request with two authorities is malformed", &[twice(3)]),
        malformed(
            "",
            "a request with two empty authorities is malformed",
            &[request(&[&PSEUDO[..3], &[(":authority", ""), (":authority", "")]].concat())],
        ),
        malformed("", "a path without a slash is malformed", &[path("index")]),
        malformed("", "a path with an asterisk is malformed, except for OPTIONS", &[path("*")]),
        Case::new(
            "",
            "OPTIONS may have an asterisk as its path",
            &[request(&[(":method", "OPTIONS"), PSEUDO[1], (":path", "*")])],
            Answered(1),
        ),
        Case::new("", "a request without an authority is served", &[without(":authority")], Answered(1)),
    ]
}

fn lengths() -> Vec<Case> {
    let call = |length: &str| frame(HEADERS, END_HEADERS, 1, &block(ECHO, &[("content-length", length)]));
    let data = |flags: u8| frame(DATA, flags, 1, b"test");
    vec![
        malformed("http2/8.1.2.6/1", "data of another length are malformed", &[call("1"), data(END_STREAM)]),
        malformed(
            "http2/8.1.2.6/2",
            "frames of another length are malformed",
            &[call("1"), data(0), data(END_STREAM)],
        ),
        malformed("", "less data than the length are malformed", &[call("5"), data(END_STREAM)]),
        malformed("", "a length without data is malformed", &[with(&[("content-length", "1")])]),
        malformed("", "a length that is no number is malformed", &[with(&[("content-length", "-1")])]),
        malformed(
            "",
            "different lengths are malformed",
            &[with(&[("content-length", "0"), ("content-length", "1")])],
        ),
        malformed(
            "",
            "trailers before the length is reached are malformed",
            &[call("5"), data(0), frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal("x", "y"))],
        ),
        Case::new(
            "",
            "data of the length are accepted",
            &[call("8"), data(0), data(END_STREAM)],
            Answered(1),
        ),
        Case::new(
            "",
            "a length of zero without data is accepted",
            &[with(&[("content-length", "0")])],
            Answered(1),
        ),
    ]
}

#[test]
fn malformed_messages_reset_their_stream() {
    check(&cases());
}
