//! `grpc.health.v1.Health`: the serving status.
//!
//! The status is `SERVING` until the server drains. Watchers are notified then, and all streams
//! end, because the drain would otherwise wait for them forever.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;

use tollgate_grpc::NextFrame;
use tollgate_grpc::call::{Code, Refusal, framed, unavailable_trailers};
use tollgate_grpc::wire::{Reader, Write as _};

/// The names that are known: the whole server, the name that envoyproxy/ratelimit uses, and the
/// services.
const SERVICE_NAMES: [&str; 7] = [
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
    "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
    "envoy.service.auth.v3.Authorization",
    "kuadrant.service.ratelimit.v1.RateLimitService",
    "throttlecrab.RateLimiter",
];

const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const SERVICE_UNKNOWN: u64 = 3;

/// The serving status and the tasks that watch it.
#[derive(Debug, Default)]
pub(crate) struct ServingStatus {
    has_ended: AtomicBool,
    next: AtomicU64,
    /// One waker for each watching stream; the number of streams is bounded by the connections.
    watchers: Mutex<Vec<(u64, Waker)>>,
}

impl ServingStatus {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        let watchers = std::mem::take(&mut *self.watchers.lock());
        for (_, waker) in watchers {
            waker.wake();
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn status(&self) -> u64 {
        if self.has_ended() { NOT_SERVING } else { SERVING }
    }

    /// Answers `Check`.
    pub(crate) fn check(&self, message: &[u8]) -> Result<Bytes, Refusal> {
        if is_known(message)? {
            return Ok(response(self.status()));
        }
        let message = "no such service is served here; ask for `ratelimit`, or leave the name out".to_owned();
        Err(Refusal { code: Code::NotFound, message })
    }

    fn watch(&self, watcher: u64, waker: &Waker) {
        let mut watchers = self.watchers.lock();
        match watchers.iter_mut().find(|(known, _)| *known == watcher) {
            Some((_, known)) => known.clone_from(waker),
            None => watchers.push((watcher, waker.clone())),
        }
    }

    fn forget(&self, watcher: u64) {
        let mut watchers = self.watchers.lock();
        watchers.retain(|(known, _)| *known != watcher);
    }
}

/// Notifies a stream when the server drains.
#[derive(Debug)]
pub(crate) struct EndSignal {
    serving: Arc<ServingStatus>,
    id: u64,
}

impl EndSignal {
    pub(crate) fn end_of(serving: &Arc<ServingStatus>) -> Self {
        let id = serving.next.fetch_add(1, Ordering::Relaxed);
        Self { serving: Arc::clone(serving), id }
    }

    /// Whether draining has started; otherwise registers the task to be woken.
    pub(crate) fn has_come(&self, cx: &Context<'_>) -> bool {
        if !self.serving.has_ended() {
            self.serving.watch(self.id, cx.waker());
        }
        // Draining may have started before the registration.
        self.serving.has_ended()
    }
}

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.serving.forget(self.id);
    }
}

/// Whether the request names a known service.
fn is_known(message: &[u8]) -> Result<bool, Refusal> {
    let (mut fields, mut service) = (Reader::new(message), "");
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            service = value.text()?;
        }
    }
    Ok(SERVICE_NAMES.contains(&service))
}

fn response(status: u64) -> Bytes {
    framed(|out| out.put_uint(1, status))
}

/// The response to `Watch`: the status, its change, and the end.
#[derive(Debug)]
pub(crate) struct WatchStream {
    end: EndSignal,
    is_known: bool,
    last: Option<u64>,
    is_over: bool,
}

impl WatchStream {
    pub(crate) fn new(serving: &Arc<ServingStatus>, message: &[u8]) -> Result<Self, Refusal> {
        let is_known = is_known(message)?;
        Ok(Self { end: EndSignal::end_of(serving), is_known, last: None, is_over: false })
    }

    fn status(&self) -> u64 {
        if self.is_known { self.end.serving.status() } else { SERVICE_UNKNOWN }
    }
}

impl Body for WatchStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextFrame {
        if self.is_over {
            return Poll::Ready(None);
        }
        let ends = self.end.has_come(cx);
        let status = self.status();
        if self.last != Some(status) {
            self.last = Some(status);
            return Poll::Ready(Some(Ok(Frame::data(response(status)))));
        }
        if !ends {
            return Poll::Pending;
        }
        self.is_over = true;
        Poll::Ready(Some(Ok(Frame::trailers(unavailable_trailers()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}
