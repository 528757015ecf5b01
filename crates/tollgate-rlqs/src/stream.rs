//! One call of a proxy: reports come in, assignments go out, until either side ends it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use tollgate_grpc::NextFrame;
use tollgate_grpc::call::{PREFIX_BYTES, Refusal, announced, ok_trailers, unavailable_trailers};

use crate::registry::Outgoing;
use crate::service::Quotas;
use crate::wire;

/// The response body of a stream.
#[derive(Debug)]
pub struct QuotaStream<B> {
    quotas: Quotas,
    id: u64,
    reports: Pin<Box<B>>,
    arrived: BytesMut,
    is_over: bool,
}

impl<B> QuotaStream<B> {
    pub(crate) fn new(quotas: Quotas, id: u64, reports: B) -> Self {
        Self { quotas, id, reports: Box::pin(reports), arrived: BytesMut::new(), is_over: false }
    }

    /// Processes the messages that have arrived completely.
    fn process(&mut self) -> Result<(), Refusal> {
        while let Some(length) = announced(&self.arrived)? {
            if self.arrived.len() < PREFIX_BYTES + length {
                break;
            }
            self.arrived.advance(PREFIX_BYTES);
            let message = self.arrived.split_to(length);
            self.quotas.report(self.id, &message)?;
        }
        Ok(())
    }

    fn end(&mut self, trailers: http::HeaderMap) -> NextFrame {
        self.is_over = true;
        self.quotas.close(self.id);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

impl<B: Body> Body for QuotaStream<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        loop {
            match this.quotas.outgoing(this.id, cx.waker()) {
                Outgoing::Actions(actions) => {
                    let actions = actions.iter().map(|(key, action)| (&key.id, *action));
                    return Poll::Ready(Some(Ok(Frame::data(wire::response(actions)))));
                }
                Outgoing::Nothing => {}
                Outgoing::End => return this.end(unavailable_trailers()),
            }
            let frame = match this.reports.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(_) => return this.end(ok_trailers()),
                Poll::Pending => return Poll::Pending,
            };
            // The buffer holds less than one message and one frame, which are bounded.
            let Ok(mut data) = frame.into_data() else { continue };
            this.arrived.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            if let Err(refusal) = this.process() {
                return this.end(refusal.trailers());
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

impl<B> Drop for QuotaStream<B> {
    fn drop(&mut self) {
        self.quotas.close(self.id);
    }
}
