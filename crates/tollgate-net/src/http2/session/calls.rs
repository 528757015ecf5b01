//! Calls: a unary call is answered immediately if it does not wait; other calls get a task.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{GrpcSurface, Received, Session};
use crate::http2::body::{BodyChannel, BodyEnd, Http2Body};
use crate::http2::frame::Reason;
use crate::http2::header_list::HeaderList;
use crate::http2::mailbox::{Event, Mailbox};
use crate::http2::request_head::RequestHead;
use crate::http2::stream::{Incoming, TaskGuard};
use crate::http2::{UnaryCall, UnaryReply};

impl<G: GrpcSurface> Session<G> {
    /// Runs a unary call: immediately if it does not wait, else in a task.
    pub(super) fn call(&mut self, at: usize, mut call: UnaryCall, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        if let Poll::Ready(reply) = call.as_mut().poll(cx) {
            return self.reply(at, reply, out);
        }
        let (surface, mailbox) = (Arc::clone(&self.surface), self.shared_mailbox());
        let completion = Completion { mailbox, id: self.streams[at].id, is_sent: false };
        let task = tokio::spawn(async move {
            let reply = timeout(surface.max_time(), call).await;
            let reply = reply.unwrap_or_else(|_| UnaryReply::Refusal(surface.late_refusal()));
            completion.send(Event::Reply(reply));
        });
        self.streams[at].task = Some(TaskGuard(task.abort_handle()));
    }

    /// Starts the service with a request that is not a unary call.
    pub(super) fn start_service(
        &mut self,
        id: u32,
        ends: bool,
        head: &RequestHead<'_>,
        list: &HeaderList,
        out: &mut Vec<u8>,
    ) -> Received<()> {
        let (channel, mailbox) = (Arc::new(BodyChannel::default()), self.shared_mailbox());
        if ends {
            channel.end(BodyEnd::Complete);
        }
        let body = Http2Body::new(id, Arc::clone(&channel), Arc::clone(&mailbox));
        let Ok(request) = head.request(list, body) else {
            self.write_reset(id, Reason::ProtocolError, out);
            return self.budget.spend();
        };
        let answering = self.surface.answer(request);
        let completion = Completion { mailbox, id, is_sent: false };
        let task = tokio::spawn(async move { send_response(answering.await, completion).await });
        let at = self.open(id, head.content_length, Incoming::Streaming(channel), ends);
        self.streams[at].task = Some(TaskGuard(task.abort_handle()));
        Ok(())
    }

    fn shared_mailbox(&mut self) -> Arc<Mailbox> {
        Arc::clone(self.mailbox.get_or_insert_default())
    }
}

/// Reports the end of a task. A task that panics fails its stream, not its connection.
struct Completion {
    mailbox: Arc<Mailbox>,
    id: u32,
    is_sent: bool,
}

impl Completion {
    fn send(mut self, event: Event) {
        self.is_sent = true;
        self.mailbox.send(self.id, event);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_sent {
            self.mailbox.send(self.id, Event::Failed);
        }
    }
}

/// Sends the response of a service, one piece at a time.
async fn send_response<B: Body<Data = Bytes>>(response: Response<B>, completion: Completion) {
    let (parts, body) = response.into_parts();
    let mut body = pin!(body);
    let is_empty = body.is_end_stream();
    let head = Event::Head(parts.status, parts.headers, is_empty);
    if is_empty {
        return completion.send(head);
    }
    completion.mailbox.send(completion.id, head);
    let places = Arc::new(Semaphore::new(1));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&places).acquire_owned().await else { return };
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let event = match frame.map(|it| it.map(http_body::Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                if !data.is_empty() {
                    completion.mailbox.send(completion.id, Event::Data(data, permit));
                }
                continue;
            }
            Some(Ok(Err(other))) => Event::End(other.into_trailers().ok()),
            Some(Err(_)) => Event::Failed,
            None => Event::End(None),
        };
        return completion.send(event);
    }
}
