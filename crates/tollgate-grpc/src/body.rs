//! Response bodies: empty, one message, or a stream of messages.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::call::ok_trailers;

/// The largest piece that `h2` copies into the buffer of other frames. A larger piece is sent in a
/// separate system call, which costs more than the rest of a call.
const MAX_COPIED_FRAME_BYTES: usize = 255;
/// Messages up to this size are sent in such pieces; a message may span any number of frames.
const MAX_SPLIT_BYTES: usize = 2 * 1024;

/// The body of a gRPC response.
pub struct GrpcBody(Kind);

/// The next frame of a body that cannot fail.
pub type NextFrame = Poll<Option<Result<Frame<Bytes>, Infallible>>>;

/// A body that continues until the client disconnects or the server drains.
type StreamBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

enum Kind {
    /// The response consists of headers only, or the body was sent.
    Done,
    /// One message, then trailers.
    Message(Bytes),
    Trailers,
    Stream(StreamBody),
}

impl GrpcBody {
    /// A body without a message, for responses of headers only.
    pub const fn empty() -> Self {
        Self(Kind::Done)
    }

    /// A message with its prefix, followed by an OK status.
    pub const fn message(framed: Bytes) -> Self {
        Self(Kind::Message(framed))
    }

    /// A stream of messages, which ends with its own trailers.
    pub fn stream(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Self {
        Self(Kind::Stream(Box::pin(body)))
    }
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = Infallible;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        if let Kind::Stream(stream) = &mut self.0 {
            return stream.as_mut().poll_frame(cx);
        }
        let (frame, next) = match std::mem::replace(&mut self.0, Kind::Done) {
            Kind::Message(mut framed)
                if (MAX_COPIED_FRAME_BYTES + 1..=MAX_SPLIT_BYTES).contains(&framed.len()) =>
            {
                let piece = framed.split_to(MAX_COPIED_FRAME_BYTES);
                (Frame::data(piece), Kind::Message(framed))
            }
            Kind::Message(framed) => (Frame::data(framed), Kind::Trailers),
            Kind::Trailers => (Frame::trailers(ok_trailers()), Kind::Done),
            Kind::Done | Kind::Stream(_) => return Poll::Ready(None),
        };
        self.0 = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Done => true,
            Kind::Message(_) | Kind::Trailers => false,
            Kind::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        // Only an empty body has a known length: gRPC does not use lengths.
        if matches!(self.0, Kind::Done) { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl fmt::Debug for GrpcBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Done => "GrpcBody(done)",
            Kind::Message(_) => "GrpcBody(message)",
            Kind::Trailers => "GrpcBody(trailers)",
            Kind::Stream(_) => "GrpcBody(stream)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn messages_of_medium_size_are_split_without_changes() {
        for (length, pieces) in [(5, 1), (255, 1), (256, 2), (600, 3), (2_048, 9), (2_049, 1)] {
            let whole: Vec<u8> = (0..=255).cycle().take(length).collect();
            let mut body = GrpcBody::message(Bytes::from(whole.clone()));
            let (mut sent, mut frames) = (Vec::new(), 0);
            let mut next = || pollster::block_on(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)));
            while let Some(Ok(frame)) = next() {
                match frame.into_data() {
                    Ok(data) => {
                        sent.extend_from_slice(&data);
                        frames += 1;
                    }
                    Err(trailers) => assert!(trailers.is_trailers() && sent == whole, "{length}"),
                }
            }
            assert_eq!((sent == whole, frames), (true, pieces), "{length}");
            assert!(body.is_end_stream());
        }
    }
}
