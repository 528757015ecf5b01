//! `grpc.health.v1.Health`: whether the service serves.
//!
//! It does until it is told that the end has begun. Whoever watches is told then.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::grpc::{Code, Refusal, framed};
use crate::wire::{Reader, Write as _};

/// The whole server, envoyproxy/ratelimit's name for its service, and the services' own.
const KNOWN: [&str; 4] =
    ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "throttlecrab.RateLimiter"];

const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const SERVICE_UNKNOWN: u64 = 3;

/// Whether the service serves, and who wants to know when it no longer does.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    has_ended: AtomicBool,
    next: AtomicU64,
    /// One for each stream that watches, which connections and their streams bound.
    watchers: Mutex<Vec<(u64, Waker)>>,
}

impl Serving {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        let watchers = std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, waker) in watchers {
            waker.wake();
        }
    }

    fn status(&self) -> u64 {
        if self.has_ended.load(Ordering::Acquire) { NOT_SERVING } else { SERVING }
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

/// Whether the request asks about something that is here.
fn is_known(message: &[u8]) -> Result<bool, Refusal> {
    let (mut fields, mut service) = (Reader::new(message), "");
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            service = value.text()?;
        }
    }
    Ok(KNOWN.contains(&service))
}

fn response(status: u64) -> Bytes {
    framed(|out| out.put_uint(1, status))
}

/// The answer to `Watch`: the status, and each that follows. It ends with the connection.
#[derive(Debug)]
pub(crate) struct Watching {
    serving: Arc<Serving>,
    id: u64,
    is_known: bool,
    last: Option<u64>,
}

impl Watching {
    pub(crate) fn new(serving: &Arc<Serving>, message: &[u8]) -> Result<Self, Refusal> {
        let is_known = is_known(message)?;
        let id = serving.next.fetch_add(1, Ordering::Relaxed);
        Ok(Self { serving: Arc::clone(serving), id, is_known, last: None })
    }

    fn status(&self) -> u64 {
        if self.is_known { self.serving.status() } else { SERVICE_UNKNOWN }
    }
}

impl Body for Watching {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.last == Some(self.status()) {
            self.serving.watch(self.id, cx.waker());
            // It may have ended just before.
            if self.last == Some(self.status()) {
                return Poll::Pending;
            }
        }
        let status = self.status();
        self.last = Some(status);
        Poll::Ready(Some(Ok(Frame::data(response(status)))))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.serving.forget(self.id);
    }
}
