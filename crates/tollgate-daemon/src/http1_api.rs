//! Plain HTTP/1.1 requests to the hot routes of the API, without hyper.
//!
//! The head and the body are read in the buffer of the connection. Routes, decisions and bodies are those of
//! `tollgate_server`; every other request is left to hyper.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{Request, Response};
use tokio::time::timeout;
use tollgate_gateway::HeadLines;
use tollgate_http::{write_body, write_body_with, write_status};
use tollgate_net::http1::{
    ExchangeEnd, Http1Client, Http1Surface, OutputBuffer, RequestHead, Verdict, write_date,
};
use tollgate_server::{
    Api, BufferedReply, BufferedRequest, BufferedRoute, Caller, JSON_HEADER_LINES, ReplyFuture,
};

use crate::store::AnyStore;

/// The maximum time that a client may take to read a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves the hot routes of the API on one connection.
pub(crate) struct Http1Api {
    pub(crate) api: Api<AnyStore>,
    pub(crate) caller: Caller,
}

impl Http1Surface for Http1Api {
    type Admitted = ReplyFuture;

    fn needs_body(&self, request: &RequestHead<'_, '_>) -> bool {
        Api::<AnyStore>::buffered_route(request.method, request.path).is_some()
    }

    fn decide(&self, request: &mut RequestHead<'_, '_>, out: &mut Vec<u8>) -> Verdict<ReplyFuture> {
        let Some(body) = request.whole_body else { return Verdict::HandOver };
        match Api::<AnyStore>::buffered_route(request.method, request.path) {
            Some(BufferedRoute::Raw) => self.answer(request, body, out),
            Some(BufferedRoute::Whole) => match whole(request, body) {
                Some(whole) => {
                    let (api, caller) = (self.api.clone(), self.caller.clone());
                    Verdict::Admitted(Box::pin(async move { api.answer(whole, caller).await }))
                }
                None => Verdict::HandOver,
            },
            None => Verdict::HandOver,
        }
    }

    async fn forward(&self, mut reply: ReplyFuture, client: &mut Http1Client<'_>) -> ExchangeEnd {
        // The body is in the buffer, and was read.
        let has_next = client.skip_body();
        let replied = poll_fn(|cx| match reply.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending => client.poll_left(cx).map(|()| None),
        });
        let Some(reply) = replied.await else { return ExchangeEnd::Abort };
        let is_last = client.is_last() || !has_next;
        let mut out = OutputBuffer::take();
        write_reply(&mut out, reply, is_last);
        let mut written = 0;
        let writing = poll_fn(|cx| client.poll_write_all(cx, &out, &mut written));
        match timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) if is_last => ExchangeEnd::Close,
            Ok(Ok(())) => ExchangeEnd::Complete,
            Ok(Err(_)) | Err(_) => ExchangeEnd::Abort,
        }
    }
}

impl Http1Api {
    /// Answers without a header map.
    fn answer(&self, request: &RequestHead<'_, '_>, body: &[u8], out: &mut Vec<u8>) -> Verdict<ReplyFuture> {
        let headers = &HeadLines(request.headers);
        let buffered = BufferedRequest { path: request.path, host: request.host, headers, body };
        let start = out.len();
        // Most requests are answered, so the head is written first.
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        out.extend_from_slice(JSON_HEADER_LINES);
        write_connection_lines(out, request.is_last_if_answered);
        let verdict =
            match write_body_with(out, false, |out| self.api.try_answer(&buffered, &self.caller, out)) {
                BufferedReply::Json => return Verdict::Answered,
                BufferedReply::Waits(reply) => Verdict::Admitted(reply),
                BufferedReply::Unusual => Verdict::HandOver,
            };
        out.truncate(start);
        verdict
    }
}

fn write_connection_lines(out: &mut Vec<u8>, is_last: bool) {
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    write_date(out);
}

/// Returns a request as the API reads it, or `None` if it cannot be represented.
fn whole(request: &RequestHead<'_, '_>, body: &[u8]) -> Option<Request<Full<Bytes>>> {
    let target = match request.query {
        Some(query) => format!("{}?{query}", request.path),
        None => request.path.to_owned(),
    };
    let body = Full::new(Bytes::copy_from_slice(body));
    let mut whole = Request::builder().method(request.method).uri(target).body(body).ok()?;
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        whole.headers_mut().append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    Some(whole)
}

fn write_reply(out: &mut Vec<u8>, reply: Response<Full<Bytes>>, is_last: bool) {
    let (parts, body) = reply.into_parts();
    write_status(out, parts.status);
    for (name, value) in &parts.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    write_connection_lines(out, is_last);
    if parts.headers.contains_key(CONTENT_LENGTH) {
        // The response to `HEAD`.
        out.extend_from_slice(b"\r\n");
    } else {
        write_body(out, &data(body), false);
    }
}

/// Returns the data of a body, which is a single frame.
fn data(body: Full<Bytes>) -> Bytes {
    let frame = pin!(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    match frame {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tollgate::{Limiter, Policy, SharedLimiter};
    use tollgate_gateway::Http1Server;
    use tollgate_net::{Drain, Drainer, Sockets};
    use tollgate_server::{Access, Status};

    use super::*;
    use crate::surfaces::serve_api;

    /// Limits of which some admit and others refuse.
    const POLICY: &str = "
limits:
  - {name: few, by: ip, bucket: 3/hour}
  - {name: keys, by: 'header:x-key', missing: skip, bucket: 2/hour}
";

    /// Serves the API until the drainer is dropped.
    fn serve(http1: Http1Server, access: Access) -> (SocketAddr, Drainer) {
        let policy = Policy::parse(POLICY).unwrap();
        let store = AnyStore::memory(&policy);
        let limiter = SharedLimiter::from(Limiter::with_store(policy, store));
        let api = Api::new(limiter, Arc::new(Status::new()), access);
        let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
        let address = sockets.address();
        let listener = sockets.into_listeners().pop().unwrap();
        let (drainer, drain) = Drain::new();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve_api((api, http1), listener, None, drain)).unwrap();
        });
        (address, drainer)
    }

    /// Sends requests on one connection, then closes the sending side after the last response. Returns all responses.
    async fn exchange(address: SocketAddr, requests: &str, count: usize) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A request that is too large is answered before its end.
        let _ = stream.write_all(requests.as_bytes()).await;
        let mut said = Vec::new();
        let reading = async {
            let mut some = [0; 4096];
            while responses(&said).len() < count {
                match stream.read(&mut some).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => said.extend_from_slice(&some[..read]),
                }
            }
        };
        timeout(Duration::from_secs(20), reading).await.expect("all responses in time");
        String::from_utf8(said).unwrap()
    }

    /// Splits complete responses without the parts that depend on the time.
    fn responses(said: &[u8]) -> Vec<(String, Vec<String>, Value)> {
        let (mut rest, mut found) = (std::str::from_utf8(said).unwrap(), Vec::new());
        while let Some((head, after)) = rest.split_once("\r\n\r\n") {
            let mut lines: Vec<_> = head.split("\r\n").map(str::to_owned).collect();
            let start = lines.remove(0);
            let depends_on_time = |it: &str| {
                ["date: ", "retry-after", "tollgate-"].iter().any(|start| it.starts_with(start))
                    || it.contains("ratelimit")
            };
            lines.retain(|it| !depends_on_time(it));
            lines.sort();
            let length = lines
                .iter()
                .find_map(|it| it.strip_prefix("content-length: "))
                .map_or(0, |it| it.parse().unwrap());
            let Some(body) = after.get(..length) else { break };
            let mut value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
            without_times(&mut value);
            found.push((start, lines, value));
            rest = &after[length..];
        }
        found
    }

    fn without_times(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("id");
                fields.remove("instance");
                fields.values_mut().for_each(without_times);
            }
            Value::String(text) => {
                let parts = text.split_inclusive(|char: char| !char.is_ascii_digit());
                *text = parts.map(|it| if it.len() > 3 { "N" } else { it }).collect();
            }
            Value::Array(values) => values.iter_mut().for_each(without_times),
            Value::Number(number) if number.as_f64().is_some_and(|it| it > 99.0) => *value = Value::Null,
            _ => {}
        }
    }

    fn post(path: &str, lines: &str, body: &str) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// Requests to every kind of route, valid and invalid.
    fn requests() -> Vec<String> {
        let check = r#"{"path":"/","ip":"203.0.113.9"}"#;
        let throttle = r#"{"key":"a","max_burst":2,"count_per_period":1,"period":3600}"#;
        let about = "x-forwarded-method: GET\r\nx-forwarded-uri: /x\r\nx-forwarded-for: 203.0.113.7\r\n";
        let mut all = vec![
            post("/v1/check", "content-type: application/json\r\n", check),
            post("/v1/check", "", check),
            post("/v1/check", "content-type: text/plain\r\n", check),
            post("/v1/check?x=y", "Accept: */*\r\n", check),
            post("/v1/check", "", r#"{"path":"/","headers":{"x-key":["a"]}}"#),
            post("/v1/check", "content-type: text/html\r\n", check),
            post("/v1/check", "content-encoding: gzip\r\n", check),
            post("/v1/check", "content-encoding: identity\r\n", check),
            post("/v1/check", "", ""),
            post("/v1/check", "", "[]"),
            post("/v1/check", "", r#"{"path":"/","paht":1}"#),
            post("/v1/check", "", r#"{"path":"x"}"#),
            post("/v1/check", "", r#"{"path":"/","ip":"nobody"}"#),
            post("/v1/check", "origin: http://evil.test\r\n", check),
            post("/v1/check", "sec-fetch-site: cross-site\r\n", check),
            post("/v1/check", "authorization: Bearer secret\r\n", check),
            post("/v1/check", "tollgate-token: wrong\r\n", check),
            post("/v1/check", "", check).replace("host: localhost", "host: evil.test"),
            post("/v1/check", "", check)
                .replace("content-length: 31", "transfer-encoding: chunked")
                .replace(check, &format!("1f\r\n{check}\r\n0\r\n\r\n")),
            post("/v1/check", "", &format!("{check}{}", " ".repeat(20_000))),
            post("/v1/check", "", &format!("{check}{}", " ".repeat(70_000))),
            post("/v1/check/batch", "", &format!(r#"{{"requests":[{check}]}}"#)),
            post("/throttle", "", throttle),
            post("/throttle", "", throttle),
            post("/throttle", "", throttle),
            post("/throttle", "", r#"{"key":"a","max_burst":0,"count_per_period":1,"period":3600}"#),
            post("/throttle", "", "x"),
            post("/v1/limits/few/check", "", r#"{"key":"203.0.113.8"}"#),
            post("/v1/limits/few/check", "", r#"{"key":"203.0.113.8","cost":9}"#),
            post("/v1/limits/few/peek", "", r#"{"key":"203.0.113.8"}"#),
            post("/v1/limits/nothing/check", "", r#"{"key":"a"}"#),
            post("/v1/auth/forwarded", about, ""),
            post("/v1/auth/forwarded", "", ""),
            post("/nothing", "", check),
        ];
        for path in ["/v1/check", "/v1/auth/forwarded", "/v1/auth/forwarded/403", "/healthz", "/throttle"] {
            for method in ["GET", "PUT"] {
                all.push(format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{about}\r\n"));
            }
        }
        all
    }

    #[tokio::test]
    async fn the_api_answers_the_same_with_and_without_hyper() {
        for access in [Access::open(), Access::token("secret").with_reader("eyes")] {
            let servers = [Http1Server::Native, Http1Server::Hyper].map(|http1| serve(http1, access.clone()));
            for request in requests() {
                let native = exchange(servers[0].0, &request, 1).await;
                let hyper = exchange(servers[1].0, &request, 1).await;
                let shown = request.chars().take(300).collect::<String>();
                assert_eq!(
                    responses(native.as_bytes()),
                    responses(hyper.as_bytes()),
                    "{shown}: {native} / {hyper}"
                );
            }
        }
    }

    #[tokio::test]
    async fn pipelined_requests_are_answered_in_order_whatever_serves_them() {
        let (address, _drainer) = serve(Http1Server::Native, Access::open());
        let get = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned();
        let check = post("/v1/check", "", r#"{"path":"/","ip":"203.0.113.5"}"#);
        let auth = "GET /v1/auth/forwarded HTTP/1.1\r\nhost: a\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /\r\nx-forwarded-for: 203.0.113.5\r\n\r\n".to_owned();
        let last =
            check.replace("POST /v1/check HTTP/1.1\r\n", "POST /v1/check HTTP/1.1\r\nconnection: close\r\n");
        let all =
            [&check, &auth, &check, &get, &check, &check, &auth, &last, &check].map(String::as_str).concat();
        let said = exchange(address, &all, 9).await;
        let found = responses(said.as_bytes());
        let seen: Vec<_> =
            found.iter().map(|it| (&it.0[9..12], it.2.get("allowed").and_then(Value::as_bool))).collect();
        let (yes, no) = (("200", Some(true)), ("200", Some(false)));
        assert_eq!(seen, [yes, ("200", None), yes, ("200", None), no, no, ("429", None), no], "{said}");
        assert!(found[7].1.contains(&"connection: close".to_owned()), "{said}");
    }

    #[test]
    fn a_reply_is_written_with_one_length() {
        let mut reply = Response::new(Full::new(Bytes::from_static(b"{}")));
        reply.headers_mut().insert("x-a", HeaderValue::from_static("b"));
        let mut out = Vec::new();
        write_reply(&mut out, reply, true);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nx-a: b\r\nconnection: close\r\ndate: "), "{text}");
        assert!(text.ends_with("\r\ncontent-length: 2\r\n\r\n{}"), "{text}");
        let mut to_head = Response::new(Full::default());
        to_head.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        let mut out = Vec::new();
        write_reply(&mut out, to_head, false);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("content-length").count(), 1, "{text}");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
    }
}
