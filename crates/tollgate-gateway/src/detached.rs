//! Requests that continue at their upstream after their caller has disconnected.
//!
//! Slots bound the number of concurrent requests at the upstream. Many services continue to work
//! when a connection is closed, so a caller that disconnects must not free the slot of work that
//! still runs. The gateway then waits in place of the caller: for the end of the response, which is
//! discarded, or for the upstream to close the connection. It waits at most until the slots expire
//! (`ttl`) and reads at most [`MAX_DRAINED_BYTES`]. If it cannot wait, because a bound is reached
//! or the process stops, the upstream request is canceled and the slots are kept until their `ttl`.
//!
//! Requests without such slots are canceled with their caller, at no extra cost.
//!
//! Invariant: slots are released early only if the upstream never saw the request, has answered or
//! has closed the connection. `tests/gateway/hangups.rs` checks this.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::response::Parts;
use http::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollgate_http::{HeaderLines, ResponsePart, SlotGuard};

use crate::body::GatewayBody;

/// The maximum number of bytes that are read of a response without a caller.
pub(crate) const MAX_DRAINED_BYTES: u64 = 1024 * 1024;

/// The requests without a caller, of all workers together.
#[derive(Debug)]
pub(crate) struct DetachedRequests {
    permits: Arc<Semaphore>,
}

impl DetachedRequests {
    pub(crate) fn new(max_running: usize) -> Arc<Self> {
        Arc::new(Self { permits: Arc::new(Semaphore::new(max_running.min(Semaphore::MAX_PERMITS))) })
    }

    /// Runs `work` in the background, for at most `max_time`. Beyond the cap the work is dropped.
    fn spawn(&self, max_time: Duration, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return tracing::debug!("too many requests run without a caller; one more is canceled");
        };
        // A runtime that shuts down drops the work, like the cap.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _late = timeout(max_time, work).await;
                drop(permit);
            });
        }
    }
}

/// The slots of one request, until its upstream has finished it. If dropped earlier, they are kept
/// until their `ttl`.
pub(crate) struct HeldSlots {
    guard: Option<SlotGuard>,
    /// Whether an upstream may have seen the request.
    sent: Arc<AtomicBool>,
    detached: Arc<DetachedRequests>,
}

impl HeldSlots {
    pub(crate) fn new(guard: SlotGuard, detached: &Arc<DetachedRequests>) -> Self {
        Self { guard: Some(guard), sent: Arc::default(), detached: Arc::clone(detached) }
    }

    /// Sets whether an upstream may have seen the request.
    pub(crate) fn set_sent(&self, sent: bool) {
        self.sent.store(sent, Ordering::Relaxed);
    }

    /// Releases the slots: the upstream has answered or closed the connection.
    pub(crate) fn release(mut self) {
        self.guard = None;
    }

    /// Records the status of a response whose caller is gone.
    pub(crate) fn observe_status(&self, status: StatusCode) {
        if let Some(guard) = &self.guard {
            guard.observe_status(status);
        }
    }

    pub(crate) fn observe_head(&self, head: &Parts) {
        self.observe_status(head.status);
        self.observe_part(&ResponsePart::Head(&head.headers));
    }

    /// Reads a part of a response whose caller is gone, so that a cost in it is settled.
    pub(crate) fn observe_part<H: HeaderLines>(&self, part: &ResponsePart<'_, H>) {
        if let Some(guard) = &self.guard {
            guard.observe_part(part);
        }
    }

    pub(crate) fn observe_frame(&self, frame: &http_body::Frame<bytes::Bytes>) {
        if let Some(guard) = &self.guard {
            guard.observe_frame(frame);
        }
    }

    /// Runs work that holds these slots in the background, until the slots expire.
    pub(crate) fn detach<W: Future<Output = ()> + Send + 'static>(self, work: impl FnOnce(Self) -> W) {
        let (detached, time_left) = (Arc::clone(&self.detached), self.time_left());
        detached.spawn(time_left, work(self));
    }

    fn time_left(&self) -> Duration {
        self.guard.as_ref().map_or(Duration::ZERO, SlotGuard::time_left)
    }
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take()
            && self.sent.load(Ordering::Relaxed)
        {
            guard.leave_to_ttl();
        }
    }
}

/// A forwarded request.
type Call = Pin<Box<dyn Future<Output = Response<GatewayBody>> + Send>>;

/// The response to a request that holds slots. If dropped after the request was sent, it continues
/// in the background.
pub(crate) struct HeldAnswer {
    call: Option<Call>,
    sent: Arc<AtomicBool>,
    detached: Arc<DetachedRequests>,
    guard: SlotGuard,
}

impl HeldAnswer {
    /// Creates the response future. `call` forwards the request and keeps the slots that it is
    /// passed.
    pub(crate) fn new(
        guard: SlotGuard,
        detached: &Arc<DetachedRequests>,
        call: impl FnOnce(HeldSlots) -> Call,
    ) -> Self {
        let slots = HeldSlots::new(guard.clone(), detached);
        let sent = Arc::clone(&slots.sent);
        Self { call: Some(call(slots)), sent, detached: Arc::clone(detached), guard }
    }
}

impl Future for HeldAnswer {
    type Output = Response<GatewayBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Futures must not be polled after completion; this one stays pending if it is.
        let Some(call) = &mut self.call else { return Poll::Pending };
        let response = std::task::ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(response)
    }
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        if let Some(call) = self.call.take()
            && self.sent.load(Ordering::Relaxed)
        {
            self.detached.spawn(self.guard.time_left(), async move { discard(call.await).await });
        }
    }
}

/// Reads a response without a caller to its end.
pub(crate) async fn discard(response: Response<GatewayBody>) {
    let (head, body) = response.into_parts();
    body.discard(&head).await;
}

/// Shuts down the sending side of an upgraded connection and waits until the upstream closes it.
/// Returns whether it did.
pub(crate) async fn wait_for_close(mut upstream: impl AsyncRead + AsyncWrite + Unpin) -> bool {
    let _already_closed = upstream.shutdown().await;
    let mut rest = upstream.take(MAX_DRAINED_BYTES);
    let mut buffer = vec![0; 8 * 1024];
    loop {
        match rest.read(&mut buffer).await {
            Ok(0) => return rest.limit() > 0,
            Ok(_) => {}
            Err(_closed) => return true,
        }
    }
}
