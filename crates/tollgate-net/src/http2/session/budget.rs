//! The budget for frames that achieve nothing.

use super::{ConnectionError, Received};
use crate::http2::frame::Reason;

/// The number of frames without effect that a client may send before the next refill.
const FRAME_BUDGET: u32 = 1_000;
/// The number of frames of refused streams that a client may send before it has confirmed the maximum number of streams:
/// Envoy opens up to 1,024 streams, with two frames each, before it waits for the settings.
const EARLY_FRAMES: u32 = 2_048;
/// The part of the budget that an answered request, and a sent piece of a response, refill.
pub(super) const ANSWER_REFILL: u32 = 8;
pub(super) const PIECE_REFILL: u32 = 2;

/// The number of frames without effect that a client may still send.
#[derive(Debug)]
pub(super) struct FrameBudget {
    left: u32,
    /// The number of frames of refused streams that do not count.
    early: u32,
    /// When time refilled it, in milliseconds of the connection.
    refilled_at: u64,
}

impl FrameBudget {
    pub(super) const fn new() -> Self {
        Self { left: FRAME_BUDGET, early: EARLY_FRAMES, refilled_at: 0 }
    }

    /// Counts a frame that achieves nothing.
    pub(super) fn spend(&mut self) -> Received<()> {
        self.left = self.left.checked_sub(1).ok_or(ConnectionError(Reason::EnhanceYourCalm))?;
        Ok(())
    }

    /// Counts a frame of a stream that was refused or closed.
    pub(super) fn spend_refused(&mut self) -> Received<()> {
        let Some(left) = self.early.checked_sub(1) else { return self.spend() };
        self.early = left;
        Ok(())
    }

    /// Records that the client knows the maximum number of streams.
    pub(super) const fn confirm(&mut self) {
        self.early = 0;
    }

    pub(super) fn refill(&mut self, frames: u32) {
        self.left = (self.left + frames).min(FRAME_BUDGET);
    }

    pub(super) const fn refilled_at(&self) -> u64 {
        self.refilled_at
    }

    /// Refills it completely because of the time that has passed.
    pub(super) const fn refill_at(&mut self, now: u64) {
        (self.left, self.refilled_at) = (FRAME_BUDGET, now);
    }
}
