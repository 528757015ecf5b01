//! `records: {dir: …}`: decisions are found by their ids after they left memory, and after a crash.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tollgate_testkit::{Scratch, Tollgate, wait_until};

use super::client::{Client, post_json};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

fn policy(dir: &Path) -> String {
    format!(
        "gateway: {{workers: 1}}\nobserve: {{records: 100}}\nprivacy: {{keys: hashed}}\nrecords: {{dir: {}, max: 16MiB}}\n\
         limits: [{{name: login, endpoint: /login, by: user, bucket: 1/day}}, {{name: api, by: ip, bucket: 2/day}}]\n",
        dir.display()
    )
}

/// Asks until a request is refused, and returns the id of the refusal.
fn refused(tollgate: &Tollgate, path: &str, user: &str) -> String {
    let body = format!(r#"{{"path":"{path}","ip":"203.0.113.9","user":"{user}"}}"#);
    for _ in 0..3 {
        let answer = post_json(tollgate.api, "/v1/check", &body);
        if answer["allowed"] == false {
            return answer["id"].as_str().unwrap().to_owned();
        }
    }
    panic!("{}", tollgate.log());
}

fn get(api: SocketAddr, path: &str) -> (u16, String) {
    let answer = Client::connect(api).unwrap().get(path).unwrap();
    (answer.status, String::from_utf8(answer.body).unwrap())
}

fn metric(tollgate: &Tollgate, name: &str) -> u64 {
    let (_, text) = get(tollgate.api, "/metrics");
    let line = text.lines().find(|it| it.starts_with(&format!("{name} "))).unwrap_or_default();
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Has requests refused, a few at a time: memory has room for 100 records until they are written.
fn refuse_many(tollgate: &Tollgate, user: &str, count: u64) {
    let written = || metric(tollgate, "tollgate_records_written_total");
    for _ in 0..count / 50 {
        let before = written();
        (0..50).for_each(|_| drop(refused(tollgate, "/other", user)));
        wait_until("the decisions are written", || written() >= before + 50);
    }
}

fn run(tollgate: &Tollgate, arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(arguments)
        .args(["--api", &format!("http://{}", tollgate.api)])
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_refusal_is_explained_after_it_left_memory_and_after_a_crash() {
    let files = Scratch::new();
    let dir = files.path().join("records");
    let mut first = Tollgate::start(BINARY, &policy(&dir));
    let id = refused(&first, "/login", "ann@example.com");
    // Memory has room for 125 refusals, and for the first one of each key: the same key fills it.
    refuse_many(&first, "ann@example.com", 300);
    let (status, explained) = get(first.api, &format!("/v1/decisions/{id}"));
    assert_eq!(status, 200, "{explained}");
    first.program.signal("KILL");
    first.program.wait();

    let second = Tollgate::start(BINARY, &policy(&dir));
    let (status, text) = get(second.api, &format!("/v1/decisions/{id}"));
    assert_eq!(status, 200, "{text}");
    let explanation: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&explanation["limit"], &explanation["policy_is_current"]), (&"login".into(), &false.into()));
    assert!(explanation["summary"].as_str().unwrap().starts_with("Refused by `login`"), "{text}");
    assert!(explanation["limits"][0]["arithmetic"][0].is_string(), "{text}");
    let words = run(&second, &["explain", &id]);
    assert!(String::from_utf8_lossy(&words.stdout).contains("Refused by `login`"), "{words:?}");
    // No raw key is on disk.
    for entry in fs::read_dir(&dir).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        for secret in ["ann@example.com", "203.0.113.9"] {
            assert!(!bytes.windows(secret.len()).any(|it| it == secret.as_bytes()), "{secret}");
        }
    }
    // The counts of the last second may be lost with a crash.
    let (status, text) = get(second.api, "/v1/history?since=1h");
    let history: Value = serde_json::from_str(&text).unwrap();
    assert!(status == 200 && history["step_s"] == 60 && history["refused"].is_array(), "{text}");
}

#[test]
fn decisions_are_listed_by_time_limit_and_key() {
    let files = Scratch::new();
    let dir = files.path().join("records");
    let tollgate = Tollgate::start(BINARY, &policy(&dir));
    let id = refused(&tollgate, "/login", "ann@example.com");
    refuse_many(&tollgate, "bob", 1_500);
    let listed = |arguments: &[&str]| json(&run(&tollgate, &[&["decisions", "--json"], arguments].concat()));
    let ids = |found: &Value| -> Vec<String> {
        let lines = found["decisions"].as_array().unwrap();
        lines.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids(&listed(&["--since", "2h", "-n", "2000"]));
    assert!(all.len() >= 1_501 && all.contains(&id), "{}", all.len());
    assert_eq!(ids(&listed(&["--since", "2h", "-n", "10"])), all[all.len() - 10..]);
    let of_login = listed(&["--limit", "login", "--refused"]);
    assert_eq!(ids(&of_login), [id.as_str()]);
    let key = of_login["decisions"][0]["key"].as_str().unwrap().to_owned();
    assert_eq!(ids(&listed(&["--refused", "--limit", "login", "--key", &key])), [id.as_str()]);
    assert_eq!(ids(&listed(&["--until", "2h", "--since", "3h"])), [""; 0]);
    let text = run(&tollgate, &["decisions", "--refused", "--limit", "login"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains(&format!("{id}  refused  login")), "{text:?}");
    // The folder is read without the server, too.
    let offline = Command::new(BINARY)
        .args(["decisions", "--json", "--refused", "--limit", "login", "--dir"])
        .arg(&dir)
        .output();
    assert_eq!(ids(&json(&offline.unwrap())), [id]);
    let (status, text) = get(tollgate.api, "/v1/decisions?since=yesterday");
    assert!(status == 400 && text.contains("such as `since=2h`"), "{text}");
    let (status, text) = get(tollgate.api, "/v1/decisions?since=1h&before=x");
    assert!(status == 400 && text.contains("before=7-1024"), "{text}");
}

#[test]
fn a_folder_of_another_process_is_refused_at_the_start() {
    let files = Scratch::new();
    let config = policy(&files.path().join("records"));
    let _first = Tollgate::start(BINARY, &config);
    let file = files.write("second.yaml", &config);
    let second = Command::new(BINARY)
        .args([
            "serve",
            "--set",
            "listen={gateway: off, api: '127.0.0.1:0', rls: off, resp: off}",
            "--config",
        ])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{text}");
    assert!(
        text.contains("is in use by another process") && text.contains("--set records.dir=FOLDER"),
        "{text}"
    );
}

#[test]
fn a_folder_that_cannot_be_used_does_not_stop_serving() {
    let files = Scratch::new();
    let dir = files.path().join("records");
    fs::write(&dir, "").unwrap();
    let tollgate = Tollgate::start(BINARY, &policy(&dir));
    let id = refused(&tollgate, "/login", "ann@example.com");
    let (status, _) = get(tollgate.api, &format!("/v1/decisions/{id}"));
    assert_eq!((status, metric(&tollgate, "tollgate_records_writable")), (200, 0));
    assert!(tollgate.log().contains("there is a file of that name; serving goes on"), "{}", tollgate.log());
    fs::remove_file(&dir).unwrap();
    wait_until("the folder is used", || metric(&tollgate, "tollgate_records_writable") == 1);
}
