//! Every head that the native parser accepts is the same request to hyper: method, target, headers, and the end of the
//! body. Heads are mutated at random from a seed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_net::http1::{MAX_HEADERS, ParsedRequest, RequestBody, RequestHead, header_space};

/// A request as a parser reads it.
#[derive(Debug, PartialEq, Eq)]
struct ReadRequest {
    method: String,
    path: String,
    query: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Returns the request that the native parser reads, and its bytes with a body.
fn native(bytes: &[u8]) -> Option<(ReadRequest, Vec<u8>)> {
    let mut space = header_space();
    let ParsedRequest::Complete(head, length) = RequestHead::parse(bytes, &mut space, MAX_HEADERS) else {
        return None;
    };
    let (body, framed) = match head.body {
        RequestBody::Length(length @ ..=64) => {
            let body = vec![b'G'; usize::try_from(length).unwrap()];
            (body.clone(), body)
        }
        RequestBody::Length(_) => return None,
        RequestBody::Chunked => {
            (b"GET / HTTP".to_vec(), b"A;x=y\r\nGET / HTTP\r\n0\r\nx: y\r\n\r\n".to_vec())
        }
    };
    let mut headers: Vec<_> =
        head.headers.iter().map(|it| (it.name.to_ascii_lowercase(), it.value.to_vec())).collect();
    headers.sort();
    let sent = [&bytes[..length], &framed].concat();
    let (method, path, query) =
        (head.method.to_owned(), head.path.to_owned(), head.query.map(ToOwned::to_owned));
    Some((ReadRequest { method, path, query, headers, body }, sent))
}

/// Returns the requests that hyper reads from a connection.
async fn hyper(sent: Vec<u8>) -> Vec<ReadRequest> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let notes = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let notes = Arc::clone(&notes);
        async move {
            let (parts, body) = request.into_parts();
            let mut headers: Vec<_> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
                .collect();
            headers.sort();
            let body = body.collect().await.map(|it| it.to_bytes().to_vec()).unwrap_or_default();
            notes.lock().unwrap().push(ReadRequest {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().map(ToOwned::to_owned),
                headers,
                body,
            });
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let serving = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service);
    let talking = async move {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        let _closed = client.read_to_end(&mut Vec::new()).await;
    };
    let (_ended, ()) = tokio::join!(serving, talking);
    std::mem::take(&mut *seen.lock().unwrap())
}

/// A seeded generator (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap()
    }
}

const SEEDS: [&[u8]; 6] = [
    b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST /a/b?c=d HTTP/1.1\r\nHost: example.com:80\r\nContent-Length: 5\r\nX-A: b, c\r\n\r\n",
    b"PUT /x HTTP/1.1\r\nhost: [::1]\r\nconnection: keep-alive\r\ncontent-length: 12\r\naccept: */*\r\n\r\n",
    b"DELETE /%2e/;a=b HTTP/1.1\r\nHOST: a\r\ncookie: a=1; b=2\r\nConnection: Close\r\nx: \xe9\t.\r\n\r\n",
    b"POST /up HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nx: y\r\n\r\n",
    b"OPTIONS /~!$&'()*+,;=:@ HTTP/1.1\r\nhost:a\r\nexpect:\r\ntransfer-encoding: chunked\r\n\r\n",
];

const INSERTS: [&[u8]; 24] = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"?",
    b"#",
    b"%",
    b"/",
    b"//",
    b"\\",
    b"\x7f",
    b"\xff",
    b"chunked",
    b"content-length: 3\r\n",
    b"transfer-encoding: chunked\r\n",
    b"host: b\r\n",
    b"connection: x\r\n",
    b"0",
    b"HTTP/1.0",
];

fn mutated(rng: &mut Rng) -> Vec<u8> {
    let mut head = SEEDS[rng.next(SEEDS.len())].to_vec();
    for _ in 0..=rng.next(3) {
        let at = rng.next(head.len());
        match rng.next(4) {
            0 => head[at] = u8::try_from(rng.next(256)).unwrap(),
            1 => drop(head.remove(at)),
            2 => drop(head.splice(at..at, INSERTS[rng.next(INSERTS.len())].iter().copied())),
            _ => head[at] ^= 0x20,
        }
        if head.is_empty() {
            head.push(b'G');
        }
    }
    head
}

#[tokio::test]
async fn accepted_heads_are_the_same_requests_to_hyper() {
    let seed = 20_261_117;
    let (mut rng, mut accepted) = (Rng(seed), 0);
    for round in 0..20_000 {
        let head = mutated(&mut rng);
        let Some((request, sent)) = native(&head) else { continue };
        accepted += 1;
        let shown = String::from_utf8_lossy(&sent).into_owned();
        assert_eq!(hyper(sent).await, [request], "seed {seed}, round {round}: {shown:?}");
    }
    assert!(accepted > 2_000, "only {accepted} heads were accepted");
}
