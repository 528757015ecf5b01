//! Calls of `reqwest`, to a real server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use tollgate::Sleeper;
use tollgate_client::{CallOptions, Client};

/// Answers each connection with the next response.
fn server(responses: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/items", listener.local_addr().unwrap());
    thread::spawn(move || {
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            assert_eq!(lines.map_while(Result::ok).filter(String::is_empty).take(1).count(), 1);
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    url
}

#[tokio::test]
async fn a_refused_request_is_sent_again() {
    let url = server(&[
        "HTTP/1.1 429 Too Many Requests\r\nretry-after-ms: 20\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    ]);
    let http = reqwest::Client::new();
    let client = Client::builder().sleeper(Sleeper::new(tokio::time::sleep)).build();
    let request = http.post(&url).body("a body").build().unwrap();
    let response = client.execute(&http, request, CallOptions::default()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    assert_eq!((client.counts().sent, client.counts().refused), (2, 1));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_in_its_head_is_a_failure_and_in_its_body_an_error_of_the_caller() {
    let url = server(&[
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 100\r\n\r\nok",
    ]);
    let http = reqwest::Client::new();
    let client = Client::builder().sleeper(Sleeper::new(tokio::time::sleep)).build();
    let get = || http.get(&url).build().unwrap();
    // A GET is sent again.
    let response = client.execute(&http, get(), CallOptions::default()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    // A POST may have had an effect.
    let post = http.post(&url).body("a body").build().unwrap();
    let error = client.execute(&http, post, CallOptions::default()).await.unwrap_err();
    assert!(matches!(error, tollgate_client::Error::Failed { tries: 1, .. }), "{error}");
    // The head was whole: the call has ended, and the caller sees the broken body.
    let response = client.execute(&http, get(), CallOptions::default()).await.unwrap();
    assert!(response.text().await.is_err());
    let counts = client.counts();
    assert_eq!((counts.sent, counts.failed, counts.retries), (4, 2, 1));
    assert!(client.bucket_views().iter().all(|it| it.in_flight == 0));
}
