//! HTTP/1.1 on buffers: strict parsing of heads and bodies, and the connection loop for plain requests.
//!
//! ```text
//! socket ─► buffer of the thread ─► RequestHead ─┬─ answered from prepared pieces: one write
//!                                                ├─ admitted: Http1Surface::forward owns client and upstream
//!                                                └─ anything unusual: bytes go back, hyper serves the connection
//!                                                   behind a FramingGuard
//! ```
//!
//! A request is served here only if every HTTP/1.1 parser reads it in the same way (`request_head`). All other requests
//! are left to hyper, which answers or refuses them. `framing_guard` refuses those that hyper reads differently from other
//! parsers. A connection owns a buffer only while it has unread bytes.
//!
//! Not here: the meaning of a request, and connections to upstreams (`tollgate-gateway`).
//!
//! Invariant: a request that this module accepts has the same method, target, headers and body for hyper.
//! `tests/http1_head.rs` checks this with seeded random heads.

mod buffer;
mod chunked;
mod client;
mod date;
mod framing_guard;
mod plain_head;
mod read_ahead;
mod request_head;
mod response_head;
mod serve;
mod watch;

pub use buffer::{Buffer, OutputBuffer};
pub use chunked::{ChunkError, ChunkedDecoder, LAST_CHUNK, write_chunk};
pub use client::{ClientBody, Http1Client};
pub use date::write_date;
pub(crate) use framing_guard::FramingGuard;
pub use read_ahead::ReadAhead;
pub use request_head::{ParsedRequest, RequestBody, RequestHead};
pub use response_head::{MAX_RESPONSE_HEADERS, ResponseBody, ResponseHead, ResponseHeadError};
pub(crate) use serve::{HEAD, Http1End, send_request_timeout, serve};

/// The maximum number of headers of a request or a response that is served here.
pub const MAX_HEADERS: usize = 100;

/// The storage for the headers of one head.
#[derive(Debug)]
pub struct HeaderSpace<'b> {
    /// For plain heads.
    plain: plain_head::PlainSpace<'b>,
    /// For all other heads, without initialization.
    all: [std::mem::MaybeUninit<httparse::Header<'b>>; MAX_HEADERS],
}

/// Creates the storage for the headers of one head.
pub const fn header_space<'b>() -> HeaderSpace<'b> {
    HeaderSpace {
        plain: plain_head::PlainSpace::new(),
        all: [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS],
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Verdict<A> {
    /// The response is in the output.
    Answered,
    /// The response follows ([`Http1Surface::forward`]).
    Admitted(A),
    /// hyper serves the request. Nothing was decided.
    HandOver,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// The response was sent and the request was read completely.
    Complete,
    /// The response was sent, and the connection ends after it.
    Close,
    /// The response was aborted, or the client has left.
    Abort,
}

/// A surface that serves plain requests of one connection without hyper.
pub trait Http1Surface: Send + Sync + 'static {
    /// A request whose response is not known yet: it is forwarded, or its decision waits for the store.
    type Admitted: Send;

    /// Whether [`decide`](Self::decide) needs the whole body of this request. It is then called when the body has
    /// arrived, if head and body fit into a buffer. Otherwise hyper serves the request.
    fn needs_body(&self, _request: &RequestHead<'_, '_>) -> bool {
        false
    }

    /// Decides a request: appends the response to `out`, or returns the admitted request.
    fn decide(&self, request: &mut RequestHead<'_, '_>, out: &mut Vec<u8>) -> Verdict<Self::Admitted>;

    /// Sends the response to an admitted request.
    fn forward(
        &self,
        admitted: Self::Admitted,
        client: &mut Http1Client<'_>,
    ) -> impl Future<Output = ExchangeEnd> + Send;
}

/// A surface for servers that leave all requests to hyper.
#[derive(Debug)]
pub enum NoHttp1Surface {}

impl Http1Surface for NoHttp1Surface {
    type Admitted = std::convert::Infallible;

    fn decide(&self, _: &mut RequestHead<'_, '_>, _: &mut Vec<u8>) -> Verdict<Self::Admitted> {
        match *self {}
    }

    async fn forward(&self, admitted: Self::Admitted, _: &mut Http1Client<'_>) -> ExchangeEnd {
        match admitted {}
    }
}
