//! Commands of one pipeline that wait for a store, together, answered in their order.
//!
//! Each is asked before the first has its answer: a store over a wire then shares calls between them. They
//! begin in their order, so that what goes to one key is decided in that order. What is no decision (giving
//! back, looking) waits alone: a store may do it in another way.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crate::command::Command;
use crate::metrics::{CommandResult, Tally};

/// The most that wait at once.
pub(crate) const MAX_PENDING: usize = 128;

/// The reply of a command that waits, and what came of it.
pub(crate) type Answer = Pin<Box<dyn Future<Output = (Vec<u8>, CommandResult)> + Send>>;

/// Commands that wait.
#[derive(Default)]
pub(crate) struct PendingReplies {
    all: Vec<PendingReply>,
    /// How much was answered after all of them but the last.
    answered: usize,
}

struct PendingReply {
    command: Command,
    answer: State,
    /// What was answered at once to the commands after it.
    after: Vec<u8>,
}

enum State {
    Pending(Answer),
    Answered(Vec<u8>, CommandResult),
}

impl PendingReplies {
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.all.len() >= MAX_PENDING
    }

    /// One more waits.
    pub(crate) fn push(&mut self, command: Command, answer: Answer) {
        self.answered = self.bytes();
        self.all.push(PendingReply { command, answer: State::Pending(answer), after: Vec::new() });
    }

    /// How much was answered at once to commands that come after one that waits.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.all.last().map_or(0, |last| self.answered + last.after.len())
    }

    /// Where the next reply goes: behind the last command that waits, if any does.
    #[inline]
    pub(crate) fn end<'o>(&'o mut self, out: &'o mut Vec<u8>) -> &'o mut Vec<u8> {
        self.all.last_mut().map_or(out, |last| &mut last.after)
    }

    /// Waits for all of them.
    pub(crate) async fn all(&mut self, tally: &mut Tally, out: &mut Vec<u8>) {
        poll_fn(|cx| {
            let mut pending = false;
            for one in &mut self.all {
                if let State::Pending(answer) = &mut one.answer {
                    match answer.as_mut().poll(cx) {
                        Poll::Ready((reply, came)) => one.answer = State::Answered(reply, came),
                        Poll::Pending => pending = true,
                    }
                }
            }
            if pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for one in self.all.drain(..) {
            if let State::Answered(reply, came) = one.answer {
                tally.count(one.command, came);
                out.extend_from_slice(&reply);
            }
            out.extend_from_slice(&one.after);
        }
    }
}
