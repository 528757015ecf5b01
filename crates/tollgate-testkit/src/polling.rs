//! Polls a future once, for tests that hold a future open.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Polls a future once. The test polls it again itself, so wake-ups are ignored.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::new(IgnoredWake))))
}

struct IgnoredWake;

impl Wake for IgnoredWake {
    fn wake(self: Arc<Self>) {}
}
