//! Pipelined commands that wait for a store together and are answered in order.
//!
//! All commands are sent to the store before the first reply arrives, so that a remote store can
//! batch them. They start in order, so that commands on one key are decided in that order. Commands
//! that are not decisions (refund, peek) wait alone, because a store may execute them differently.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crate::command::Command;
use crate::metrics::{CommandResult, Tally};

/// The maximum number of pending commands.
pub(crate) const MAX_PENDING: usize = 128;

/// The bytes and the result of a command that was pending.
pub(crate) type Reply = (Vec<u8>, CommandResult);
type PendingAnswer = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The pending commands.
#[derive(Default)]
pub(crate) struct PendingReplies {
    all: Vec<PendingReply>,
    /// The number of reply bytes after all pending commands except the last.
    answered: usize,
}

struct PendingReply {
    command: Command,
    answer: State,
    /// The replies to commands after this one that were answered immediately.
    after: Vec<u8>,
}

enum State {
    Pending(PendingAnswer),
    Answered(Reply),
}

impl PendingReplies {
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.all.len() >= MAX_PENDING
    }

    /// Adds a pending command.
    pub(crate) fn push(&mut self, command: Command, answer: PendingAnswer) {
        self.answered = self.bytes();
        self.all.push(PendingReply { command, answer: State::Pending(answer), after: Vec::new() });
    }

    /// The number of reply bytes of commands that follow a pending command.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.all.last().map_or(0, |last| self.answered + last.after.len())
    }

    /// The buffer for the next reply: after the last pending command, if there is one.
    #[inline]
    pub(crate) fn end<'o>(&'o mut self, out: &'o mut Vec<u8>) -> &'o mut Vec<u8> {
        self.all.last_mut().map_or(out, |last| &mut last.after)
    }

    /// Waits for all pending commands.
    pub(crate) async fn all(&mut self, tally: &mut Tally, out: &mut Vec<u8>) {
        poll_fn(|cx| {
            let mut pending = false;
            for one in &mut self.all {
                if let State::Pending(answer) = &mut one.answer {
                    match answer.as_mut().poll(cx) {
                        Poll::Ready(reply) => one.answer = State::Answered(reply),
                        Poll::Pending => pending = true,
                    }
                }
            }
            if pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for one in self.all.drain(..) {
            if let State::Answered((reply, result)) = one.answer {
                tally.count(one.command, result);
                out.extend_from_slice(&reply);
            }
            out.extend_from_slice(&one.after);
        }
    }
}
