//! A service that answers as it is told and remembers what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::message::Message;

/// Says what to answer; `None` leaves the asker waiting.
pub(crate) type Answer = fn(&Message) -> Option<&'static str>;

/// A service on a port of its own, until the test ends.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Message>>>,
}

impl Service {
    /// Starts one.
    pub(crate) fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let remembered = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&remembered);
                thread::spawn(move || serve(stream, answer, &seen));
            }
        });
        Self { address, seen }
    }

    /// What it was asked so far.
    pub(crate) fn seen(&self) -> Vec<Message> {
        self.seen.lock().unwrap().clone()
    }

    /// Method and target of what it was asked so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen().iter().map(|request| request.request().to_owned()).collect()
    }
}

fn serve(mut stream: TcpStream, answer: Answer, seen: &Mutex<Vec<Message>>) {
    // Some connect and go away: health checks, and connections made ahead.
    let Some(request) = Message::read(&mut stream) else { return };
    let answer = answer(&request);
    // First: whoever has the answer may look.
    seen.lock().unwrap().push(request);
    match answer {
        Some(answer) => drop(stream.write_all(answer.as_bytes())),
        None => drop(stream.read(&mut [0])),
    }
}

/// The service behind the proxies. It says something of limits too, which nobody should hear.
#[allow(clippy::unnecessary_wraps, reason = "it is an `Answer`")]
pub(crate) fn app(request: &Message) -> Option<&'static str> {
    Some(match request.request() {
        "GET /broken" => {
            "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 6\r\n\r\nbroken"
        }
        "GET /secret" => "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 6\r\n\r\nsecret",
        head if head.starts_with("HEAD ") => {
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
        }
        _ => {
            "HTTP/1.1 200 OK\r\nConnection: close\r\nX-RateLimit-Limit: 999\r\n\
             RateLimit: \"app\";r=9\r\nContent-Length: 5\r\n\r\nhello"
        }
    })
}
