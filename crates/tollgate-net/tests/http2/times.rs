//! Timeouts, with a virtual clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tollgate_net::{Caps, Connection, Drain, HttpServer, Sockets, Tls, client_tls};

use crate::frames::{DATA, HEADERS, PING, SETTINGS, WINDOW_UPDATE, block, frame};
use crate::surface::{ECHO, LATER, NEVER, NoService, STREAM, TestSurface};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connected client, and the surface of its server, which ends with the test.
async fn connect() -> (TcpStream, Arc<TestSurface>) {
    let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
    let address = sockets.address();
    let listener = sockets.into_listeners().pop().unwrap();
    let (surface, make) = (Arc::new(TestSurface::default()), |_: &Connection| NoService);
    let server = HttpServer { caps: Caps::default(), ..HttpServer::default() };
    let served = Arc::clone(&surface);
    tokio::spawn(async move {
        let (_drainer, drain) = Drain::new();
        server.serve_grpc(listener, make, served, drain).await
    });
    (TcpStream::connect(address).await.unwrap(), surface)
}

/// Returns the received bytes, and the time until the server has closed the connection.
async fn read_to_end(client: &mut TcpStream) -> (Vec<u8>, Duration) {
    let (mut received, started_at) = (Vec::new(), Instant::now());
    timeout(Duration::from_secs(600), client.read_to_end(&mut received)).await.unwrap().unwrap();
    (received, started_at.elapsed())
}

/// Sends frames, and returns the received bytes and the time until the server has closed the connection.
async fn exchange(frames: &[u8]) -> (Vec<u8>, Duration) {
    let (mut client, _surface) = connect().await;
    client.write_all(frames).await.unwrap();
    read_to_end(&mut client).await
}

fn with_settings(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames.concat()].concat()
}

fn count(received: &[u8], part: &[u8]) -> usize {
    received.windows(part.len()).filter(|it| *it == part).count()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_is_disconnected() {
    let open = frame(HEADERS, 4, 1, &block(STREAM, &[]));
    let (received, time) = exchange(&with_settings(&[open])).await;
    assert_eq!(count(&received, &frame(PING, 0, 0, b"tollkeep")), 1);
    assert!((40..=60).contains(&time.as_secs()), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_its_timeout() {
    let call = [frame(HEADERS, 4, 1, &block(ECHO, &[])), frame(DATA, 1, 1, b"x")];
    let (received, time) = exchange(&with_settings(&call)).await;
    // An announcement and a ping, which the client does not confirm.
    assert_eq!(count(&received, &frame(PING, 0, 0, b"tollgate")), 1);
    assert!((75..=97).contains(&time.as_secs()), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_start_or_header_block_is_closed_early() {
    for frames in [PREFACE.to_vec(), with_settings(&[frame(HEADERS, 0, 1, &block(ECHO, &[]))])] {
        let (_, time) = exchange(&frames).await;
        assert!((10..=21).contains(&time.as_secs()), "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_arrive_in_time_is_refused() {
    let call = [frame(HEADERS, 4, 1, &block(ECHO, &[])), frame(DATA, 0, 1, b"x")];
    let (received, _) = exchange(&with_settings(&call)).await;
    assert_eq!(count(&received, b"grpc-status\x014"), 1);
    // A call that waits for longer than it may is refused in the same way.
    let call = [frame(HEADERS, 4, 1, &block(NEVER, &[])), frame(DATA, 1, 1, b"x")];
    let (received, _) = exchange(&with_settings(&call)).await;
    assert_eq!(count(&received, b"grpc-status\x014"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_window_is_disconnected() {
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let call = [no_window, frame(HEADERS, 4, 1, &block(ECHO, &[])), frame(DATA, 1, 1, b"x")];
    let (_, time) = exchange(&with_settings(&call)).await;
    // The client answers no ping either, which ends the connection first.
    assert!((40..=75).contains(&time.as_secs()), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_single_bytes_of_a_window_is_disconnected() {
    let (mut client, _surface) = connect().await;
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let call = [no_window, frame(HEADERS, 4, 1, &block(ECHO, &[])), frame(DATA, 1, 1, &[b'x'; 1_000])];
    client.write_all(&with_settings(&call)).await.unwrap();
    let started_at = Instant::now();
    let opening = async {
        loop {
            // Often enough to count as an answer to a ping.
            sleep(Duration::from_secs(15)).await;
            client.write_all(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).await?;
        }
    };
    let ended: std::io::Result<()> = timeout(Duration::from_secs(600), opening).await.expect("an end");
    let time = started_at.elapsed();
    assert!(ended.is_err() && (60..=105).contains(&time.as_secs()), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_sends_no_more_gets_its_responses() {
    let (mut client, surface) = connect().await;
    let call =
        |stream, path| [frame(HEADERS, 4, stream, &block(path, &[])), frame(DATA, 1, stream, b"waits")];
    let frames = [&call(1, LATER)[..], &call(3, LATER), &[frame(HEADERS, 4, 5, &block(ECHO, &[]))]].concat();
    client.write_all(&with_settings(&frames)).await.unwrap();
    client.shutdown().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    surface.release.notify_waiters();
    let (received, time) = read_to_end(&mut client).await;
    // The third call has no end.
    assert_eq!((count(&received, b"waits"), count(&received, b"grpc-status")), (2, 2));
    assert!(time < Duration::from_secs(1), "{time:?}");
}

#[tokio::test]
async fn a_client_that_has_closed_its_socket_does_not_keep_its_calls() {
    let (mut client, surface) = connect().await;
    let call =
        [frame(HEADERS, 4, 1, &block(NEVER, &[])), frame(DATA, 1, 1, b"x"), frame(PING, 0, 0, &[7; 8])];
    client.write_all(&with_settings(&call)).await.unwrap();
    // Everything is read, so that the socket is closed without a reset.
    let mut received = Vec::new();
    while !received.ends_with(&frame(PING, 1, 0, &[7; 8])) {
        assert_ne!(client.read_buf(&mut received).await.unwrap(), 0);
    }
    assert_eq!(surface.live.count(), 1);
    drop(client);
    let ending = async {
        while surface.live.count() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), ending).await.expect("the call ends before the time to answer a ping");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_more_does_not_keep_a_connection() {
    for flags in [1, 0] {
        let (mut client, _surface) = connect().await;
        let call = [frame(HEADERS, 4, 1, &block(NEVER, &[])), frame(DATA, flags, 1, b"x")];
        client.write_all(&with_settings(&call)).await.unwrap();
        client.shutdown().await.unwrap();
        let (_, time) = read_to_end(&mut client).await;
        let expected = if flags == 1 { 20..=30 } else { 0..=1 };
        assert!(expected.contains(&time.as_secs()), "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_from_tls_is_disconnected() {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
    let tls = Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
    let address = sockets.address();
    let (_drainer, drain) = Drain::new();
    let listener = sockets.into_listeners().pop().unwrap();
    let server = HttpServer { tls: Some(tls), ..HttpServer::default() };
    let make = |_: &Connection| NoService;
    let serving = tokio::spawn(server.serve_grpc(listener, make, Arc::new(TestSurface::default()), drain));

    let mut config = client_tls(Some(certificate.as_bytes())).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = "localhost".try_into().unwrap();
    let socket = TcpStream::connect(address).await.unwrap();
    let mut client = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
    // Windows for all responses, and calls until the server takes no more: the answers fill all buffers.
    let windows =
        [frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0, 0, 0]), frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0])];
    client.write_all(&[PREFACE, &windows.concat()].concat()).await.unwrap();
    let mut written_at = Instant::now();
    let calling = async {
        for stream in (1..u32::MAX).step_by(2) {
            let call = [frame(HEADERS, 4, stream, &block(ECHO, &[])), frame(DATA, 1, stream, &[0; 8_000])];
            client.write_all(&call.concat()).await?;
            client.flush().await?;
            written_at = Instant::now();
        }
        std::io::Result::Ok(())
    };
    timeout(Duration::from_secs(600), calling).await.expect("the server ends the connection").unwrap_err();
    let time = written_at.elapsed();
    serving.abort();
    assert!((60..=90).contains(&time.as_secs()), "{time:?}");
}
