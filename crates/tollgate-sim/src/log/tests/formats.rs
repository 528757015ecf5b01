//! Lines of every format and the requests that they become, through one `check()`.

use super::*;
use crate::log::{Fields, Format};

/// Checks the request of each line; `skipped` for lines that are not a request.
fn check(reading: &ReadOptions, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        let seen = read(one(*line), reading).map(|seen| match seen.entries.as_slice() {
            [entry] => summary(entry),
            [] => format!("skipped {}", seen.tally.skipped),
            many => format!("{} requests", many.len()),
        });
        assert_eq!(seen.unwrap_or_else(|error| error.to_string()), *expected, "{line}");
    }
}

fn with(fields: &[&str]) -> ReadOptions {
    ReadOptions::default().fields(Fields::parse(fields).unwrap())
}

#[test]
fn lines_of_nginx_and_apache_are_parsed() {
    check(
        &ReadOptions::default().format(Format::Combined),
        &[
            (
                r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a.png?x=1 HTTP/1.1" 200 203023 "http://b.example/" "Mozilla/5.0 (X11)""#,
                "1431857103000000 GET /a.png?x=1 ip=83.149.9.216 status=200 referer=http://b.example/ agent=Mozilla/5.0 (X11)",
            ),
            // Common; another zone; a user.
            (
                r#"127.0.0.1 - frank [17/May/2015:03:05:03 -0700] "POST /login HTTP/1.0" 401 -"#,
                "1431857103000000 POST /login ip=127.0.0.1 user=frank status=401",
            ),
            // A user with a blank and one with brackets.
            (
                r#"127.0.0.1 - John [x] Doe [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1"#,
                "1431857103000000 GET / ip=127.0.0.1 user=John [x] Doe status=200",
            ),
            // A host before, with and without a port; IPv6.
            (
                r#"shop.example:443 2001:db8::7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/2.0" 304 0 "-" "-""#,
                "1431857103000000 GET / ip=2001:db8::7 host=shop.example:443 status=304",
            ),
            (
                r#"shop.example 203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 0"#,
                "1431857103000000 GET / ip=203.0.113.1 host=shop.example status=200",
            ),
            // Further fields at the end.
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "curl" "10.0.0.1" 0.003 [up]"#,
                "1431857103000000 GET / ip=203.0.113.1 status=200 agent=curl",
            ),
            // Quotes: escaped by Apache, by nginx, and not escaped.
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET /?q=\"a\" HTTP/1.1" 200 1 "-" "a \"b\" c""#,
                r#"1431857103000000 GET /?q="a" ip=203.0.113.1 status=200 agent=a "b" c"#,
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET /?q=\x22a\x22 HTTP/1.1" 200 1 "-" "x\x5Cy""#,
                r#"1431857103000000 GET /?q="a" ip=203.0.113.1 status=200 agent=x\y"#,
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET /?q="a"b HTTP/1.1" 200 1"#,
                r#"1431857103000000 GET /?q="a"b ip=203.0.113.1 status=200"#,
            ),
            // A truncated user agent, and one that ends with a backslash.
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "Mozilla/5.0 (comp"#,
                "1431857103000000 GET / ip=203.0.113.1 status=200 agent=Mozilla/5.0 (comp",
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET /a\" 200 1"#,
                r"1431857103000000 GET /a\ ip=203.0.113.1 status=200",
            ),
            // Invalid requests, which count as requests.
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01\x02" 400 150 "-" "-""#,
                "1431857103000000 \u{16}\u{3}\u{1}\u{2} / ip=203.0.113.1 status=400",
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "-" 408 0 "-" "-""#,
                "1431857103000000  / ip=203.0.113.1 status=408",
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "" 400 0"#,
                "1431857103000000  / ip=203.0.113.1 status=400",
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET /old" 200 7"#,
                "1431857103000000 GET /old ip=203.0.113.1 status=200",
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET /a b/c HTTP/1.1" 404 7"#,
                "1431857103000000 GET /a b/c ip=203.0.113.1 status=404",
            ),
            (
                r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET http://u@x.example:80/p?q HTTP/1.1" 404 7"#,
                "1431857103000000 GET /p?q ip=203.0.113.1 host=x.example:80 status=404",
            ),
            // Other time formats in the brackets; no status.
            (
                r#"203.0.113.1 - - [2015-05-17T10:05:03.5+00:00] "GET / HTTP/1.1" x y"#,
                "1431857103500000 GET / ip=203.0.113.1",
            ),
            // An unknown client, a list of clients, and a host name.
            (
                r#"- - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#,
                "1431857103000000 GET / status=200",
            ),
            (
                r#"203.0.113.1, 10.0.0.1 - ada [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#,
                "1431857103000000 GET / ip=203.0.113.1 user=ada status=200",
            ),
            // Lines that are not requests.
            ("# a comment", "skipped 1"),
            (r#"203.0.113.1 - - [yesterday] "GET / HTTP/1.1" 200 1"#, "skipped 1"),
            (r#"203.0.113.1 - - [30/Feb/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#, "skipped 1"),
            ("203.0.113.1 - - [17/May/2015:10:05:03 +0000] GET / 200 1", "skipped 1"),
            (r#"203.0.113.1 - - [17/May/2015:10:05:03 +0000] "GET / HTT"#, "skipped 1"),
            (r#"[17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#, "skipped 1"),
            (r#" [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#, "skipped 1"),
        ],
    );
}

#[test]
fn host_names_of_clients_are_distinguished_and_counted() {
    let log = ["a.example", "b.example", "203.0.113.1", "A.example"]
        .map(|client| format!("{client} - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n"))
        .concat();
    let seen = read(one(log), &ReadOptions::default()).unwrap();
    let clients: Vec<_> = seen.entries.iter().map(|it| it.client().unwrap()).collect();
    assert_eq!((clients[0], seen.tally.named), (clients[3], 3));
    assert!(clients[0] != clients[1] && clients[1] != clients[2]);
}

#[test]
fn json_lines_are_read_by_well_known_names() {
    let skipped = "a.log is JSON, but has no readable time under any known name: say which field it is, as in \
                   `--field time=@timestamp`; one of its lines is: ";
    check(
        &ReadOptions::default(),
        &[
            // nginx, by its own variables.
            (
                r#"{"time_iso8601":"2015-05-17T10:05:03+00:00","remote_addr":"203.0.113.1","remote_user":"","request":"GET /a?b HTTP/1.1","status":"200","http_user_agent":"curl","http_host":"x.example"}"#,
                "1431857103000000 GET /a?b ip=203.0.113.1 host=x.example status=200 agent=curl",
            ),
            // Caddy.
            (
                r#"{"level":"info","ts":1431857103.1234567,"request":{"remote_ip":"10.0.0.1","client_ip":"203.0.113.1","method":"GET","host":"x.example","uri":"/a?b","headers":{"User-Agent":["curl/8","x"]}},"user_id":"ada","status":200}"#,
                "1431857103123456 GET /a?b ip=203.0.113.1 host=x.example user=ada status=200 agent=curl/8",
            ),
            // Traefik.
            (
                r#"{"ClientHost":"203.0.113.1","RequestMethod":"GET","RequestPath":"/a","RequestHost":"x.example","DownstreamStatus":200,"StartUTC":"2015-05-17T10:05:03.000001Z","time":"2015-05-17T10:05:09Z"}"#,
                "1431857103000001 GET /a ip=203.0.113.1 host=x.example status=200",
            ),
            // Envoy.
            (
                r#"{"start_time":"2015-05-17T10:05:03.000Z","method":"GET","path":"/a","authority":"x.example","response_code":200,"downstream_remote_address":"203.0.113.1:5123","user_agent":null}"#,
                "1431857103000000 GET /a ip=203.0.113.1 host=x.example status=200",
            ),
            // Elastic Common Schema, nested and flat; Google Cloud; an AWS load balancer.
            (
                r#"{"@timestamp":"2015-05-17T10:05:03Z","source":{"ip":"203.0.113.1"},"http":{"request":{"method":"PUT"}},"url.path":"/a","url.query":"b"}"#,
                "1431857103000000 PUT /a?b ip=203.0.113.1",
            ),
            (
                r#"{"timestamp":"2015-05-17T10:05:03Z","httpRequest":{"remoteIp":"203.0.113.1","requestMethod":"GET","requestUrl":"https://x.example/a","status":204}}"#,
                "1431857103000000 GET /a ip=203.0.113.1 host=x.example status=204",
            ),
            (
                r#"{"time":"2015-05-17T10:05:03Z","client_ip":"203.0.113.1","request_verb":"GET","request_url":"http://x.example:80/a","elb_status_code":"200"}"#,
                "1431857103000000 GET /a ip=203.0.113.1 host=x.example:80 status=200",
            ),
            // Milliseconds, escapes, and no property but a user.
            (r#" {"ts":1431857103123,"user":"\u00e4\n"} "#, "1431857103123000  / user=ä"),
            (r#"{"msg":"started"}"#, &format!(r#"{skipped}{{"msg":"started"}}"#)),
            (
                r#"{"ts":1431857103,"msg":"started"}"#,
                &format!(r#"{skipped}{{"ts":1431857103,"msg":"started"}}"#),
            ),
        ],
    );
    check(
        &ReadOptions::default().format(Format::Json),
        &[
            (r#"{"ts":1431857103,"msg":"started"}"#, "skipped 1"),
            (r#"{"ts":1431857103,"user":"ada""#, "skipped 1"),
            (r#"{"ts":1431857103,"user":"ada"} x"#, "skipped 1"),
            (r#"["ts"]"#, "skipped 1"),
        ],
    );
}

#[test]
fn chosen_field_names_are_used() {
    check(
        &with(&[
            "time=when.at",
            "ip=peer.0",
            "ip=peer",
            "user=auth.name",
            "api_key=key",
            "tenant=org",
            "plan=tier",
            "cost=usage.tokens",
            "header:user-agent=ua",
        ]),
        &[
            (
                r#"{"when":{"at":"2015-05-17 10:05:03"},"peer":"203.0.113.1","auth":{"name":"ada"},"key":17,"org":"o","tier":"pro","usage.tokens":12.5,"ua":"x","ip":"10.0.0.1"}"#,
                "1431857103000000  / ip=203.0.113.1 user=ada key=17 tenant=o plan=pro cost=13 agent=x",
            ),
            (r#"{"when":{"at":"2015-05-17 10:05:03"}}"#, "1431857103000000  /"),
        ],
    );
    check(
        &with(&["ip=x"]),
        &[(
            r#"1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#,
            "a.log is a log of nginx or Apache, whose fields have their places: leave out `--field`, which is for JSON and CSV",
        )],
    );
}

#[test]
fn columns_are_read_by_name_or_by_number() {
    check(
        &with(&["cost=GeneratedTokens"]),
        &[
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
                "1700158623979960  / cost=10",
            ),
            ("time,x\n1,2\n", "a.log has no column `GeneratedTokens`; the first line is: time, x"),
        ],
    );
    check(
        &ReadOptions::default(),
        &[
            (
                "time;ip;request;user\n17/May/2015:10:05:03 +0000;203.0.113.1;\"GET /a;b HTTP/1.1\";\"a \"\"b\"\"\nc\"\n",
                "1431857103000000 GET /a;b ip=203.0.113.1 user=a \"b\"\nc",
            ),
            ("ts\tip\tpath\n1431857103\t203.0.113.1\t/a\n", "1431857103000000  /a ip=203.0.113.1"),
            ("time,ip\n1431857103,\"203.0.113.1\nnever closed", "1431857103000000  / ip=203.0.113.1"),
            ("time,ip\n-,203.0.113.1\n", "skipped 1"),
            ("time,ip\n", "skipped 0"),
        ],
    );
    check(
        &with(&["time=2", "ip=1"]),
        &[
            ("203.0.113.1,1431857103,x\n", "1431857103000000  / ip=203.0.113.1"),
            ("who,when,what\n203.0.113.1,1431857103,x\n", "1431857103000000  / ip=203.0.113.1"),
            ("203.0.113.1\t1431857103\n", "1431857103000000  / ip=203.0.113.1"),
        ],
    );
    check(
        &ReadOptions::default().format(Format::Csv),
        &[(
            "a,b\n1,2\n",
            "a.log has no column that is known to be the time: say which one is, by name or by number, as in \
             `--field time=1`; the first line is: a, b",
        )],
    );
}

#[test]
fn the_error_for_an_unknown_format_shows_the_first_line_and_the_formats() {
    let error = read(one("hello\x1b[31m world\nmore\n"), &ReadOptions::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("a.log is no log that can be read. Its first line is: hello\\u{1b}[31m world\n"),
        "{error}"
    );
    for word in ["combined", "json", "csv", "--format", "--field"] {
        assert!(error.contains(word), "{error}");
    }
}
