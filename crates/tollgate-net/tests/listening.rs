//! A surface on real sockets: workers, caps and draining.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use tollgate_net::{Caps, Connection, Drain, Drainer, HttpServer, Sockets};

/// The time after which a test has failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A service that returns the number of its worker and the peer.
struct Hello(String);

impl Service<Request<Incoming>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn call(&self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(self.0.clone())))
    }
}

/// Starts workers, each on its own thread.
fn serve(server: &HttpServer, workers: usize) -> (SocketAddr, Drainer, Vec<JoinHandle<()>>) {
    let sockets = Sockets::bind("127.0.0.1:0", workers).unwrap();
    let address = sockets.address();
    let (drainer, drain) = Drain::new();
    let start = |(number, listener)| {
        let (server, drain) = (server.clone(), drain.clone());
        thread::spawn(move || {
            let make = move |connection: &Connection| Hello(format!("{number} answers {}", connection.peer));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.serve(listener, make, drain)).unwrap();
        })
    };
    (address, drainer, sockets.into_listeners().into_iter().enumerate().map(start).collect())
}

fn join(workers: Vec<JoinHandle<()>>) {
    for worker in workers {
        worker.join().unwrap();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Reads until the connection ends.
#[track_caller]
fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error} after {all:?}"),
        _ => String::from_utf8(all).unwrap(),
    }
}

#[test]
fn workers_share_an_address_and_drain_without_losing_a_connection() {
    let (address, drainer, workers) = serve(&HttpServer::default(), 3);
    let mut clients: Vec<_> = (0..90).map(|_| connect(address)).collect();
    drainer.begin();
    let mut answers = Vec::new();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let answer = rest(client);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
        assert!(answer.contains(&format!("answers {}", client.local_addr().unwrap())), "{answer}");
        answers.push(answer.split("\r\n\r\n").nth(1).unwrap().as_bytes()[0]);
    }
    answers.sort_unstable();
    answers.dedup();
    assert_eq!(answers, *b"012", "the kernel spreads connections over the workers");
    drop(clients);
    join(workers);
}

#[test]
fn silent_connections_do_not_delay_draining() {
    let (address, drainer, workers) = serve(&HttpServer::default(), 1);
    let mut silent: Vec<_> = (0..5).map(|_| connect(address)).collect();
    silent[0].write_all(b"P").unwrap();
    drainer.begin();
    drainer.close_idle();
    for client in &mut silent {
        assert_eq!(rest(client), "");
    }
    join(workers);
}

#[test]
fn a_dropped_drainer_ends_serving() {
    let (address, drainer, workers) = serve(&HttpServer::default(), 1);
    let mut client = connect(address);
    drop(drainer);
    assert_eq!(rest(&mut client), "");
    join(workers);
}

#[test]
fn a_request_beyond_the_caps_is_refused_in_its_protocol() {
    let caps = Caps { header_bytes: 2048, headers: 10, ..Caps::default() };
    let (address, _drainer, _workers) = serve(&HttpServer { caps, ..HttpServer::default() }, 1);
    for (header, status) in [
        ("x: 1\r\n".to_owned(), 200),
        ("x: 1\r\n".repeat(20), 431),
        (format!("x: {}\r\n", "x".repeat(3000)), 431),
    ] {
        let mut client = connect(address);
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n");
        client.write_all(request.as_bytes()).unwrap();
        assert!(rest(&mut client).starts_with(&format!("HTTP/1.1 {status}")));
    }
}
