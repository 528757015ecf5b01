//! The body of a forwarded request.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tollgate_client::RepeatableBody;

/// The largest body that is kept to be sent again.
const MAX_KEPT_BYTES: u64 = 1 << 20;

/// A body that was read and can be sent again, or one that is streamed once.
pub(crate) enum RequestBody {
    Kept(Full<Bytes>),
    Streamed(Incoming),
}

impl RequestBody {
    /// Reads a body whose length is known and small, and streams any other.
    pub(crate) async fn of(body: Incoming) -> Result<Self, hyper::Error> {
        match body.size_hint().exact() {
            Some(0) => Ok(Self::Kept(Full::default())),
            Some(length) if length <= MAX_KEPT_BYTES => {
                Ok(Self::Kept(Full::new(body.collect().await?.to_bytes())))
            }
            _ => Ok(Self::Streamed(body)),
        }
    }
}

impl RepeatableBody for RequestBody {
    fn try_repeat(&self) -> Option<Self> {
        match self {
            Self::Kept(body) => Some(Self::Kept(body.clone())),
            Self::Streamed(_) => None,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Kept(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|it| it.map_err(|never| match never {}))),
            Self::Streamed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Kept(body) => body.is_end_stream(),
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Kept(body) => body.size_hint(),
            Self::Streamed(body) => body.size_hint(),
        }
    }
}
