//! Hosts and targets mean the same to the gateway and to upstreams.

use crate::support::{Behind, Upstream};

#[test]
fn ambiguous_hosts_are_not_forwarded() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    for host in [
        "a.test:80:90",
        "a.test:abc",
        "a.test:;",
        "a.test:+80",
        "a.test:99999",
        "a.test:123456",
        "[::1",
        "::1",
        "[::1]80",
        "[::1]x:80",
        "[a.test]",
        "a,b",
        "a.test, b.test",
        "a;b",
        "a\"b",
        "a%41",
        ":80",
        ":",
        "a\\b",
    ] {
        gateway.connect().ask(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).assert_problem(400);
        assert_eq!(upstream.connections(), 0, "{host}");
    }
    for host in ["a.test", "a.test:8080", "a.test:", "a_b-c.test:65535", "[::1]:80", "[::1]", "127.0.0.1:1"] {
        let answer = gateway.connect().ask(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert_eq!(answer.status(), 200, "{host}");
        assert_eq!(upstream.seen().pop().unwrap().header("host"), host);
    }
}

/// RFC 9112, 3.2: a target with a host does not replace the header.
#[test]
fn a_target_with_a_host_needs_a_valid_host_header() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    for lines in ["", "host: a, b\r\n", "host:\\ a\r\n", "host:\r\n", "host: a\r\nhost: a\r\n"] {
        let answer = gateway.connect().ask(format!("GET http://a.test/ HTTP/1.1\r\n{lines}\r\n"));
        answer.assert_problem(400);
        assert_eq!(upstream.connections(), 0, "{lines:?}");
    }
    let answer = gateway.connect().ask("GET http://a.test/ HTTP/1.1\r\nhost: other.test\r\n\r\n");
    assert_eq!((answer.status(), upstream.only().header("host")), (200, "a.test"));
}

#[test]
fn limits_on_a_host_match_every_spelling() {
    let policy = "limits: [{host: a.test, by: global, bucket: 1/hour}]";
    for host in ["a.test", "a.test:", "a.test:8080", "A.TEST"] {
        let upstream = Upstream::ok();
        let gateway = Behind::new(&upstream).limited(policy).serve();
        let get = |host: &str| gateway.connect().ask(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert_eq!(get("a.test").status(), 200);
        assert_eq!(get(host).status(), 429, "{host}");
        assert_eq!(get("b.test").status(), 200);
    }
}

#[test]
fn targets_that_are_not_paths_are_not_forwarded() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).serve();
    for target in ["*", "ftp://h/x", "login", "login:80", "login/", "x@login", "?q=1", "a.test/login"] {
        // The parser refuses some of these without a body.
        let answer = gateway.connect().ask(format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n"));
        assert_eq!(answer.status(), 400, "{target}");
        assert_eq!(upstream.connections(), 0, "{target}");
    }
    for (line, sent) in [("OPTIONS *", "OPTIONS * HTTP/1.1"), ("GET https://h/x", "GET /x HTTP/1.1")] {
        let answer = gateway.connect().ask(format!("{line} HTTP/1.1\r\nhost: h\r\n\r\n"));
        assert_eq!((answer.status(), upstream.seen().pop().unwrap().start.as_str()), (200, sent));
    }
}

#[test]
fn a_request_without_a_host_does_not_pass_limits_on_hosts() {
    let upstream = Upstream::ok();
    let policy = "limits: [{host: a.test, by: global, bucket: 1/hour}]";
    let gateway = Behind::new(&upstream).limited(policy).serve();
    for head in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nhost:\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        gateway.connect().ask(head).assert_problem(400);
        assert_eq!(upstream.connections(), 0, "{head:?}");
    }
    let answer = gateway.connect().ask("GET http://a.test/ HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status(), upstream.seen().pop().unwrap().header("host")), (200, "a.test"));
}
