//! Sends requests to a server, and waits for log lines.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use tollgate_testkit::Tollgate;

/// Sends a raw request, and reads its response to the end.
pub(crate) fn ask_raw(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), body.unwrap_or_default())
}

/// Sends a request from its parts.
pub(crate) fn ask(address: SocketAddr, request: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\
         Content-Type: application/json\r\n\r\n{body}"
    );
    ask_raw(address, request.as_bytes())
}

pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path}"), "", "")
}

/// Returns a resource of the API as JSON.
pub(crate) fn get_json(api: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(api, path).1).unwrap()
}

/// Switches the mode of a limit.
pub(crate) fn switch(api: SocketAddr, path: &str, mode: &str) -> Value {
    let body = format!("{{\"mode\":\"{mode}\",\"reason\":\"in a test\",\"by\":\"ann\"}}");
    let (status, answer) = ask(api, &format!("PUT {path}"), "", &body);
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

/// Returns one number of `/metrics`.
pub(crate) fn metric(api: SocketAddr, name: &str) -> Option<u64> {
    let text = get(api, "/metrics").1;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Waits until the log contains the text.
pub(crate) fn wait_for_log(tollgate: &mut Tollgate, text: &str) {
    let log = tollgate.files.path().join("stderr.log");
    let said = || fs::read_to_string(&log).unwrap_or_default().contains(text);
    tollgate.program.wait_until(text, said);
}

pub(crate) fn stop(tollgate: &mut Tollgate) {
    tollgate.program.signal("TERM");
    assert_eq!(tollgate.program.wait().code(), Some(0));
}
