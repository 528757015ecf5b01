//! A service with configurable responses that records its requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::message::Message;

/// Returns the response; `None` leaves the client waiting.
pub(crate) type Answer = fn(&Message) -> Option<&'static str>;

/// A service on a free port, until the test ends.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Message>>>,
}

impl Service {
    /// Starts the service.
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

    /// Returns the requests so far.
    pub(crate) fn seen(&self) -> Vec<Message> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the method and target of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen().iter().map(|request| request.request().to_owned()).collect()
    }
}

fn serve(mut stream: TcpStream, answer: Answer, seen: &Mutex<Vec<Message>>) {
    // Health checks and preconnections close without a request.
    let Some(request) = Message::read(&mut stream) else { return };
    let answer = answer(&request);
    // Recorded first, because the client may check as soon as it has the response.
    seen.lock().unwrap().push(request);
    match answer {
        Some(answer) => drop(stream.write_all(answer.as_bytes())),
        None => drop(stream.read(&mut [0])),
    }
}

/// The upstream of the proxies. It also sends rate limit headers, which clients must not get.
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
