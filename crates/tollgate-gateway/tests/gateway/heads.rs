//! Heads as upstreams and clients see them.

use crate::support::{Behind, Message, Upstream};

/// Returns the request as the upstream saw it.
#[track_caller]
fn seen_of(gateway: &Behind, upstream: &Upstream, request: &str) -> Message {
    let answer = gateway.serve().connect().ask(request);
    assert_eq!(answer.status(), 200, "{request:?}: {answer:?}");
    upstream.only()
}

#[track_caller]
fn seen(request: &str) -> Message {
    let upstream = Upstream::ok();
    seen_of(&Behind::new(&upstream), &upstream, request)
}

#[test]
fn hop_by_hop_headers_are_not_forwarded() {
    let request = "GET /x HTTP/1.1\r\nhost: example.com\r\nconnection: keep-alive, x-private, close, host\r\n\
                   x-private: 1\r\nkeep-alive: timeout=5\r\nproxy-connection: keep-alive\r\n\
                   proxy-authorization: Basic eA==\r\nte: trailers, gzip\r\nupgrade: foo\r\n\
                   accept: */*\r\nx-kept: yes\r\n\r\n";
    let seen = seen(request);
    let mut names: Vec<_> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected =
        ["accept", "host", "te", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-kept"];
    assert_eq!(names, expected);
    assert_eq!(seen.header("te"), "trailers");

    let upstream = Upstream::always(
        "HTTP/1.1 200 Fine\r\ncontent-length: 2\r\nconnection: keep-alive, x-private\r\nx-private: 1\r\n\
         keep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\nx-kept: yes\r\n\
         set-cookie: a=1\r\nset-cookie: b=2\r\n\r\nok",
    );
    let answer = Behind::new(&upstream).serve().get("/");
    for gone in ["connection", "x-private", "keep-alive", "proxy-authenticate", "upgrade"] {
        assert_eq!(answer.find(gone), None, "{gone}");
    }
    assert_eq!(answer.header("x-kept"), "yes");
    let cookies: Vec<_> = answer.headers.iter().filter(|it| it.0 == "set-cookie").map(|it| &*it.1).collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
}

#[test]
fn upstreams_receive_the_client_address() {
    let claims = "GET / HTTP/1.1\r\nhost: example.com:81\r\nx-forwarded-for: 203.0.113.9\r\n\
                  x-forwarded-proto: https\r\nforwarded: for=203.0.113.9\r\nvia: 1.0 fred\r\n\r\n";
    let trusting = "client: {trusted_proxies: [127.0.0.1]}\nlimits: []";
    let own = r#"for=127.0.0.1;host="example.com:81";proto=http"#;
    let appended = format!("for=203.0.113.9, {own}");
    for (forwarded, policy, x_for, x_proto, x_host, element) in [
        ("x-forwarded", "limits: []", "127.0.0.1", "http", "example.com:81", "absent"),
        ("forwarded", "limits: []", "absent", "absent", "absent", own),
        ("both", "limits: []", "127.0.0.1", "http", "example.com:81", own),
        ("off", "limits: []", "absent", "absent", "absent", "absent"),
        ("both", trusting, "203.0.113.9, 127.0.0.1", "https", "example.com:81", &*appended),
    ] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).with(&format!("forwarded: {forwarded}")).limited(policy);
        let seen = seen_of(&gateway, &upstream, claims);
        let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
        assert_eq!(
            names.map(|it| seen.header(it)),
            [x_for, x_proto, x_host, element],
            "{forwarded}, {policy}"
        );
        let via: Vec<_> = seen.headers.iter().filter(|it| it.0 == "via").map(|it| &*it.1).collect();
        assert_eq!(via, ["1.0 fred", "1.1 tollgate"]);
    }
}

#[test]
fn targets_are_forwarded_as_the_paths_that_limits_matched() {
    for (target, line) in [
        ("/", "GET / HTTP/1.1"),
        ("/a%2Fb//c;d?x=%20&y=/../z", "GET /a%2Fb//c;d?x=%20&y=/../z HTTP/1.1"),
        ("/a/../b/./c", "GET /b/c HTTP/1.1"),
        ("/%2e%2e/%2E/x?", "GET /x? HTTP/1.1"),
        ("http://example.com", "GET / HTTP/1.1"),
        ("http://example.com/a?b", "GET /a?b HTTP/1.1"),
        ("http://example.com?b", "GET /?b HTTP/1.1"),
    ] {
        assert_eq!(
            seen(&format!("GET {target} HTTP/1.1\r\nhost: example.com\r\n\r\n")).start,
            line,
            "{target}"
        );
    }
    assert_eq!(seen("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").start, "OPTIONS * HTTP/1.1");
}

#[test]
fn the_host_of_the_target_beats_the_host_header() {
    let seen = seen("GET http://one.example/x HTTP/1.1\r\nhost: two.example\r\n\r\n");
    assert_eq!(seen.header("host"), "one.example");
    assert_eq!(seen.header("x-forwarded-host"), "one.example");
}

#[test]
fn exactly_one_host_is_accepted() {
    for (head, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: user@a\r\n\r\n", 400),
        ("GET http://user@a/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n", 405),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ] {
        let upstream = Upstream::ok();
        let answer = Behind::new(&upstream).serve().connect().ask(head);
        answer.assert_problem(status);
        assert_eq!(upstream.connections(), 0, "{head:?}");
        assert_eq!(answer.find("allow").is_some(), status == 405);
    }
}

#[test]
fn a_response_with_two_equal_lengths_is_forwarded_with_one() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 50\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let upstream = Upstream::always(answer);
        let got = Behind::new(&upstream).serve().get("/");
        if got.status() == 502 {
            continue;
        }
        let lengths = (got.find("content-length"), got.find("transfer-encoding"));
        assert!(matches!(lengths, (None, Some("chunked")) | (Some("5"), None)), "{got:?}");
        assert_eq!((got.text().as_str(), got.is_whole), ("hello", true));
    }
}

#[test]
fn informational_responses_are_not_the_response() {
    let upstream = Upstream::always(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!((answer.status(), answer.text().as_str(), answer.find("link")), (200, "ok", None));
    }
}

#[test]
fn heads_of_answers_that_have_no_body_keep_their_length() {
    let upstream = Upstream::script(|turn| {
        while let Some(request) = turn.request() {
            let answer = match request.start.split(' ').next() {
                Some("HEAD") => "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
                Some("DELETE") => "HTTP/1.1 204 No Content\r\n\r\n",
                _ => "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n",
            };
            turn.wire.send(answer);
        }
    });
    let gateway = Behind::new(&upstream).serve();
    let mut client = gateway.connect();
    client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().header("content-length"), "1234");
    let answer = client.ask("DELETE / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((answer.status(), answer.find("content-length")), (204, None));
    let answer = client.get("/");
    assert_eq!((answer.status(), answer.header("etag")), (304, "\"x\""));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn forwarding_headers_of_untrusted_peers_are_removed_in_every_spelling() {
    let claims = [
        ("x-forwarded-port", "444"),
        ("x-forwarded-prefix", "/admin"),
        ("x-real-ip", "203.0.113.9"),
        ("x_forwarded_for", "203.0.113.9"),
        ("x_real_ip", "203.0.113.9"),
    ];
    let lines: String = claims.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect();
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}x-forward: yes\r\nx_kept: yes\r\n\r\n");
    let trusting = "client: {trusted_proxies: [127.0.0.1]}\nlimits: []";
    for (policy, believed) in [("limits: []", false), (trusting, true)] {
        for forwarded in ["x-forwarded", "forwarded", "off"] {
            let upstream = Upstream::ok();
            let gateway = Behind::new(&upstream).with(&format!("forwarded: {forwarded}")).limited(policy);
            let seen = seen_of(&gateway, &upstream, &request);
            for (name, value) in claims {
                assert_eq!(seen.find(name), believed.then_some(value), "{name}, {forwarded}");
            }
            assert_eq!((seen.header("x-forward"), seen.header("x_kept")), ("yes", "yes"));
        }
    }
}

#[test]
fn an_answer_in_an_encoding_that_cannot_be_passed_on_is_a_failure() {
    for encoding in ["gzip, chunked", "gzip", "chunked\r\ntransfer-encoding: chunked"] {
        let upstream = Upstream::always(format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: {encoding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        ));
        let gateway = Behind::new(&upstream).serve();
        let mut client = gateway.connect();
        for _ in 0..2 {
            client.get("/").assert_problem(502);
        }
        assert_eq!(upstream.connections(), 2, "a connection with such an answer on it is not used again");
    }
}

#[test]
fn headers_that_replace_path_method_or_host_do_not_pass_the_gateway() {
    let request = "GET /x HTTP/1.1\r\nhost: a\r\nx-original-url: /admin\r\nX_Rewrite_URL: /admin\r\n\
                   x-http-method-override: DELETE\r\nx-kept: yes\r\n\r\n";
    for (setting, kept) in [
        ("workers: 1", ""),
        ("override_headers: remove", ""),
        ("override_headers: X-HTTP-Method-Override", "x-http-method-override"),
        ("override_headers: keep", "x-original-url x_rewrite_url x-http-method-override"),
    ] {
        let upstream = Upstream::ok();
        let seen = seen_of(&Behind::new(&upstream).with(setting), &upstream, request);
        let names = seen.headers.iter().map(|(name, _)| name.to_ascii_lowercase());
        let mut names: Vec<_> =
            names.filter(|it| it.starts_with('x') && !it.starts_with("x-forwarded")).collect();
        let mut expected: Vec<_> = kept.split_whitespace().chain(["x-kept"]).collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected, "{setting}");
    }
}

#[test]
fn removed_headers_are_not_used_as_keys() {
    let upstream = Upstream::ok();
    let policy = "limits: [{by: 'header:X-Original-URL', bucket: 1/hour}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    let get = |url: &str| {
        gateway.connect().ask(format!("GET / HTTP/1.1\r\nhost: a\r\nx-original-url: {url}\r\n\r\n"))
    };
    assert_eq!((get("/a").status(), get("/b").status()), (200, 429));
}
