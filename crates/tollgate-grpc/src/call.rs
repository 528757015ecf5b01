//! A minimal gRPC server over HTTP/2 for small messages.
//!
//! A call is read into one message and answered by one message, without a router, a codec or an
//! extra task. `tonic` does more work per call, which is measurable (`make bench-service`).
//!
//! Not here: HTTP/2 itself (the server of the caller), the methods (the crates of the services).

use std::pin::pin;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::body::GrpcBody;
use crate::wire::WireError;

/// The maximum size of a message.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// The size of the message prefix: a compression flag and the length.
pub const PREFIX_BYTES: usize = 5;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A gRPC status code of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The message is invalid.
    InvalidArgument = 3,
    /// The requested object does not exist.
    NotFound = 5,
    /// The caller is not permitted to make this call.
    PermissionDenied = 7,
    /// A bound of the server was reached.
    ResourceExhausted = 8,
    /// The method does not exist.
    Unimplemented = 12,
    /// The call violates the gRPC protocol, or the server failed.
    Internal = 13,
}

impl Code {
    /// All codes with their names in metrics.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::InvalidArgument, "invalid_argument"),
        (Self::NotFound, "not_found"),
        (Self::PermissionDenied, "permission_denied"),
        (Self::ResourceExhausted, "resource_exhausted"),
        (Self::Unimplemented, "unimplemented"),
        (Self::Internal, "internal"),
    ];
}

/// An error response to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub code: Code,
    /// The reason, for the caller.
    pub message: String,
}

impl Refusal {
    /// An error for an invalid message.
    pub const fn invalid_argument(message: String) -> Self {
        Self { code: Code::InvalidArgument, message }
    }

    /// An error for a call that the caller is not permitted to make.
    pub const fn forbidden(message: String) -> Self {
        Self { code: Code::PermissionDenied, message }
    }

    /// An error for a call that violates the gRPC protocol.
    pub fn internal(message: &str) -> Self {
        Self { code: Code::Internal, message: message.to_owned() }
    }

    /// An error for a call that exceeds a bound of the server.
    pub const fn exhausted(message: String) -> Self {
        Self { code: Code::ResourceExhausted, message }
    }

    /// An error for a method or encoding that the server does not have.
    pub fn unimplemented(message: String) -> Self {
        Self { code: Code::Unimplemented, message }
    }

    /// Creates a response with headers only, as gRPC does for an error before any message.
    pub fn response(&self) -> Response<GrpcBody> {
        let mut response = Response::new(GrpcBody::empty());
        *response.headers_mut() = self.headers();
        response
    }

    /// Creates the headers of such a response.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, GRPC);
        self.write(&mut headers);
        headers
    }

    /// Creates the trailers for an error at the end of a stream.
    pub fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        self.write(&mut trailers);
        trailers
    }

    fn write(&self, headers: &mut HeaderMap) {
        headers.insert(&GRPC_STATUS, HeaderValue::from(self.code as u16));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.message)) {
            headers.insert(&GRPC_MESSAGE, message);
        }
        if self.code == Code::Unimplemented {
            headers.insert(&GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
    }
}

impl From<WireError> for Refusal {
    fn from(_: WireError) -> Self {
        Self::invalid_argument("the message is not the protobuf that this method takes".to_owned())
    }
}

/// The trailers of a successful call.
pub fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(&GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

/// The trailers of a stream that ends because the server drains (`UNAVAILABLE`): the client
/// reconnects elsewhere.
pub fn unavailable_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(&GRPC_STATUS, HeaderValue::from_static("14"));
    trailers
}

/// Creates a successful response with this body.
pub fn response(body: GrpcBody) -> Response<GrpcBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Encodes a message with its prefix.
pub fn framed(fields: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    fields(&mut out);
    let length = u32::try_from(out.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
    out[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    Bytes::from(out)
}

/// Returns an HTTP error if the request is not a gRPC call.
pub fn reject_non_grpc<B>(request: &Request<B>) -> Option<Response<GrpcBody>> {
    let mut response = Response::new(GrpcBody::empty());
    if request.method() != Method::POST {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(response);
    }
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if content_type.is_some_and(is_grpc) {
        return None;
    }
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Some(response)
}

/// Whether a content type is that of gRPC with protobuf messages.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some(rest) = content_type.strip_prefix(b"application/grpc") else { return false };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest, [] | [b';' | b' ', ..])
}

/// Reads the only message of a call.
#[inline]
pub async fn read_message<B: Body>(body: B) -> Result<Bytes, Refusal> {
    let mut body = pin!(body);
    let mut gathered = MessageBuffer::default();
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|_gone| Refusal::internal("the request broke off"))?;
        // Trailers of a request are ignored.
        let Ok(mut data) = frame.into_data() else { continue };
        gathered.push(data.copy_to_bytes(data.remaining()))?;
    }
    gathered.message()
}

/// Returns the only message of a call, given the whole body of its request.
#[inline]
pub fn unframed(body: Bytes) -> Result<Bytes, Refusal> {
    MessageBuffer { first: body, more: BytesMut::new() }.message()
}

/// Checks the first part of the body of a call, and returns an error if its message will not be accepted.
pub fn check_partial(received: &[u8]) -> Result<(), Refusal> {
    if received.len() > MAX_MESSAGE_BYTES + PREFIX_BYTES {
        return Err(too_large());
    }
    announced(received).map(drop)
}

/// The received part of a message.
#[derive(Default)]
struct MessageBuffer {
    /// The first piece, which is usually the only one.
    first: Bytes,
    more: BytesMut,
}

impl MessageBuffer {
    #[inline]
    fn push(&mut self, piece: Bytes) -> Result<(), Refusal> {
        if self.first.len() + self.more.len() + piece.len() > MAX_MESSAGE_BYTES + PREFIX_BYTES {
            return Err(too_large());
        }
        if self.first.is_empty() && self.more.is_empty() {
            self.first = piece;
        } else {
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
            self.more.extend_from_slice(&piece);
        }
        // A message that announces too large a size is refused before it arrives.
        let received = if self.more.is_empty() { &self.first[..] } else { &self.more[..] };
        announced(received).map(drop)
    }

    #[inline]
    fn message(self) -> Result<Bytes, Refusal> {
        let mut whole = if self.more.is_empty() { self.first } else { self.more.freeze() };
        let length = announced(&whole)?.ok_or_else(|| Refusal::internal("the request has no message"))?;
        whole.advance(PREFIX_BYTES);
        match whole.len().cmp(&length) {
            std::cmp::Ordering::Less => Err(Refusal::internal("the message is shorter than it announced")),
            std::cmp::Ordering::Equal => Ok(whole),
            std::cmp::Ordering::Greater => {
                Err(Refusal::internal("this method takes one message, not several"))
            }
        }
    }
}

/// Returns the announced length of a message; `None` if the prefix is incomplete.
#[inline]
pub fn announced(received: &[u8]) -> Result<Option<usize>, Refusal> {
    let [flag, a, b, c, d, ..] = *received else { return Ok(None) };
    match flag {
        0 => {}
        1 => {
            return Err(Refusal::unimplemented(
                "compressed messages are not read here: send them without grpc-encoding".to_owned(),
            ));
        }
        _ => return Err(Refusal::internal("the message does not begin as gRPC has it")),
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE_BYTES { Err(too_large()) } else { Ok(Some(length)) }
}

fn too_large() -> Refusal {
    Refusal::exhausted(format!("a message has at most {MAX_MESSAGE_BYTES} bytes"))
}

/// Percent-encodes a `grpc-message`: `%` and all characters except visible ASCII and spaces.
fn percent_encoded(message: &str) -> String {
    const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(message, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_with_protobuf_is_accepted() {
        for (content_type, taken) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc+proto; x=y", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), taken, "{content_type}");
        }
    }

    #[test]
    fn error_messages_are_escaped_in_their_header() {
        assert_eq!(percent_encoded("100 %\r\nx: é"), "100 %25%0D%0Ax: %C3%A9");
    }

    #[test]
    fn pieces_of_a_message_are_put_together() {
        let mut gathered = MessageBuffer::default();
        for piece in [&[0][..], &[0, 0, 0, 3, 7], &[8, 9]] {
            gathered.push(Bytes::from_static(piece)).unwrap();
        }
        assert_eq!(gathered.message().unwrap(), &[7, 8, 9][..]);
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        let check = |bytes: &'static [u8], code| {
            let mut gathered = MessageBuffer::default();
            let pushed = gathered.push(Bytes::from_static(bytes));
            let read = pushed.and_then(|()| gathered.message());
            assert_eq!(read.map_err(|it| it.code), Err(code), "{bytes:?}");
        };
        check(&[], Code::Internal);
        check(&[0, 0, 0], Code::Internal);
        check(&[0, 0, 0, 0, 2, 1], Code::Internal);
        check(&[0, 0, 0, 0, 1, 1, 1], Code::Internal);
        check(&[1, 0, 0, 0, 1, 1], Code::Unimplemented);
        check(&[2, 0, 0, 0, 1, 1], Code::Internal);
        check(&[0, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted);
    }
}
