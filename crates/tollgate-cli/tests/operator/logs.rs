//! One log line for each refusal, whatever a caller sends.

use std::process::Command;

use serde_json::Value;
use tollgate_testkit::{Program, Scratch, Tollgate};

use super::asking::{ask_raw, get, metric, stop, wait_for_log};
use super::{BINARY, ONE};

/// By a header, so that a key can be any header value.
const BY_HEADER: &str =
    "limits:\n  - {name: by-header, by: 'header:x-who', bucket: 1/hour, expect: unbounded-key}\n";

#[test]
fn a_refusal_is_one_complete_line() {
    let mut tollgate = Tollgate::start(BINARY, &format!("{ONE}log: {{format: json}}\n"));
    assert_eq!([get(tollgate.gateway, "/a?secret=1").0, get(tollgate.gateway, "/b?secret=1").0], [200, 429]);
    wait_for_log(&mut tollgate, "\"message\":\"refused\"");
    stop(&mut tollgate);
    let log = tollgate.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|it| it["message"] == "refused").unwrap();
    for (field, expected) in [
        ("limit", "one"),
        ("algorithm", "token-bucket"),
        ("method", "GET"),
        ("path", "/b"),
        ("client", "127.0.0.1"),
        ("fate", "refused"),
    ] {
        assert_eq!(line[field], expected, "{line}");
    }
    assert_eq!((&line["capacity"], &line["remaining"]), (&1.into(), &0.into()), "{line}");
    assert_eq!((&line["degraded"], &line["policy_version"]), (&false.into(), &1.into()), "{line}");
    assert!(line["retry_after_ms"].as_u64().is_some_and(|it| it > 3_500_000), "{line}");
    assert_eq!(line["id"].as_str().map(str::len), Some(16), "{line}");
    assert!(!log.contains("secret"), "{log}");
}

#[test]
fn log_lines_are_rate_limited_and_suppressed_ones_are_counted() {
    let mut tollgate = Tollgate::start(BINARY, &format!("{ONE}log: {{refusals: 2/second}}\n"));
    for _ in 0..100 {
        get(tollgate.gateway, "/");
    }
    wait_for_log(&mut tollgate, "more refusals not logged");
    let suppressed = metric(tollgate.api, "tollgate_log_suppressed_total").unwrap();
    stop(&mut tollgate);
    let log = tollgate.log();
    let lines = log.lines().filter(|line| line.contains(" refused ")).count();
    assert!((2..=60).contains(&lines), "{log}");
    let reported: u64 =
        log.lines().filter_map(|line| line.split_once(" count=")?.1.parse::<u64>().ok()).sum();
    assert!(
        suppressed <= reported && lines as u64 + reported == 99,
        "{suppressed} {reported} {lines}\n{log}"
    );
}

#[test]
fn all_or_none_can_be_logged() {
    for (refusals, expected) in [("all", 50), ("off", 0)] {
        let mut tollgate = Tollgate::start(BINARY, &format!("{ONE}log: {{refusals: {refusals}}}\n"));
        for _ in 0..51 {
            get(tollgate.gateway, "/");
        }
        stop(&mut tollgate);
        let log = tollgate.log();
        assert_eq!(log.lines().filter(|line| line.contains(" refused ")).count(), expected, "{log}");
    }
}

/// Header values that could confuse a terminal or a log reader.
const HOSTILE: [&[u8]; 9] = [
    b"\x1b]0;owned\x07\x1b[2J",
    b"a\" INFO refused id=\"forged",
    b"{\"message\":\"forged\"}",
    "\u{9b}31m\u{85}".as_bytes(),
    "\u{2028}forged\u{2029}".as_bytes(),
    "\u{202e}\u{2066}gnp.exe\u{2069}".as_bytes(),
    b"\xff\xfe\x80",
    b"tab\tand \\n \\u001b",
    "\u{feff}\u{200b}invisible".as_bytes(),
];

#[test]
fn control_characters_of_callers_are_escaped_in_the_log() {
    for format in ["human", "json"] {
        let mut tollgate =
            Tollgate::start(BINARY, &format!("{BY_HEADER}log: {{format: {format}, refusals: all}}\n"));
        let mut refused = 0;
        for who in HOSTILE {
            for path in ["/x", "/%1b%5b31m%0a%0d%e2%80%a8", "/caf\u{e9}\u{202e}\u{9b}"] {
                let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Who: ");
                let request = [head.as_bytes(), who, b"\r\n\r\n"].concat();
                let (status, _) = ask_raw(tollgate.gateway, &request);
                assert!([200, 400, 429].contains(&status), "{status} {who:?} {path}");
                refused += usize::from(status == 429);
            }
        }
        assert!(refused > 6, "{refused}");
        stop(&mut tollgate);
        let log = std::fs::read(tollgate.files.path().join("stderr.log")).unwrap();
        let log = String::from_utf8(log).expect("the log is text");
        let is_harmless =
            |it: char| "\n \u{fffd}".contains(it) || it.is_ascii_graphic() || it.is_alphanumeric();
        assert!(log.chars().all(is_harmless), "{format}: {log:?}");
        let lines: Vec<_> = log.lines().filter(|line| line.contains("refused")).collect();
        assert_eq!(lines.len(), refused, "{format}: {log}");
        for line in lines {
            if format == "json" {
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!((&line["message"], &line["limit"]), (&"refused".into(), &"by-header".into()));
            } else {
                assert!(
                    line.contains(" INFO refused id=") && line.contains(" limit=\"by-header\" "),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn an_unread_log_does_not_block_shutdown() {
    let files = Scratch::new();
    let config = files.write("tollgate.yaml", &format!("{ONE}log: {{refusals: all}}\n"));
    let ready = files.path().join("ready.json");
    let (unread, log) = std::io::pipe().unwrap();
    let mut command = Command::new(BINARY);
    command.arg("serve").arg("--config").arg(&config).arg("--ready-file").arg(&ready).stderr(log);
    command.args(["--listen-gateway", "127.0.0.1:0", "--listen-api", "127.0.0.1:0"]);
    command.args(["--listen-rls", "off", "--listen-resp", "off"]);
    let mut program = Program::start(command);
    let read = || -> Option<Value> { serde_json::from_str(&std::fs::read_to_string(&ready).ok()?).ok() };
    program.wait_until("ready file", || read().is_some());
    let gateway = read().unwrap()["gateway"].as_str().unwrap().parse().unwrap();
    // Far more than a pipe holds.
    let path = format!("/{}", "x".repeat(500));
    for _ in 0..400 {
        get(gateway, &path);
    }
    program.signal("TERM");
    assert_eq!(program.wait().code(), Some(0));
    drop(unread);
}

#[test]
fn only_refusals_that_are_not_logged_count_as_suppressed() {
    let roomy = "  - {name: roomy, endpoint: /roomy, by: ip, bucket: 100000/second}\n";
    let config = ONE.replace("by: global", "endpoint: /one, by: global");
    let config = format!("{config}{roomy}log: {{refusals: off}}\nobserve: {{records: 100}}\n");
    let mut tollgate = Tollgate::start(BINARY, &config);
    for _ in 0..200 {
        get(tollgate.gateway, "/roomy");
    }
    (0..5).for_each(|_| drop(get(tollgate.gateway, "/one")));
    let api = tollgate.api;
    tollgate.program.wait_until("count", || metric(api, "tollgate_log_suppressed_total") == Some(4));
    assert_eq!(metric(api, "tollgate_log_dropped_total"), Some(0));
    stop(&mut tollgate);
}
