//! SETTINGS frames (RFC 9113, section 6.5).

use super::Outcome::{Answered, ConnectionError, Ignored};
use super::*;

pub(super) const COVERED: &[&str] = &["generic/3.5/1", "http2/6.5.3/1", "http2/6.5.3/2"];

fn setting(number: u8, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, number][..], &value.to_be_bytes()].concat())
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = values();
    cases.extend([
        Case::new(
            "http2/6.5/1",
            "a confirmation with a payload ends the connection",
            &[frame(SETTINGS, ACK, 0, &[0; 6])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "http2/6.5/2",
            "settings of a stream end the connection",
            &[frame(SETTINGS, 0, 1, &[0, 3, 0, 0, 0, 100])],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.5/3",
            "settings of another size end the connection",
            &[frame(SETTINGS, 0, 0, &[0, 3, 0])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new("", "a confirmation is ignored", &[frame(SETTINGS, ACK, 0, &[])], Ignored),
        Case::new("", "a table of no bytes is accepted", &[setting(1, 0), call(1)], Answered(1)),
    ]);
    cases
}

fn values() -> Vec<Case> {
    vec![
        Case::new(
            "http2/6.5.2/1",
            "a push setting of 2 is invalid",
            &[setting(2, 2)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.5.2/2",
            "an initial window of 2^31 is invalid",
            &[setting(4, 1 << 31)],
            ConnectionError(FLOW_CONTROL_ERROR),
        ),
        Case::new(
            "http2/6.5.2/3",
            "a frame size below 2^14 is invalid",
            &[setting(5, 16_383)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.5.2/4",
            "a frame size of 2^24 is invalid",
            &[setting(5, 1 << 24)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "http2/6.5.2/5",
            "an unknown setting is ignored",
            &[setting(0xff, 1), call(1)],
            Answered(1),
        ),
        Case::new(
            "",
            "the largest frame size is accepted",
            &[setting(5, (1 << 24) - 1), call(1)],
            Answered(1),
        ),
        Case::new("", "push may be off or on", &[setting(2, 0), setting(2, 1), call(1)], Answered(1)),
        Case::new("", "a client that refuses streams is served", &[setting(3, 0), call(1)], Answered(1)),
    ]
}

#[test]
fn settings_are_checked() {
    check(&cases());
}

#[test]
fn every_settings_frame_is_confirmed() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.send(&[setting(3, 100), setting(4, 100)].concat());
    assert_eq!(client.until(SETTINGS).flags, 0, "the settings of the server");
    for _ in 0..3 {
        let found = client.until(SETTINGS);
        assert_eq!((found.flags, found.stream, found.payload.len()), (ACK, 0, 0));
    }
    server.stop(client);
}

#[test]
fn the_last_of_several_values_counts() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100, 0, 4, 0, 0, 0, 1]));
    client.send(&call(1));
    assert_eq!(client.until(DATA).payload, b"h");
    server.stop(client);
}
