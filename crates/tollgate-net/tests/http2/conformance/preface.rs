//! The connection preface (RFC 9113, section 3.4).

use tollgate_net::Caps;

use crate::frames::{PING, PROTOCOL_ERROR, RawClient, SETTINGS, frame};
use crate::surface::Server;

pub(super) const COVERED: &[&str] = &["generic/1/1", "http2/3.5/1", "http2/3.5/2"];

#[test]
fn the_server_sends_its_settings_first() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    let first = client.next().unwrap();
    assert_eq!((first.kind, first.flags, first.stream, first.payload.len() % 6), (SETTINGS, 0, 0, 0));
    server.stop(client);
}

#[test]
fn settings_after_the_preface_are_confirmed() {
    let server = Server::start(Caps::default());
    let mut client = RawClient::silent(server.address);
    client.preface();
    client.send(&frame(SETTINGS, 0, 0, &[]));
    let (_own, confirmation) = (client.until(SETTINGS), client.until(SETTINGS));
    assert_eq!((confirmation.flags, confirmation.payload.len()), (1, 0));
    server.stop(client);
}

#[test]
fn an_invalid_preface_ends_the_connection() {
    let server = Server::start(Caps::default());
    // This is not HTTP/1.1 either.
    let mut client = RawClient::silent(server.address);
    client.send(b"INVALID CONNECTION PREFACE\r\n\r\n");
    client.end();
    let mut client = RawClient::silent(server.address);
    client.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    client.end();
    // A preface without settings.
    for first in [frame(PING, 0, 0, b"too soon"), frame(SETTINGS, 1, 0, &[])] {
        let mut client = RawClient::silent(server.address);
        client.preface();
        client.send(&first);
        assert_eq!(client.error(), PROTOCOL_ERROR);
    }
    server.stop(());
}
