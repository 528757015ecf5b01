//! HTTP/2 for gRPC services: frames, HPACK and flow control on buffers of the thread.
//!
//! A general HTTP/2 server creates a task, a header map and several shared objects for each request, which costs more
//! than the decision about it. Here a unary call whose message has arrived is answered in the task of its connection;
//! only calls that have to wait, and streams, get a task. A connection without requests owns no buffer.
//!
//! Only what gRPC clients need is served: no push, no priorities, no `CONNECT`, no dynamic table for responses.
//! Other surfaces use hyper.
//!
//! Not here: gRPC messages and methods (`tollgate-grpc`, `tollgate-rls`).

mod body;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod header_list;
mod hpack;
mod huffman;
mod mailbox;
mod request_head;
mod serve;
mod session;
mod stream;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;

pub use body::Http2Body;
pub use request_head::GrpcTimeout;
pub(crate) use serve::{Http2End, serve};

/// A unary call in progress.
pub type UnaryCall = Pin<Box<dyn Future<Output = UnaryReply> + Send>>;

/// The reply to a unary call.
#[derive(Debug)]
pub enum UnaryReply {
    /// A message with its gRPC prefix; the call succeeds.
    Message(Bytes),
    /// The headers of a response without a message, with a `grpc-status`.
    Refusal(HeaderMap),
}

/// A surface that serves gRPC.
pub trait GrpcSurface: Send + Sync + 'static {
    /// The body of responses of [`answer`](Self::answer).
    type Body: Body<Data = Bytes> + Send + 'static;

    /// Returns the number of a method that [`call`](Self::call) serves; `None` if [`answer`](Self::answer) serves the
    /// request.
    fn unary_method(&self, path: &[u8], content_type: &[u8]) -> Option<u8>;

    /// Starts a unary call with the whole body of its request. It is polled once in the task of the connection.
    fn call(&self, method: u8, body: Bytes, timeout: GrpcTimeout) -> UnaryCall;

    /// Answers any other request. Its body arrives while it is answered.
    fn answer(
        &self,
        request: Request<Http2Body>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// Checks the body of a unary call that has not arrived completely, and returns the headers of a refusal if it is
    /// not to arrive.
    fn check_partial(&self, received: &[u8]) -> Result<(), HeaderMap>;

    /// The headers of a refusal of a message because too many others are incomplete.
    fn full_refusal(&self) -> HeaderMap;

    /// The maximum time from the head of a unary call to its reply.
    fn max_time(&self) -> Duration;

    /// The headers of a refusal of a call that has exceeded this time.
    fn late_refusal(&self) -> HeaderMap;
}

/// No surface: hyper serves HTTP/2.
pub(crate) enum NoGrpcSurface {}

impl GrpcSurface for NoGrpcSurface {
    type Body = http_body_util::Empty<Bytes>;

    fn unary_method(&self, _: &[u8], _: &[u8]) -> Option<u8> {
        match *self {}
    }

    fn call(&self, _: u8, _: Bytes, _: GrpcTimeout) -> UnaryCall {
        match *self {}
    }

    #[allow(refining_impl_trait, reason = "there is no such surface, and so no future")]
    fn answer(&self, _: Request<Http2Body>) -> std::future::Ready<Response<Self::Body>> {
        match *self {}
    }

    fn check_partial(&self, _: &[u8]) -> Result<(), HeaderMap> {
        match *self {}
    }

    fn full_refusal(&self) -> HeaderMap {
        match *self {}
    }

    fn max_time(&self) -> Duration {
        match *self {}
    }

    fn late_refusal(&self) -> HeaderMap {
        match *self {}
    }
}
