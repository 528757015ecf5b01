//! A server with canned responses, one for each request, in any order.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// A request that was received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// `GET /v1/mode`
    pub(crate) line: String,
    /// Null if there was no body.
    pub(crate) body: Value,
}

/// The server. Its thread ends with the test.
pub(crate) struct CannedServer {
    url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    is_down: Arc<AtomicBool>,
}

impl CannedServer {
    /// Responds by the first line of a request, without its query; 404 to all other requests.
    pub(crate) fn answering(answers: Vec<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let is_down = Arc::<AtomicBool>::default();
        let (log, down) = (requests.clone(), is_down.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if down.load(Ordering::Relaxed) {
                    continue;
                }
                let Some(question) = read(&stream) else { continue };
                let line = question.line.split('?').next().unwrap_or_default().to_owned();
                log.lock().unwrap().push(question);
                let answer = answers.iter().find(|(known, _)| *known == line);
                let answer = answer.map_or_else(|| "HTTP/1.1 404 Not Found\r\n\r\n", |(_, answer)| answer);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { url, requests, is_down }
    }

    /// Starts or stops closing all connections without a response.
    pub(crate) fn down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = first.rsplit_once(" HTTP/1.1")?.0.to_owned();
    Some(ReceivedRequest { line, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Returns a JSON response.
pub(crate) fn ok(answer: &Value) -> String {
    let body = answer.to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Returns a problem document.
pub(crate) fn problem(status: &str, detail: &str) -> String {
    let body = json!({"detail": detail}).to_string();
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
