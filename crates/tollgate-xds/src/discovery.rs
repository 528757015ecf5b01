//! The messages of the discovery service: requests are written, responses are read.

use bytes::Bytes;
use tollgate_grpc::call::framed;
use tollgate_grpc::wire::{Reader, WireError, Write};

/// The type of the resources.
pub const RESOURCE_TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The maximum length of an error in a rejection, in bytes. It is for people.
const MAX_REASON_BYTES: usize = 4 << 10;
/// `INVALID_ARGUMENT` of `google.rpc.Code`.
const INVALID_ARGUMENT: u64 = 3;

/// A `DiscoveryRequest`: a subscription, or the answer to a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveryRequest<'r> {
    /// The last accepted version.
    pub(crate) version: &'r str,
    /// The nonce of the response that is answered.
    pub(crate) nonce: &'r str,
    /// The reason why the response was rejected.
    pub(crate) rejection: Option<&'r str>,
}

/// The part of a request that describes this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'n> {
    pub(crate) id: &'n str,
    pub(crate) metadata: &'n [(String, String)],
}

impl DiscoveryRequest<'_> {
    /// Encodes the request with the prefix of gRPC.
    pub(crate) fn framed(&self, node: Node<'_>) -> Bytes {
        framed(|out| {
            out.put_bytes(1, self.version.as_bytes());
            out.put_message(2, |out| {
                out.put_bytes(1, node.id.as_bytes());
                if !node.metadata.is_empty() {
                    out.put_message(3, |out| node.metadata.iter().for_each(|it| put_entry(out, it)));
                }
                out.put_bytes(6, b"tollgate");
                out.put_bytes(7, env!("CARGO_PKG_VERSION").as_bytes());
            });
            out.put_bytes(4, RESOURCE_TYPE_URL.as_bytes());
            out.put_bytes(5, self.nonce.as_bytes());
            if let Some(reason) = self.rejection {
                out.put_message(6, |out| {
                    out.put_uint(1, INVALID_ARGUMENT);
                    out.put_bytes(2, shortened(reason).as_bytes());
                });
            }
        })
    }
}

/// Returns the beginning of a text that is too long for a rejection.
fn shortened(text: &str) -> &str {
    let end = (0..=MAX_REASON_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// Writes an entry of `google.protobuf.Struct` with a text.
fn put_entry(out: &mut Vec<u8>, (name, value): &(String, String)) {
    out.put_message(1, |out| {
        out.put_bytes(1, name.as_bytes());
        out.put_message(2, |out| out.put_message(3, |out| out.extend_from_slice(value.as_bytes())));
    });
}

/// A `DiscoveryResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveryResponse<'m> {
    pub(crate) version: &'m str,
    pub(crate) nonce: &'m str,
    pub(crate) type_url: &'m str,
    pub(crate) resources: Vec<AnyResource<'m>>,
}

/// A resource of any type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnyResource<'m> {
    pub(crate) type_url: &'m str,
    pub(crate) value: &'m [u8],
}

impl<'m> DiscoveryResponse<'m> {
    pub(crate) fn read(message: &'m [u8]) -> Result<Self, WireError> {
        let mut response = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => response.version = value.text()?,
                2 => response.resources.push(AnyResource::read(value.bytes()?)?),
                4 => response.type_url = value.text()?,
                5 => response.nonce = value.text()?,
                _ => {}
            }
        }
        Ok(response)
    }
}

impl<'m> AnyResource<'m> {
    fn read(message: &'m [u8]) -> Result<Self, WireError> {
        let mut resource = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => resource.type_url = value.text()?,
                2 => resource.value = value.bytes()?,
                _ => {}
            }
        }
        Ok(resource)
    }
}
