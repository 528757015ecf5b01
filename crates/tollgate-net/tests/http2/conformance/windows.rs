//! `WINDOW_UPDATE` frames and flow control (RFC 9113, section 6.9).

use super::Outcome::{Answered, ConnectionError, Ignored, StreamError};
use super::*;
use crate::surface::NEVER;

pub(super) const COVERED: &[&str] = &["http2/6.9.1/1", "http2/6.9.2/1", "http2/6.9.2/2"];

const MAX_WINDOW: u32 = (1 << 31) - 1;

fn update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn initial_window(size: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &size.to_be_bytes()].concat())
}

pub(super) fn cases() -> Vec<Case> {
    let waiting = [frame(HEADERS, END_HEADERS, 1, &block(NEVER, &[])), end(1, b"x")].concat();
    vec![
        Case::new("generic/3.9/1", "the window of the connection is opened", &[update(0, 1)], Ignored),
        Case::new(
            "generic/3.9/2",
            "the window of a stream is opened",
            &[open(1), update(1, 1), end(1, b"x")],
            Answered(1),
        ),
        Case::new(
            "http2/6.9/1",
            "an update of zero of the connection ends it",
            &[update(0, 0)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.9/2",
            "an update of zero of a stream resets it",
            &[waiting.clone(), update(1, 0)],
            StreamError(1, PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.9/3",
            "an update of another size ends the connection",
            &[frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "http2/6.9.1/2",
            "a window of the connection above the maximum ends it",
            &[update(0, MAX_WINDOW), update(0, MAX_WINDOW)],
            ConnectionError(FLOW_CONTROL_ERROR),
        ),
        Case::new(
            "http2/6.9.1/3",
            "a window of a stream above the maximum resets it",
            &[waiting.clone(), update(1, MAX_WINDOW), update(1, MAX_WINDOW)],
            StreamError(1, FLOW_CONTROL_ERROR),
        ),
        Case::new(
            "http2/6.9.2/3",
            "an initial window above the maximum ends the connection",
            &[initial_window(1 << 31)],
            ConnectionError(FLOW_CONTROL_ERROR),
        ),
        Case::new(
            "",
            "settings that raise the window of a stream above the maximum end the connection",
            &[waiting, update(1, MAX_WINDOW - 65_535), initial_window(65_536)],
            ConnectionError(FLOW_CONTROL_ERROR),
        ),
        Case::new(
            "",
            "the reserved bit of an increment is ignored",
            &[open(1), update(1, 0x8000_0001), end(1, b"x")],
            Answered(1),
        ),
    ]
}

#[test]
fn windows_are_opened_within_their_maximum() {
    check(&cases());
}

/// Sends frames, and returns the sizes of the pieces of the response.
fn pieces(frames: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.send(&frames.concat());
    let pieces = (0..count).map(|_| client.until(DATA).payload).collect();
    server.stop(client);
    pieces
}

#[test]
fn a_response_is_cut_at_the_window_of_its_stream() {
    assert_eq!(pieces(&[initial_window(1), call(1)], 1), [b"h"]);
    assert_eq!(
        pieces(&[initial_window(2), call(1), update(1, 2), update(1, 100)], 3),
        [&b"he"[..], b"ll", b"o"]
    );
}

#[test]
fn settings_change_the_windows_of_open_streams() {
    assert_eq!(pieces(&[initial_window(0), call(1), initial_window(1)], 1), [b"h"]);
    // 3 bytes are sent, so a window of 2 is one of -1: an update of 1 opens nothing, one of 2 opens one byte.
    let negative = [initial_window(3), call(1), initial_window(2), update(1, 1), update(1, 1), update(1, 9)];
    assert_eq!(pieces(&negative, 3), [&b"hel"[..], b"l", b"o"]);
}
