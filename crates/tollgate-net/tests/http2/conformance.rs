//! Conformance with HTTP/2 (RFC 9113) and HPACK (RFC 7541): the cases of h2spec that concern a server, and some more.
//!
//! A case is a sequence of frames and its outcome. Its number is that of h2spec, such as `http2/6.5.2/3`, whose sections
//! are those of RFC 7540; a case without a number is ours. Where RFC 9113 differs, it decides, and a comment says so.

mod continuation;
mod data;
mod exchanges;
mod extensions;
mod framing;
mod goaway;
mod headers;
mod hpack;
mod messages;
mod ping;
mod preface;
mod priority;
mod resets;
mod settings;
mod stream_states;
mod windows;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate_net::Caps;

use crate::frames::*;
use crate::surface::{ECHO, Server};

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const HAS_PRIORITY: u8 = 32;

/// The stream of a call that shows that a connection still works.
const LAST_STREAM: u32 = 101;
/// The numbers of cases in each section of h2spec.
const SECTIONS: [(&str, usize); 49] = [
    ("generic/1", 1),
    ("generic/2", 5),
    ("generic/3.1", 3),
    ("generic/3.2", 3),
    ("generic/3.3", 5),
    ("generic/3.4", 1),
    ("generic/3.5", 1),
    ("generic/3.7", 1),
    ("generic/3.8", 1),
    ("generic/3.9", 2),
    ("generic/3.10", 2),
    ("generic/4", 4),
    ("generic/5", 15),
    ("http2/3.5", 2),
    ("http2/4.1", 3),
    ("http2/4.2", 3),
    ("http2/4.3", 3),
    ("http2/5.1", 13),
    ("http2/5.1.1", 2),
    ("http2/5.1.2", 1),
    ("http2/5.3.1", 2),
    ("http2/5.4.1", 2),
    ("http2/5.5", 2),
    ("http2/6.1", 3),
    ("http2/6.2", 4),
    ("http2/6.3", 2),
    ("http2/6.4", 3),
    ("http2/6.5", 3),
    ("http2/6.5.2", 5),
    ("http2/6.5.3", 2),
    ("http2/6.7", 4),
    ("http2/6.8", 1),
    ("http2/6.9", 3),
    ("http2/6.9.1", 3),
    ("http2/6.9.2", 3),
    ("http2/6.10", 6),
    ("http2/7", 2),
    ("http2/8.1", 1),
    ("http2/8.1.2", 1),
    ("http2/8.1.2.1", 4),
    ("http2/8.1.2.2", 2),
    ("http2/8.1.2.3", 7),
    ("http2/8.1.2.6", 2),
    ("http2/8.2", 1),
    ("hpack/2.3.3", 2),
    ("hpack/4.2", 1),
    ("hpack/5.2", 3),
    ("hpack/6.1", 1),
    ("hpack/6.3", 1),
];

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The stream gets a response, and the connection works.
    Answered(u32),
    /// The connection works, and no frame reports an error.
    Ignored,
    /// A frame of this type, with these flags and this payload, arrives, and the connection works.
    Received(u8, u8, &'static [u8]),
    /// The stream is reset with this code, and the connection works.
    StreamError(u32, u8),
    /// The connection ends with this code.
    ConnectionError(u8),
    /// The connection ends without an error.
    Closed,
}

/// Frames, and the outcome of sending them.
pub(crate) struct Case {
    number: &'static str,
    name: &'static str,
    /// Frames whose response on this stream is awaited first.
    before: Option<(Vec<u8>, u32)>,
    frames: Vec<u8>,
    outcome: Outcome,
}

impl Case {
    /// A case with its number in h2spec, or an empty one.
    pub(crate) fn new(
        number: &'static str,
        name: &'static str,
        frames: &[Vec<u8>],
        outcome: Outcome,
    ) -> Self {
        Self { number, name, before: None, frames: frames.concat(), outcome }
    }

    /// Sends other frames before, and awaits the response of a stream.
    pub(crate) fn after(mut self, frames: &[Vec<u8>], stream: u32) -> Self {
        self.before = Some((frames.concat(), stream));
        self
    }

    fn run(&self, server: &Server) {
        let mut client = RawClient::connect(server.address);
        if let Some((frames, stream)) = &self.before {
            client.send(frames);
            client.response(*stream);
        }
        client.send(&self.frames);
        let context = format!("{} {}", self.number, self.name);
        match self.outcome {
            Outcome::ConnectionError(code) => {
                let last = last_frame(&mut client, |it| it.kind == GOAWAY, &context);
                assert_eq!(last.payload[4..], [0, 0, 0, code], "{context}");
                assert_eq!(client.next(), None, "{context}: frames after the last one");
                return;
            }
            Outcome::Closed => {
                while let Some(found) = client.next() {
                    let is_error = found.kind == GOAWAY && found.payload[7] != 0 || found.kind == RST_STREAM;
                    assert!(!is_error, "{context}: {found:?}");
                }
                return;
            }
            Outcome::StreamError(stream, code) => {
                let reset = last_frame(&mut client, |it| it.kind == RST_STREAM, &context);
                assert_eq!((reset.stream, &reset.payload[..]), (stream, &[0, 0, 0, code][..]), "{context}");
            }
            Outcome::Answered(stream) => {
                let is_end = |it: &RawFrame| it.stream == stream && it.flags & END_STREAM != 0;
                let end = last_frame(&mut client, is_end, &context);
                assert!(matches!(end.kind, HEADERS | DATA), "{context}: {end:?}");
            }
            Outcome::Received(kind, flags, payload) => {
                let is_same = |it: &RawFrame| (it.kind, it.flags, &it.payload[..]) == (kind, flags, payload);
                last_frame(&mut client, is_same, &context);
            }
            Outcome::Ignored => {}
        }
        client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]));
        client.call(LAST_STREAM, ECHO, b"still works");
        let is_end = |it: &RawFrame| it.stream == LAST_STREAM && it.flags & END_STREAM != 0;
        last_frame(&mut client, is_end, &context);
    }
}

/// Reads until a frame, and checks that no other frame reports an error.
fn last_frame(client: &mut RawClient, is_last: impl Fn(&RawFrame) -> bool, context: &str) -> RawFrame {
    loop {
        let found = client.next().unwrap_or_else(|| panic!("{context}: the connection ended"));
        if is_last(&found) {
            return found;
        }
        let is_expected = matches!(found.kind, DATA | HEADERS | SETTINGS | WINDOW_UPDATE);
        assert!(is_expected || found.kind == PING && context.contains("PING"), "{context}: {found:?}");
    }
}

/// Runs cases, each on its own connection.
fn check(cases: &[Case]) {
    let server = Server::start(Caps::default());
    let is_failed = |case: &&Case| catch_unwind(AssertUnwindSafe(|| case.run(&server))).is_err();
    let failed: Vec<_> = cases.iter().filter(is_failed).map(|it| (it.number, it.name)).collect();
    assert!(failed.is_empty(), "{failed:?}");
    server.stop(());
}

/// The headers of a call that is echoed.
fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(ECHO, &[]))
}

/// The message of a call, and its end.
fn end(stream: u32, message: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, message)
}

/// The frames of a whole call.
fn call(stream: u32) -> Vec<u8> {
    [open(stream), end(stream, b"hello")].concat()
}

/// The headers of a request without a body, for a path that the surface answers with 404.
fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\x82\x86\x84")
}

/// A header as a literal without indexing.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

#[test]
fn every_case_of_h2spec_is_covered() {
    let cases = [
        continuation::cases(),
        data::cases(),
        exchanges::cases(),
        extensions::cases(),
        framing::cases(),
        goaway::cases(),
        headers::cases(),
        hpack::cases(),
        messages::cases(),
        ping::cases(),
        priority::cases(),
        resets::cases(),
        settings::cases(),
        stream_states::cases(),
        windows::cases(),
    ];
    let others = [preface::COVERED, settings::COVERED, stream_states::COVERED, windows::COVERED];
    let numbers = cases.iter().flatten().map(|it| it.number).filter(|it| !it.is_empty());
    let numbers: Vec<&str> = numbers.chain(others.into_iter().flatten().copied()).collect();
    let covered: BTreeSet<String> = numbers.iter().map(|it| (*it).to_owned()).collect();
    assert_eq!(numbers.len(), covered.len(), "a number twice");
    let all =
        SECTIONS.iter().flat_map(|(section, count)| (1..=*count).map(move |it| format!("{section}/{it}")));
    assert_eq!(covered, all.collect());
}
