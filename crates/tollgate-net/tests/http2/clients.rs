//! A general HTTP/2 client.

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;
use tollgate_net::Caps;

use crate::frames::{DATA, GOAWAY, HEADERS, PING, RawClient, block, frame};
use crate::surface::{ECHO, LATER, LONG, LONG_BYTES, STREAM, Server};

async fn connect(server: &Server, builder: &Builder) -> (SendRequest<Bytes>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = builder.handshake(stream).await.unwrap();
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    (client, connection)
}

fn request(path: &str) -> http::request::Builder {
    Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

/// Makes a call whose message is sent in pieces.
async fn call(
    client: &SendRequest<Bytes>,
    request: http::request::Builder,
    pieces: Vec<Bytes>,
) -> (StatusCode, Vec<u8>, HeaderMap) {
    let mut client = client.clone().ready().await.unwrap();
    let (response, mut sender) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let sending = tokio::spawn(async move {
        for mut piece in pieces {
            while !piece.is_empty() {
                sender.reserve_capacity(piece.len());
                let room = std::future::poll_fn(|cx| sender.poll_capacity(cx)).await.unwrap().unwrap();
                sender.send_data(piece.split_to(room.min(piece.len())), false).unwrap();
            }
        }
        sender.send_data(Bytes::new(), true).unwrap();
    });
    let response = response.await.unwrap();
    let status = response.status();
    let headers = response.headers().clone();
    let mut body = response.into_body();
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        message.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(headers);
    sending.await.unwrap();
    (status, message, trailers)
}

#[tokio::test]
async fn unary_calls_are_answered_with_any_headers() {
    let server = Server::start(Caps::default());
    // This client would open any number of streams before it knows the maximum.
    let (client, connection) = connect(&server, Builder::new().initial_max_send_streams(100)).await;
    let calls = (0..400).map(|number: usize| {
        let client = client.clone();
        tokio::spawn(async move {
            // As a proxy sends: most headers repeat, some differ for each call.
            let request = request(ECHO)
                .header("x-request-id", format!("0a1b2c3d-{number:08}-é"))
                .header("traceparent", format!("00-{number:032x}-{:016x}-01", number * 7))
                .header("grpc-timeout", format!("{}m", number + 1))
                .header("x-long", "v".repeat(number * 3));
            let message = Bytes::from(vec![u8::try_from(number % 251).unwrap(); number + 1]);
            let (status, answer, trailers) = call(&client, request, vec![message.clone()]).await;
            assert_eq!((status, &answer[..]), (StatusCode::OK, &message[..]));
            assert_eq!(trailers["grpc-status"], "0");
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let (status, answer, trailers) =
        call(&client, request(ECHO).header("grpc-timeout", "0m"), vec!["x".into()]).await;
    assert_eq!((status, answer.len(), &trailers["grpc-status"]), (StatusCode::OK, 0, &"4".parse().unwrap()));
    drop(client);
    server.stop(connection.await);
}

#[tokio::test]
async fn messages_in_several_frames_are_put_together() {
    let server = Server::start(Caps::default());
    let (client, connection) = connect(&server, &Builder::new()).await;
    let pieces: Vec<Bytes> = (0_u8..100).map(|it| Bytes::from(vec![it; usize::from(it) * 70 + 1])).collect();
    let whole = pieces.concat();
    assert!(whole.len() > 300_000, "more than a window");
    let (_, answer, trailers) = call(&client, request(ECHO), pieces.clone()).await;
    assert!(answer == whole && trailers["grpc-status"] == "0");
    let (status, answer, trailers) = call(&client, request(STREAM), pieces).await;
    assert!(status == StatusCode::OK && answer == whole && trailers["grpc-status"] == "0");
    let (status, answer, _) = call(&client, request("/other"), vec!["x".into()]).await;
    assert_eq!((status, answer.len()), (StatusCode::NOT_FOUND, 0));
    drop(client);
    server.stop(connection.await);

    // Padding, a continuation and trailers.
    let server = Server::start(Caps::default());
    let mut client = RawClient::connect(server.address);
    let block = block(ECHO, &[("x", "y")]);
    let padded = [&[3][..], &block[..10], &[0; 3]].concat();
    client.send(&frame(HEADERS, 8, 1, &padded));
    for byte in &block[10..] {
        client.send(&frame(crate::frames::CONTINUATION, 0, 1, &[*byte]));
    }
    client.send(&frame(crate::frames::CONTINUATION, 4, 1, &[]));
    client.send(&frame(DATA, 8, 1, b"\x02hel\0\0"));
    client.send(&frame(DATA, 0, 1, b"lo"));
    client.send(&frame(HEADERS, 5, 1, b"\x00\x01x\x01y"));
    let (_, message, trailers) = client.response(1);
    assert_eq!((&message[..], &trailers[..]), (&b"hello"[..], &b"\x00\x0bgrpc-status\x010"[..]));
    server.stop(client);
}

#[tokio::test]
async fn responses_respect_the_windows_of_the_client() {
    let server = Server::start(Caps::default());
    for (stream, connection) in [(1, 65_535), (1_000, 65_535), (1 << 20, 1 << 20)] {
        let mut builder = Builder::new();
        builder.initial_window_size(stream).initial_connection_window_size(connection);
        let (client, connection) = connect(&server, &builder).await;
        let (_, answer, _) = call(&client, request(ECHO), vec!["slowly".into()]).await;
        assert_eq!(answer, b"slowly");
        let number = if stream == 1 { 0 } else { 3 };
        let calls = (0..number).map(|_| call(&client, request(LONG), vec!["x".into()])).collect::<Vec<_>>();
        for call in calls {
            let (_, answer, trailers) = call.await;
            assert!(answer.len() == LONG_BYTES && trailers["grpc-status"] == "0");
        }
        drop(client);
        connection.await.unwrap();
    }
    server.stop(());
}

#[tokio::test]
async fn calls_in_progress_are_answered_while_draining() {
    let server = Server::start(Caps::default());
    let (client, connection) = connect(&server, &Builder::new()).await;
    let (sender, running) = {
        let mut client = client.clone().ready().await.unwrap();
        let (response, mut sender) = client.send_request(request(LATER).body(()).unwrap(), false).unwrap();
        sender.send_data("in progress".into(), true).unwrap();
        (sender, tokio::spawn(response))
    };
    let (_, answer, _) = call(&client, request(ECHO), vec!["before".into()]).await;
    assert_eq!(answer, b"before");
    let mut raw = RawClient::connect(server.address);
    raw.call(1, LATER, b"raw");
    raw.send(&frame(PING, 0, 0, b"received"));
    assert_eq!(raw.until(PING).payload, b"received");

    server.drainer.begin();
    // A raw client that has not confirmed the announcement is still served.
    assert_eq!(raw.until(GOAWAY).payload[..4], [0x7f, 0xff, 0xff, 0xff]);
    let ping = raw.until(PING);
    raw.call(3, ECHO, b"on the way");
    assert_eq!(raw.response(3).1, b"on the way");
    raw.send(&frame(PING, 1, 0, &ping.payload));
    assert_eq!(raw.until(GOAWAY).payload[..4], [0, 0, 0, 3]);
    raw.call(5, ECHO, b"too late");
    server.release.notify_waiters();
    assert_eq!(raw.response(1).1, b"raw");
    assert_eq!(raw.next(), None);

    let response = running.await.unwrap().unwrap();
    assert_eq!(response.into_body().data().await.unwrap().unwrap(), "in progress");
    drop((sender, client));
    server.stop((connection.await, raw));
}
