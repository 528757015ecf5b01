//! Parses arbitrary bytes as HTTP/1.1 without hyper: heads of requests and responses, and chunked bodies.
//!
//! A request that is accepted must be the same to the types that hyper builds from httparse, and its framing must be
//! free of doubt. A body must decode to the same data however it is cut into pieces.
#![no_main]

use http::{HeaderName, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use tollgate_net::http1::{
    ChunkedDecoder, MAX_HEADERS, ParsedRequest, RequestBody, RequestHead, ResponseHead, header_space,
};

fuzz_target!(|bytes: &[u8]| {
    check_request(bytes);
    let mut space = header_space();
    let _any = ResponseHead::parse(bytes, &mut space, false);
    let whole = decoded(bytes, bytes.len().max(1));
    for size in [1, 3, 7] {
        assert_eq!(decoded(bytes, size), whole);
    }
});

fn check_request(bytes: &[u8]) {
    let mut space = header_space();
    let ParsedRequest::Complete(head, length) = RequestHead::parse(bytes, &mut space, MAX_HEADERS) else { return };
    assert!(bytes[..length].ends_with(b"\r\n\r\n"));
    assert_eq!(bytes[..length].windows(4).filter(|it| it == b"\r\n\r\n").count(), 1);
    assert!(head.method.parse::<Method>().is_ok());
    let target = head.query.map_or_else(|| head.path.to_owned(), |query| format!("{}?{query}", head.path));
    let uri: Uri = target.parse().expect("a target that hyper accepts");
    assert_eq!((uri.path(), uri.query(), uri.authority()), (head.path, head.query, None));
    let (mut hosts, mut lengths, mut encodings) = (0, Vec::new(), 0);
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).expect("a name");
        let value = HeaderValue::from_bytes(header.value).expect("a value");
        match name.as_str() {
            "host" => hosts += 1,
            "content-length" => lengths.push(value.to_str().ok().and_then(|it| it.parse::<u64>().ok())),
            "transfer-encoding" => {
                assert!(value.as_bytes().eq_ignore_ascii_case(b"chunked"));
                encodings += 1;
            }
            "upgrade" | "expect" | "te" | "trailer" => panic!("{name} is not for this parser"),
            _ => {}
        }
    }
    assert_eq!(hosts, 1);
    assert!(lengths.len() + encodings <= 1);
    match head.body {
        RequestBody::Length(length) => assert_eq!(lengths.first().copied().unwrap_or(Some(0)), Some(length)),
        RequestBody::Chunked => assert_eq!(encodings, 1),
    }
}

/// Decodes a chunked body that arrives in pieces: the data, and whether it is complete; `None` on an error.
fn decoded(body: &[u8], size: usize) -> Option<(Vec<u8>, bool)> {
    let (mut decoder, mut data) = (ChunkedDecoder::new(), Vec::new());
    for piece in body.chunks(size) {
        let mut rest = piece;
        while !rest.is_empty() && !decoder.is_done() {
            let (used, some) = decoder.decode(rest).ok()?;
            data.extend_from_slice(some);
            rest = &rest[used..];
        }
    }
    Some((data, decoder.is_done()))
}
