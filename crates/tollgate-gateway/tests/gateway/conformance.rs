//! The requirements of RFC 9112 and RFC 9110 on a server that forwards requests, by section.
//!
//! They contain what the public conformance suites for HTTP/1.1 check, none of which is in a package registry. Framing that
//! parsers read differently has more cases in `malformed`, and pipelines in `pipelines`.

use crate::support::{Behind, ServedGateway, Turn, Upstream, eventually};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n";
const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";

/// What a client sees that sends a request.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// The response of the upstream. The connection serves another request.
    Served,
    /// The response of the upstream. Then the connection ends.
    ServedLast,
    /// An error of one of these statuses, with a framed body. Then the connection ends if the response says so, and serves
    /// another request otherwise. Nothing is forwarded completely.
    Refused(&'static [u16]),
    /// The same for an invalid chunk: the status is 400.
    RefusedChunks,
}

use Outcome::{Refused, RefusedChunks, Served, ServedLast};

/// Sends each request on a new connection, and checks its outcome.
#[track_caller]
fn check(cases: &[(&str, String, Outcome)]) {
    for (requirement, request, outcome) in cases {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).serve();
        let mut client = gateway.connect();
        client.send(request);
        // hyper sees the end of the connection in the place of a mistake in a body, and may close it without a response.
        if matches!(outcome, RefusedChunks) && crate::HTTP1 == "hyper" {
            client.stop_sending();
            let responses = String::from_utf8(client.rest()).unwrap();
            assert!(
                responses.is_empty() || responses.starts_with("HTTP/1.1 400 "),
                "{requirement}: {responses}"
            );
            assert!(upstream.seen().iter().all(|it| !it.is_whole), "{requirement}: {request:?}");
            continue;
        }
        let response = client.answer();
        let shown = format!("{requirement}: {request:?}: {response:?}");
        assert!(response.is_whole, "{shown}");
        let closes = response.find("connection") == Some("close");
        match outcome {
            Served => {
                assert!(response.status() == 200 && !closes, "{shown}");
                assert_eq!(client.get("/next").status(), 200, "{shown}");
            }
            ServedLast => {
                assert_eq!(response.status(), 200, "{shown}");
                client.assert_closed();
            }
            Refused(_) | RefusedChunks => {
                let statuses = if let Refused(statuses) = outcome { *statuses } else { &[400] };
                assert!(statuses.contains(&response.status()), "{shown}");
                assert!(response.frames_its_body(), "{shown}");
                let forwarded = upstream.seen().into_iter().find(|it| it.is_whole);
                assert!(forwarded.is_none(), "{shown} forwarded as {forwarded:?}");
                if closes {
                    client.assert_closed();
                } else {
                    assert_eq!(client.get("/next").status(), 200, "{shown}");
                }
            }
        }
        assert_eq!(gateway.get("/").status(), 200, "{shown}: others are served on");
    }
}

/// RFC 9112, 2.2 and 2.3: parsing of messages, and versions.
#[test]
fn messages_are_parsed_strictly() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    check(&[
        ("2.2: an empty line before the request is ignored", format!("\r\n{GET}\r\n"), Served),
        ("2.2: a bare CR is not the end of a line", format!("{GET}x: y\rz: a\r\n\r\n"), Refused(&[400])),
        (
            "2.2: no white space before the first field",
            format!("GET / HTTP/1.1\r\n host: a\r\n\r\n{smuggled}"),
            Refused(&[400]),
        ),
        ("2.2: CR in the place of an end", format!("{GET}\rx: y\r\n\r\n"), Refused(&[400])),
        (
            "2.3: a major version that is not 1",
            "GET / HTTP/2.0\r\nhost: a\r\n\r\n".to_owned(),
            Refused(&[400, 505]),
        ),
        ("2.3: an invalid version", "GET / HTTP/9.9\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400, 505])),
        (
            "2.3: the name is case-sensitive",
            "GET / http/1.1\r\nhost: a\r\n\r\n".to_owned(),
            Refused(&[400, 505]),
        ),
        (
            "2.3: a version of several digits",
            "GET / HTTP/1.10\r\nhost: a\r\n\r\n".to_owned(),
            Refused(&[400, 505]),
        ),
    ]);
}

/// RFC 9112, 3: the request line and the target.
#[test]
fn request_lines_and_targets_have_one_reading() {
    check(&[
        ("3: a version is required", "GET /\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3: an empty version", "GET / \r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3: text before the method", format!("Extra line{GET}\r\n"), Refused(&[400])),
        ("3: two spaces", "GET  / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3: white space in the target", "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.1: a method is a token", "G(T / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.1: methods are extensible", "BREW / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Served),
        ("3.2: a request without Host", "GET / HTTP/1.1\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.2: a request with two", format!("{GET}host: b\r\n\r\n"), Refused(&[400])),
        ("3.2: the same Host twice", format!("{GET}host: a\r\n\r\n"), Refused(&[400])),
        ("3.2: an invalid Host", "GET / HTTP/1.1\r\nhost: bad host\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.2: a path in Host", "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.2.1: a relative path", "GET a HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.2.1: a fragment", "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Refused(&[400])),
        ("3.2.2: an absolute target", "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), Served),
    ]);
}

/// RFC 9112, 5: field syntax.
#[test]
fn fields_have_no_ambiguous_syntax() {
    check(&[
        (
            "5: white space around a value",
            "GET / HTTP/1.1\r\nhoSt:\ta \t\r\nempty:\r\nblank: \r\n\r\n".to_owned(),
            Served,
        ),
        ("5: bytes above ASCII in a value", format!("{GET}x: \u{e9}\r\n\r\n"), Served),
        (
            "5.1: white space before the colon",
            "GET / HTTP/1.1\r\nhost : a\r\n\r\n".to_owned(),
            Refused(&[400]),
        ),
        ("5.1: white space in a name", format!("{GET}bad header: x\r\n\r\n"), Refused(&[400])),
        ("5.1: a name is a token", format!("{GET}x-invalid[]: x\r\n\r\n"), Refused(&[400])),
        ("5.1: an empty name", format!("{GET}: x\r\n\r\n"), Refused(&[400])),
        ("5.1: a line without a colon", format!("{GET}no colon\r\n\r\n"), Refused(&[400])),
        ("5.2: a folded line", format!("{GET}x: y\r\n  continued\r\n\r\n"), Refused(&[400])),
        ("5.5 of RFC 9110: NUL", "GET / HTTP/1.1\r\nhost: a\0b\r\n\r\n".to_owned(), Refused(&[400])),
        ("5.5 of RFC 9110: other control characters", format!("{GET}x: te\x07st\r\n\r\n"), Refused(&[400])),
    ]);
}

/// RFC 9112, 6 and 7: the length of a body.
#[test]
fn bodies_have_one_length() {
    let both = "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    check(&[
        ("6.2: a body with a length", format!("{POST}content-length: 5\r\n\r\nhello"), Served),
        ("6.3: no length is no body", format!("{POST}\r\n"), Served),
        ("7.1: chunks", format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\n"), Served),
        (
            "7.1: digits of both cases",
            format!("{CHUNKED}a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n"),
            Served,
        ),
        (
            "7.1.1: unknown extensions are ignored",
            format!("{CHUNKED}5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n"),
            Served,
        ),
        ("7.1.2: trailers", format!("{CHUNKED}5\r\nhello\r\n0\r\nx-t: y\r\n\r\n"), Served),
        ("6.1: a length and chunks", format!("{POST}{both}"), Refused(&[400])),
        (
            "6.1: chunks in HTTP/1.0",
            "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            Refused(&[400]),
        ),
        (
            "6.1: an unknown coding",
            format!("{POST}transfer-encoding: nonsense\r\n\r\nhello"),
            Refused(&[400, 501]),
        ),
        (
            "6.1: chunked is not the last coding",
            format!("{POST}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
            Refused(&[400, 501]),
        ),
        (
            "6.1: chunked twice",
            format!("{POST}transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
            Refused(&[400, 501]),
        ),
        (
            "6.3: two lengths",
            format!("{POST}content-length: 5\r\ncontent-length: 7\r\n\r\nhello!!"),
            Refused(&[400]),
        ),
        ("6.3: a negative length", format!("{POST}content-length: -1234\r\n\r\n"), Refused(&[400])),
        (
            "6.3: a length that overflows",
            format!("{POST}content-length: 123456789123456789123456789\r\n\r\n"),
            Refused(&[400, 413]),
        ),
        (
            "6.3: a length that is no number",
            format!("{POST}content-length: abc\r\n\r\nhello"),
            Refused(&[400]),
        ),
        ("7.1: a size that is no number", format!("{CHUNKED}Z\r\nhello\r\n0\r\n\r\n"), RefusedChunks),
        (
            "7.1: a size that overflows",
            format!("{CHUNKED}fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
            RefusedChunks,
        ),
        ("7.1: data without an end", format!("{CHUNKED}5\r\nhello0\r\n\r\n"), RefusedChunks),
        (
            "7.1.2: an invalid trailer",
            format!("{CHUNKED}5\r\nhello\r\n0\r\nbad trailer\r\n\r\n"),
            RefusedChunks,
        ),
    ]);
}

/// RFC 9112, 9: connections.
#[test]
fn connections_end_when_they_have_to() {
    check(&[
        ("9.3: persistent by default", format!("{GET}\r\n"), Served),
        ("9.3: options are case-insensitive", format!("{GET}connection: Keep-Alive\r\n\r\n"), Served),
        ("9.6: close", format!("{GET}connection: close\r\n\r\n"), ServedLast),
        ("9.6: close of any case, in a list", format!("{GET}connection: x-a, CLOSE\r\n\r\n"), ServedLast),
        ("9.3: HTTP/1.0 is not persistent", "GET / HTTP/1.0\r\nhost: a\r\n\r\n".to_owned(), ServedLast),
    ]);
}

/// RFC 9112, 2.1: a request is answered when it is complete, wherever it was divided.
#[test]
fn a_part_of_a_request_is_not_answered() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let request = format!("{POST}x-a: b\r\ncontent-length: 5\r\n\r\nhello");
    for end in 1..request.len() {
        let mut client = gateway.connect();
        client.send(&request[..end]);
        assert_eq!(gateway.get("/").status(), 200, "others are served meanwhile");
        let response = client.ask(&request[end..]);
        assert_eq!(response.status(), 200, "divided after {:?}: {response:?}", &request[..end]);
    }
}

/// RFC 9110, 10.1.1: the client sends its body after an interim response, or gets a final one.
#[test]
fn a_client_that_waits_for_100_gets_an_answer() {
    let upstream = Upstream::script(|turn: &mut Turn| turn.always(crate::support::OK));
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    let first = client.ask(format!("{POST}content-length: 5\r\nexpect: 100-continue\r\n\r\n"));
    assert_eq!(first.status(), 100, "{first:?}");
    assert_eq!(client.ask("hello").status(), 200);
    eventually("the body is forwarded", || upstream.seen().iter().any(|it| it.text() == "hello"));
    let refused = refuse_without_body(&gateway);
    assert_eq!(refused, 400);
}

/// Returns the status of a request that expects `100 Continue` and is malformed.
fn refuse_without_body(gateway: &ServedGateway) -> u16 {
    let expecting = format!("{POST}content-length: 5\r\ncontent-length: 6\r\nexpect: 100-continue\r\n\r\n");
    gateway.connect().ask(expecting).status()
}

/// RFC 9110, 9.3.2 and 7.6.1: `HEAD` has no body, and fields of one connection are not forwarded.
#[test]
fn methods_and_fields_keep_their_meaning() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x-private\r\nx-private: 1\r\n\r\n",
    );
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send("HEAD / HTTP/1.1\r\nhost: a\r\nconnection: x-own, close\r\nx-own: 1\r\nkeep-alive: 5\r\nproxy-connection: x\r\n\r\n");
    let response = String::from_utf8(client.rest()).unwrap().to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 200 ") && response.ends_with("\r\n\r\n"), "{response:?}");
    assert!(response.contains("content-length: 5\r\n") && !response.contains("x-private"), "{response:?}");
    let forwarded = upstream.only();
    for name in ["x-own", "keep-alive", "proxy-connection"] {
        assert_eq!(forwarded.find(name), None, "{forwarded:?}");
    }
}

/// RFC 9110, 9.3.7: `OPTIONS *` is about the server. RFC 9110, 9.3.6: a server that is no proxy refuses `CONNECT`.
#[test]
fn targets_without_a_path_are_answered() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let options = gateway.connect().ask("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_ne!(options.status(), 400, "{options:?}");
    let connect = gateway.connect().ask("CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n");
    assert!((400..=599).contains(&connect.status()), "{connect:?}");
    assert!(upstream.seen().iter().all(|it| !it.start.starts_with("CONNECT")));
}
