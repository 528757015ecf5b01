//! Frames that no client should send.

use std::time::Duration;

use tollgate_net::Caps;

use crate::frames::*;
use crate::surface::{ECHO, MAX_BYTES, NEVER, PANIC, STREAM, Server};

#[test]
fn errors_of_a_stream_leave_the_others_alone() {
    let server = Server::start(Caps { streams: 2, header_bytes: 1_000, ..Caps::default() });
    let with = |more: &[(&str, &str)]| frame(HEADERS, 4, 1, &block(ECHO, more));
    let large = "x".repeat(100);
    let large: Vec<(&str, &str)> = std::iter::repeat_n(("x", &large[..]), 10).collect();
    for (name, frames, reason) in [
        ("an upper case name", with(&[("X", "y")]), Some(PROTOCOL_ERROR)),
        ("a connection header", with(&[("connection", "close")]), Some(PROTOCOL_ERROR)),
        ("no path", frame(HEADERS, 4, 1, &[0x83, 0x86]), Some(PROTOCOL_ERROR)),
        (
            "more than the length",
            [with(&[("content-length", "2")]), frame(DATA, 1, 1, b"xyz")].concat(),
            Some(PROTOCOL_ERROR),
        ),
        (
            "less than the length",
            [with(&[("content-length", "4")]), frame(DATA, 1, 1, b"xyz")].concat(),
            Some(PROTOCOL_ERROR),
        ),
        (
            "a length without a body",
            frame(HEADERS, 5, 1, &block(ECHO, &[("content-length", "4")])),
            Some(PROTOCOL_ERROR),
        ),
        (
            "trailers that do not end the request",
            [with(&[]), frame(HEADERS, 4, 1, b"\x00\x01x\x01y")].concat(),
            Some(PROTOCOL_ERROR),
        ),
        (
            "pseudo-headers in trailers",
            [with(&[]), frame(HEADERS, 5, 1, b"\x83")].concat(),
            Some(PROTOCOL_ERROR),
        ),
        (
            "a window update of zero",
            [with(&[]), frame(WINDOW_UPDATE, 0, 1, &[0; 4])].concat(),
            Some(PROTOCOL_ERROR),
        ),
        (
            "a window that overflows",
            [with(&[]), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat(),
            Some(FLOW_CONTROL_ERROR),
        ),
        (
            "data after the end",
            [frame(HEADERS, 4, 1, &block(NEVER, &[])), frame(DATA, 1, 1, b"x"), frame(DATA, 0, 1, b"x")]
                .concat(),
            Some(STREAM_CLOSED),
        ),
        ("large headers", with(&large), None),
    ] {
        let mut client = RawClient::connect(server.address);
        client.send(&frames);
        if let Some(reason) = reason {
            assert_eq!(client.until(RST_STREAM).payload[3], reason, "{name}");
        } else {
            assert_eq!(client.until(HEADERS).payload, b"\x08\x03431", "{name}");
        }
        client.call(3, ECHO, b"hello");
        assert_eq!(client.response(3).1, b"hello", "after {name}");
    }
    // A third stream at once is refused.
    let mut client = RawClient::connect(server.address);
    client.call(1, NEVER, b"x");
    client.call(3, NEVER, b"x");
    client.call(5, ECHO, b"x");
    let refused = client.until(RST_STREAM);
    assert_eq!((refused.stream, refused.payload[3]), (5, REFUSED_STREAM));
    client.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    client.call(7, ECHO, b"again");
    assert_eq!(client.response(7).1, b"again");
    server.stop(client);
}

#[test]
fn clients_that_send_floods_are_disconnected() {
    let server = Server::start(Caps::default());
    let open = |stream: u32| frame(HEADERS, 4, stream, &block(ECHO, &[]));
    let many = |of: &dyn Fn(u32) -> Vec<u8>| -> Vec<u8> { (0..4_000).flat_map(of).collect() };
    for (name, frames) in [
        ("pings", many(&|_| frame(PING, 0, 0, &[0; 8]))),
        ("settings", many(&|_| frame(SETTINGS, 0, 0, &[]))),
        ("confirmations", many(&|_| frame(SETTINGS, 1, 0, &[]))),
        ("priorities", many(&|_| frame(PRIORITY, 0, 1, &[0; 5]))),
        ("unknown frames", many(&|_| frame(77, 0, 0, &[]))),
        ("window updates", many(&|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
        ("empty data", [open(1), many(&|_| frame(DATA, 0, 1, &[]))].concat()),
        (
            "requests that are reset",
            many(&|number| {
                [open(2 * number + 1), frame(RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8])].concat()
            }),
        ),
        (
            "streams that are reset",
            many(&|number| {
                let open = frame(HEADERS, 4, 2 * number + 1, &block(STREAM, &[]));
                [open, frame(RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8])].concat()
            }),
        ),
        ("malformed requests", many(&|number| frame(HEADERS, 5, 2 * number + 1, &[0x83]))),
        ("refused streams", many(&|number| frame(HEADERS, 4, 2 * number + 1, &block(NEVER, &[])))),
        (
            "data of a stream that was reset",
            [frame(HEADERS, 4, 1, &block(ECHO, &[("X", "y")])), many(&|_| frame(DATA, 0, 1, b"x"))].concat(),
        ),
        (
            "an endless header block",
            [frame(HEADERS, 0, 1, &block(ECHO, &[])), many(&|_| frame(CONTINUATION, 0, 1, &[]))].concat(),
        ),
        (
            "a large header block",
            [frame(HEADERS, 0, 1, &block(ECHO, &[])), many(&|_| frame(CONTINUATION, 0, 1, &[0x88; 100]))]
                .concat(),
        ),
    ] {
        let mut client = RawClient::connect(server.address);
        client.send(&frames);
        assert_eq!(client.error(), ENHANCE_YOUR_CALM, "{name}");
    }
    server.stop(());
}

#[test]
fn clients_that_call_and_cancel_are_served() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    for number in 0..3_000 {
        let stream = 2 * number + 1;
        client.call(stream, NEVER, b"x");
        client.send(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    client.call(9_001, ECHO, b"still here");
    assert_eq!(client.response(9_001).1, b"still here");
    server.stop(client);
}

#[test]
fn a_client_that_does_not_know_the_maximum_of_streams_yet_is_not_disconnected() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    // As Envoy does after it has connected: all calls that wait, before the settings of the server arrive.
    for number in 0..1_024 {
        client.call(2 * number + 1, NEVER, b"x");
    }
    for number in 128..1_024 {
        let refused = client.until(RST_STREAM);
        assert_eq!((refused.stream, refused.payload[3]), (2 * number + 1, REFUSED_STREAM));
    }
    client.send(&frame(SETTINGS, 1, 0, &[]));
    client.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    client.call(2_049, ECHO, b"later");
    assert_eq!(client.response(2_049).1, b"later");
    // Now it knows the maximum.
    client.call(2_051, NEVER, b"x");
    for number in 1_026..2_000 {
        client.call(2 * number + 1, NEVER, b"x");
    }
    assert_eq!(client.error(), ENHANCE_YOUR_CALM);
    server.stop(client);
}

#[test]
fn cancelled_calls_are_dropped_before_many_others_are_read() {
    let server = Server::start(Caps::default());
    for (path, flags) in [(NEVER, 4), (STREAM, 5)] {
        let mut client = RawClient::connect(server.address);
        // The first call adds its path and its content type to the table.
        let path = [&[0x83, 0x86, 0x44, u8::try_from(path.len()).unwrap()][..], path.as_bytes()].concat();
        let first = [&path[..], b"\x5f\x10application/grpc"].concat();
        let mut frames = Vec::new();
        for number in 0..40_000 {
            let stream = 2 * number + 1;
            let block = if number == 0 { &first[..] } else { b"\x83\x86\xbf\xbe" };
            frames.extend(frame(HEADERS, flags, stream, block));
            if flags == 4 {
                frames.extend(frame(DATA, 1, stream, b"x"));
            }
            frames.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        }
        client.send(&frames);
        client.call(80_001, ECHO, b"still here");
        assert_eq!(client.response(80_001).1, b"still here");
        let max = server.live.max();
        assert!(max <= 2_000, "{max} calls at once");
    }
    server.stop(());
}

#[test]
fn header_blocks_that_expand_without_bound_end_the_connection() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    // A name of 4,000 bytes enters the table, and each two bytes after it copy it.
    let mut large = vec![0x40, 0x7f, 0xa1, 0x1e];
    large.extend([b'x'; 4_000]);
    large.push(0);
    let copies = [0x7e, 0].repeat(6_000);
    client.send(&frame(HEADERS, 5, 1, &[large, copies].concat()));
    assert_eq!(client.error(), ENHANCE_YOUR_CALM);
    server.stop(client);
}

#[test]
fn a_call_that_panics_fails_alone() {
    const INTERNAL_ERROR: u8 = 2;
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.call(1, PANIC, b"x");
    assert_eq!(client.until(RST_STREAM).payload[3], INTERNAL_ERROR);
    client.call(3, ECHO, b"hello");
    assert_eq!(client.response(3).1, b"hello");
    server.stop(client);
}

#[test]
fn data_beyond_a_window_is_refused() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.send(&frame(HEADERS, 4, 1, &block(ECHO, &[])));
    for stream in [0, 1] {
        client.send(&frame(WINDOW_UPDATE, 0, stream, &100_000_u32.to_be_bytes()));
    }
    for _ in 0..4 {
        client.send(&frame(DATA, 0, 1, &[0; 16_384]));
    }
    client.send(&frame(DATA, 1, 1, &[0; 16_384]));
    let (_, message, _) = client.response(1);
    assert_eq!(message.len(), 5 * 16_384, "the window was opened again");
    drop(client);

    let mut client = RawClient::connect(server.address);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    client.send(&frame(HEADERS, 4, 1, &block(STREAM, &[])));
    // The response waits for a window, so the request is not read.
    for _ in 0..12 {
        client.send(&frame(DATA, 0, 1, &[0; 16_384]));
    }
    assert_eq!(client.until(RST_STREAM).payload[3], FLOW_CONTROL_ERROR);
    server.stop(client);
}

#[test]
fn messages_beyond_the_bound_are_refused_before_they_have_arrived() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.send(&frame(HEADERS, 4, 1, &block(ECHO, &[])));
    for _ in 0..=MAX_BYTES / 16_000 {
        client.send(&frame(DATA, 0, 1, &[0; 16_000]));
    }
    let (head, message, _) = client.response(1);
    assert!(message.is_empty() && head.ends_with(b"grpc-status\x018"), "{head:?}");
    // The rest is read for a while, then the stream is reset without an error.
    for _ in 0..6 {
        client.send(&frame(DATA, 0, 1, &[0; 16_000]));
    }
    assert_eq!(client.until(RST_STREAM).payload[3], 0);
    client.call(3, ECHO, b"next");
    assert_eq!(client.response(3).1, b"next");
    server.stop(client);
}

/// A generator of random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % end as u64).unwrap()
    }

    fn frame(&mut self) -> Vec<u8> {
        let paths = [ECHO, NEVER, STREAM, "/other", ""];
        let stream = u32::try_from(self.below(12)).unwrap();
        let mut payload = match self.below(4) {
            0 => block(paths[self.below(paths.len())], &[("x", "y")]),
            1 => (0..self.below(40)).map(|_| u8::try_from(self.below(256)).unwrap()).collect(),
            2 => vec![0; self.below(9)],
            _ => vec![0, 4, 0, 0, u8::try_from(self.below(256)).unwrap(), 0],
        };
        if self.below(3) == 0 && !payload.is_empty() {
            let at = self.below(payload.len());
            payload[at] = u8::try_from(self.below(256)).unwrap();
        }
        let flags = [0, 1, 4, 5, 8, 0x20, 0x25, 0x2d][self.below(8)];
        frame(u8::try_from(self.below(11)).unwrap(), flags, stream, &payload)
    }
}

#[test]
fn no_sequence_of_frames_stops_the_server() {
    let server = Server::start(Caps::default());
    let mut random = Random(20_261_118);
    let mut ends = 0;
    for round in 0..3_000 {
        let mut client = RawClient::connect(server.address);
        let frames: Vec<u8> = (0..=random.below(12)).flat_map(|_| random.frame()).collect();
        client.send(&frames);
        // A connection that survived confirms this ping.
        client.send(&frame(PING, 0, 0, b"are you?"));
        loop {
            match client.next() {
                None => break,
                Some(it) if it.kind == GOAWAY => {
                    ends += 1;
                    break;
                }
                Some(it) if it.kind == PING && it.payload == b"are you?" => break,
                Some(it) => assert!(it.kind <= CONTINUATION, "round {round}: {it:?}"),
            }
        }
    }
    assert!((100..2_990).contains(&ends), "{ends} of the connections ended");
    let mut client = RawClient::connect(server.address);
    client.call(1, ECHO, b"hello");
    assert_eq!(client.response(1).1, b"hello");
    server.stop(client);
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let stalled = Duration::from_millis(300);
    let server = Server::start(Caps { stalled, ..Caps::default() });
    let mut client = RawClient::connect(server.address);
    // The replies to these do not fit the buffers of the sockets, and the client reads none.
    let pings: Vec<u8> = (0..500).flat_map(|_| frame(PING, 0, 0, &[0; 8])).collect();
    client.send(&pings);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    client.call(1, ECHO, b"waits for a window");
    // The head is sent, the message waits, and the connection ends.
    while client.next().is_some() {}
    server.stop(client);
}
