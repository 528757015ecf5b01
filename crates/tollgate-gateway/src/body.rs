//! Request and response bodies on their way through the gateway.
//!
//! Both stream frame by frame, including trailers, and both are aborted when they stall. Bodies are
//! not buffered here.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tollgate_http::ServiceTimer;

use crate::detached::{HeldSlots, MAX_DRAINED_BYTES};
use crate::half_close::HalfClose;
use crate::head;
use crate::pool::Lease;
use crate::upstream::Load;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

type NextFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// Detects a stalled body. The timer runs only while the body stalls.
struct StallTimer {
    most: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    const fn new(most: Duration) -> Self {
        Self { most, timer: None }
    }

    fn moved(&mut self) {
        self.timer = None;
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let most = self.most;
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(most))).as_mut().poll(cx)
    }
}

/// Removes fields from trailers that are not permitted there.
fn clean(frame: &mut Frame<Bytes>) {
    if let Some(trailers) = frame.trailers_mut() {
        head::strip_trailers(trailers);
    }
}

/// The reason why a request body was not forwarded completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadFailure {
    TooLarge,
    Late,
    /// The client disconnected, or the body is malformed.
    Broken,
}

/// The progress of a request body, read by the task that waits for the response.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// The maximum time without progress.
    still: Duration,
    last: AtomicU64,
    /// Whether the gateway waits for the client, and not for the upstream.
    awaits_client: AtomicBool,
    failure: AtomicU8,
    /// Whether the gateway waits for the upstream after the upload has failed.
    outlives_upload: bool,
    /// Measures the upstream for limits with a learned number of slots. It stands still while the gateway
    /// waits for the client: a client that sends slowly must not make the upstream appear slow.
    timer: Option<ServiceTimer>,
    /// The task that waits for the response; it is woken on a failure.
    waiter: Mutex<Option<Waker>>,
    /// The upstream connection, whose sending side is closed on a failure. `None` with HTTP/2.
    half_close: Mutex<Option<HalfClose>>,
}

impl Progress {
    fn new(still: Duration, outlives_upload: bool, timer: Option<ServiceTimer>) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            still,
            last: AtomicU64::new(0),
            awaits_client: AtomicBool::new(false),
            failure: AtomicU8::new(0),
            outlives_upload,
            timer,
            waiter: Mutex::default(),
            half_close: Mutex::default(),
        })
    }

    /// Sets the upstream connection of a body that may fail before the response has ended.
    pub(crate) fn set_half_close(&self, half_close: Option<HalfClose>) {
        *self.half_close.lock() = half_close;
    }

    /// Returns the failure of a body whose upstream connection stays open, and registers the task
    /// to be woken.
    pub(crate) fn poll_failure(&self, cx: &Context<'_>) -> Poll<UploadFailure> {
        if !self.outlives_upload {
            return Poll::Pending;
        }
        *self.waiter.lock() = Some(cx.waker().clone());
        self.failure().map_or(Poll::Pending, Poll::Ready)
    }

    /// Whether nothing more of the body will be sent: the sender has dropped it.
    pub(crate) fn is_over(progress: &Arc<Self>) -> bool {
        Arc::strong_count(progress) == 1
    }

    fn moved(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
        self.awaits_client.store(false, Ordering::Relaxed);
        if let Some(timer) = &self.timer {
            timer.restart();
        }
    }

    fn record_stall(&self) {
        self.awaits_client.store(true, Ordering::Relaxed);
        if let Some(timer) = &self.timer {
            timer.stop();
        }
    }

    pub(crate) fn awaits_client(&self) -> bool {
        self.awaits_client.load(Ordering::Relaxed)
    }

    /// Since when the gateway waits for the upstream. The time of the client ends first
    /// (`StallTimer`): if the upload has not failed by then, the upstream is not reading it.
    pub(crate) fn upstream_since(&self) -> Instant {
        let client = if self.awaits_client() { self.still } else { Duration::ZERO };
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + client
    }

    /// Ends the body. If the gateway still waits for the upstream, the connection stays open, and its sending side is
    /// closed.
    fn fail(&self, failure: UploadFailure) -> NextFrame {
        let (code, text) = match failure {
            UploadFailure::TooLarge => (1, "the body is too large"),
            UploadFailure::Late => (2, "the body stopped arriving"),
            UploadFailure::Broken => (3, "the body ended early"),
        };
        self.failure.store(code, Ordering::Relaxed);
        if !self.outlives_upload {
            return Poll::Ready(Some(Err(text.into())));
        }
        if let Some(half_close) = self.half_close.lock().take() {
            half_close.close();
        }
        if let Some(waiter) = self.waiter.lock().take() {
            waiter.wake();
        }
        Poll::Pending
    }

    pub(crate) fn failure(&self) -> Option<UploadFailure> {
        match self.failure.load(Ordering::Relaxed) {
            1 => Some(UploadFailure::TooLarge),
            2 => Some(UploadFailure::Late),
            3 => Some(UploadFailure::Broken),
            _ => None,
        }
    }
}

/// The body of a request.
pub(crate) struct Upload {
    /// `None`: no body.
    body: Option<StreamingBody>,
}

struct StreamingBody {
    body: Incoming,
    /// The number of bytes that may still arrive.
    left: u64,
    patience: StallTimer,
    progress: Arc<Progress>,
}

impl Upload {
    pub(crate) const fn none() -> Self {
        Self { body: None }
    }

    /// Creates an upload and its progress. A request without a body has no progress.
    /// `outlives_upload`: the connection to the upstream stays open when the body fails. `timer` measures
    /// the upstream.
    pub(crate) fn new(
        body: Incoming,
        most: Option<u64>,
        still: Duration,
        (outlives_upload, timer): (bool, Option<ServiceTimer>),
    ) -> (Self, Option<Arc<Progress>>) {
        if body.is_end_stream() {
            return (Self::none(), None);
        }
        let progress = Progress::new(still, outlives_upload, timer);
        let streaming = StreamingBody {
            body,
            left: most.unwrap_or(u64::MAX),
            patience: StallTimer::new(still),
            progress: Arc::clone(&progress),
        };
        (Self { body: Some(streaming) }, Some(progress))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        let Some(this) = &mut self.body else { return Poll::Ready(None) };
        if this.progress.outlives_upload && this.progress.failure().is_some() {
            return Poll::Pending;
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                this.patience.moved();
                this.progress.moved();
                clean(&mut frame);
                let size = frame.data_ref().map_or(0, |data| data.len() as u64);
                match this.left.checked_sub(size) {
                    Some(left) => this.left = left,
                    None => return this.progress.fail(UploadFailure::TooLarge),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => this.progress.fail(UploadFailure::Broken),
            Poll::Ready(None) => {
                this.progress.moved();
                Poll::Ready(None)
            }
            Poll::Pending => {
                this.progress.record_stall();
                ready!(this.patience.poll_lost(cx));
                this.progress.fail(UploadFailure::Late)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|it| it.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |it| it.body.size_hint())
    }
}

/// The body of a response.
pub(crate) struct GatewayBody(Kind);

enum Kind {
    /// A body that the gateway wrote.
    Full(Option<Bytes>),
    /// A body of the upstream.
    Download(Download),
}

/// The body of an upstream response, and the resources that are released when it ends.
struct Download {
    body: Incoming,
    patience: StallTimer,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The connection, returned to the pool if the body ends regularly.
    lease: Option<Lease>,
    /// The load of the upstream, counted until the last byte.
    load: Option<Load>,
    /// The slots of the request, if they outlive its caller.
    slots: Option<HeldSlots>,
}

impl GatewayBody {
    pub(crate) const fn full(bytes: Bytes) -> Self {
        Self(Kind::Full(Some(bytes)))
    }

    pub(crate) const fn empty() -> Self {
        Self(Kind::Full(None))
    }

    pub(crate) fn download(
        body: Incoming,
        (lease, load): (Lease, Load),
        slots: Option<HeldSlots>,
        still: Duration,
        deadline: Option<Instant>,
    ) -> Self {
        let deadline = deadline.map(|at| Box::pin(tokio::time::sleep_until(at)));
        let (patience, lease, load) = (StallTimer::new(still), Some(lease), Some(load));
        let mut download = Download { body, patience, deadline, lease, load, slots };
        download.note_end();
        Self(Kind::Download(download))
    }

    /// Reads the body to its end, within bounds, for a caller that disconnected.
    pub(crate) async fn discard(mut self, head: &Parts) {
        if let Kind::Download(download) = std::mem::replace(&mut self.0, Kind::Full(None)) {
            if let Some(slots) = &download.slots {
                slots.observe_head(head);
            }
            download.discard().await;
        }
    }
}

/// A response whose caller disconnected holds its slots until it ends.
impl Drop for GatewayBody {
    fn drop(&mut self) {
        let Kind::Download(Download { slots: slots @ Some(_), .. }) = &mut self.0 else { return };
        let slots = slots.take();
        if let (Some(slots), Kind::Download(mut download)) =
            (slots, std::mem::replace(&mut self.0, Kind::Full(None)))
        {
            slots.detach(|slots| {
                download.slots = Some(slots);
                download.discard()
            });
        }
    }
}

impl Download {
    fn note_end(&mut self) {
        if self.body.is_end_stream() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.return_to_pool();
        }
        self.load = None;
        self.release();
    }

    /// Releases the slots and the load: the upstream has finished the request.
    fn release(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.release();
        }
    }

    /// Reads the rest of the body. If it exceeds the bound, the connection is closed and the slots
    /// are kept until their `ttl`.
    async fn discard(mut self) {
        let mut bytes_left = MAX_DRAINED_BYTES;
        while self.body.size_hint().lower() <= bytes_left {
            match poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    if let Some(slots) = &self.slots {
                        slots.observe_frame(&frame);
                    }
                    let size = frame.data_ref().map_or(0, |data| data.len() as u64);
                    let Some(left) = bytes_left.checked_sub(size) else { return };
                    bytes_left = left;
                }
                Some(Err(_)) => return self.release(),
                None => return self.finish(),
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> NextFrame {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.patience.moved();
                clean(&mut frame);
                self.note_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.release();
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let overdue = self.deadline.as_mut().is_some_and(|it| it.as_mut().poll(cx).is_ready());
                if !overdue {
                    ready!(self.patience.poll_lost(cx));
                }
                Poll::Ready(Some(Err("the answer stopped arriving".into())))
            }
        }
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Download(download) => download.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Download(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64)),
            Kind::Download(download) => download.body.size_hint(),
        }
    }
}
