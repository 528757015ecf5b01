//! `grpc.health.v1.Health`: whether the service serves.
//!
//! It does until it is told that the end has begun. Whoever watches is told then, and streams that
//! go on for as long as somebody listens end: an end that waits for them would wait for ever.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::grpc::{Code, Refusal, ends_early, framed};
use crate::wire::{Reader, Write as _};

/// The whole server, envoyproxy/ratelimit's name for its service, and the services' own.
const SERVICE_NAMES: [&str; 4] =
    ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "throttlecrab.RateLimiter"];

const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const SERVICE_UNKNOWN: u64 = 3;

/// Whether the service serves, and who wants to know when it no longer does.
#[derive(Debug, Default)]
pub(crate) struct ServingStatus {
    has_ended: AtomicBool,
    next: AtomicU64,
    /// One for each stream that watches, which connections and their streams bound.
    watchers: Mutex<Vec<(u64, Waker)>>,
}

impl ServingStatus {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        let watchers = std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
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

    /// The answer to `Check`.
    pub(crate) fn check(&self, message: &[u8]) -> Result<Bytes, Refusal> {
        if is_known(message)? {
            return Ok(response(self.status()));
        }
        let message = "no such service is served here; ask for `ratelimit`, or leave the name out".to_owned();
        Err(Refusal { code: Code::NotFound, message })
    }

    fn watch(&self, watcher: u64, waker: &Waker) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        match watchers.iter_mut().find(|(known, _)| *known == watcher) {
            Some((_, known)) => known.clone_from(waker),
            None => watchers.push((watcher, waker.clone())),
        }
    }

    fn forget(&self, watcher: u64) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|(known, _)| *known != watcher);
    }
}

/// A stream that ends when the service does.
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

    /// Whether the end has begun; the task is woken when it does.
    pub(crate) fn has_come(&self, cx: &Context<'_>) -> bool {
        if !self.serving.has_ended() {
            self.serving.watch(self.id, cx.waker());
        }
        // It may have begun just before.
        self.serving.has_ended()
    }
}

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.serving.forget(self.id);
    }
}

/// Whether the request asks about something that is here.
fn is_known(message: &[u8]) -> Result<bool, Refusal> {
    let (mut fields, mut service) = (Reader::new(message), "");
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            service = value.text()?;
        }
    }
    Ok(SERVICE_NAMES.contains(&service))
}

fn response(status: u64) -> Bytes {
    framed(|out| out.put_uint(1, status))
}

/// The answer to `Watch`: the status, the one that follows, and the end.
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
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
        Poll::Ready(Some(Ok(Frame::trailers(ends_early()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}
