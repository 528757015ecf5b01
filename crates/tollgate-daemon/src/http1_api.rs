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
use hyper::{Request, Response, StatusCode};
use tokio::time::timeout;
use tollgate_gateway::HeadLines;
use tollgate_http::{write_body, write_status};
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
        let mut json = OutputBuffer::take();
        match self.api.try_answer(&buffered, &self.caller, &mut json) {
            BufferedReply::Json => {
                write_status(out, StatusCode::OK);
                out.extend_from_slice(JSON_HEADER_LINES);
                write_connection_lines(out, request.is_last_if_answered);
                write_body(out, &json, false);
                Verdict::Answered
            }
            BufferedReply::Waits(reply) => Verdict::Admitted(reply),
            BufferedReply::Unusual => Verdict::HandOver,
        }
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
    use super::*;

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
