//! Ambiguous requests are refused.

use crate::support::{Behind, Upstream, Wire};

/// Checks that a client gets one of the statuses or a closed connection, and that no request is
/// forwarded.
#[track_caller]
fn refused(upstream: &Upstream, client: &mut Wire, bytes: &[u8], statuses: &[u16]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    client.send(bytes);
    client.stop_sending();
    let said = client.rest();
    if !said.is_empty() {
        let status = String::from_utf8_lossy(&said[9..12]).parse::<u16>().unwrap();
        assert!(statuses.contains(&status), "{shown:?}: {}", String::from_utf8_lossy(&said));
    }
    let whole: Vec<_> = upstream.seen().into_iter().filter(|it| it.is_whole).collect();
    assert!(whole.is_empty(), "{shown:?} went up as {whole:?}");
}

#[test]
fn ambiguous_heads_are_not_forwarded() {
    let post = "POST / HTTP/1.1\r\nhost: a\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    let cases = [
        format!("{post}content-length: 5\r\ncontent-length: 6\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: 5, 6\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: +5\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: -5\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: 0x5\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: 5 5\r\n\r\nhello{smuggled}"),
        format!("{post}content-length:\r\n\r\n{smuggled}"),
        format!("{post}content-length: 05\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: 5\r\ncontent-length: 5\r\n\r\nhello{smuggled}"),
        format!("{post}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}content-length: 100\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}content-length: 99999999999999999999999\r\n\r\nhello"),
        format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: identity\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}transfer-encoding : chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post} transfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{post}x: y\r\n folded: z\r\n\r\n"),
        format!("{post}x: a\rb\r\n\r\n"),
        format!("{post}x: a\0b\r\n\r\n"),
        format!("{post}x\0: b\r\n\r\n"),
        format!("{post}: b\r\n\r\n"),
        format!("{post}no colon\r\n\r\n"),
        "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\nhost: a\n\n".to_owned(),
        "GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n".to_owned(),
        "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1 \r\nhost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.2\r\nhost: a\r\n\r\n".to_owned(),
        "GET / HTTP/3.0\r\nhost: a\r\n\r\n".to_owned(),
        "GET / http/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET /\r\n\r\n".to_owned(),
        "G@T / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\rhost: a\r\r".to_owned(),
        "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03".to_owned(),
    ];
    for bytes in cases {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).serve();
        refused(&upstream, &mut gateway.connect(), bytes.as_bytes(), &[400, 501, 505]);
        assert_eq!(gateway.get("/").status(), 200, "others are served on");
        assert_eq!(upstream.connections(), 1, "{bytes:?}");
    }
}

#[test]
fn bad_chunks_never_become_a_whole_request() {
    let post = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunks in [
        "x\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
        "5\r\nhello\r\n",
        "5\r\nhel",
        "",
    ] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).serve();
        refused(&upstream, &mut gateway.connect(), format!("{post}{chunks}").as_bytes(), &[400, 408]);
        let mut client = gateway.connect();
        let endless = format!("{post}5;{}", "x".repeat(100_000));
        refused(&upstream, &mut client, endless.as_bytes(), &[400, 408]);
    }
}

#[test]
fn bad_chunks_get_an_error_response() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n";
    let mut client = gateway.connect();
    client.ask(post).assert_problem(400);
    client.assert_closed();
}

/// A request that only hyper serves is as strict as any other: its method is not one of the common ones.
#[test]
fn ambiguous_requests_of_any_method_are_refused() {
    let brew = "BREW / HTTP/1.1\r\nhost: a\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for rest in [
        format!("content-length: 033\r\n\r\n{smuggled}"),
        format!("content-length: 2\r\ncontent-length: 2\r\n\r\nhi{smuggled}"),
        format!("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("transfer-encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\n\r\n{smuggled}"),
        // The trailers end at the second LF for some parsers, and after the smuggled request for others.
        format!("transfer-encoding: chunked\r\n\r\n0\r\nx: y\n\n{smuggled}"),
        format!("x: y\n\n{smuggled}"),
    ] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).serve();
        refused(&upstream, &mut gateway.connect(), format!("{brew}{rest}").as_bytes(), &[400]);
        // The first request of a connection is not the only one that is checked.
        let mut client = gateway.connect();
        assert_eq!(client.ask(format!("{brew}content-length: 2\r\n\r\nhi")).status(), 200);
        client.send(format!("{brew}{rest}"));
        let answers = String::from_utf8(client.rest()).unwrap();
        assert!(
            answers.matches("HTTP/1.1 ").count() <= 1 && !answers.contains(" 200 "),
            "{rest:?}: {answers}"
        );
        let whole = upstream.seen().iter().filter(|it| it.is_whole).count();
        assert_eq!(whole, 1, "{rest:?}");
        assert_eq!(gateway.get("/").status(), 200);
    }
}

#[test]
fn more_than_the_caps_allow_is_refused_with_the_reason() {
    let caps = "caps: {header_bytes: 4KiB, headers: 20, body: 10KB}";
    let long = "x".repeat(5_000);
    let many = "x-more: 1\r\n".repeat(25);
    let chunk = format!("1f40\r\n{}\r\n", "x".repeat(8_000));
    let post = "POST / HTTP/1.1\r\nhost: a\r\n";
    let over = "x".repeat(20_000);
    for (request, statuses) in [
        (format!("GET / HTTP/1.1\r\nhost: a\r\nx: {long}\r\n\r\n"), &[431][..]),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), &[431]),
        (format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"), &[414, 431]),
        (format!("{post}content-length: 20000\r\n\r\n{over}"), &[413]),
        (format!("{post}content-length: 20000\r\nexpect: 100-continue\r\n\r\n"), &[413]),
        (format!("{post}transfer-encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}0\r\n\r\n"), &[413]),
    ] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).with(caps).serve();
        let mut client = gateway.connect();
        client.send(&request);
        let answer = client.answer();
        assert!(statuses.contains(&answer.status()), "{}: {answer:?}", &request[..60]);
        assert!(upstream.seen().iter().all(|it| !it.is_whole));
        assert_eq!(gateway.get("/").status(), 200);
    }
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with(caps).serve();
    let exactly = format!("{post}content-length: 10000\r\n\r\n{}", "x".repeat(10_000));
    assert_eq!(gateway.connect().ask(exactly).status(), 200);
}

#[test]
fn a_target_of_any_length_is_answered() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("caps: {header_bytes: 1MiB}").serve();
    let request = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(70_000));
    let answer = gateway.connect().ask(request);
    assert!(matches!(answer.status(), 414 | 431), "{answer:?}");
    assert_eq!(upstream.connections(), 0);
}
