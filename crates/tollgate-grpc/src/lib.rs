//! gRPC framing and the protobuf wire format, without a runtime and without generated code.
//!
//! - [`wire`] reads and writes the fields of protobuf messages.
//! - [`call`] reads the message of a call, and forms responses, errors and trailers.
//! - [`MessageReader`] splits a stream into messages.
//! - [`GrpcBody`] is a response body: empty, one message, or a stream of messages.
//!
//! The services that use it are in other crates (`tollgate-rls`, `tollgate-xds`). HTTP/2 itself is the task of the
//! server that calls them.

mod body;
pub mod call;
mod message_reader;
pub mod wire;

pub use body::{GrpcBody, NextFrame};
pub use call::{Code, Refusal};
pub use message_reader::{MessageError, MessageReader};
