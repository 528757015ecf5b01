//! Pipelined commands that wait for a store together and are answered in order.
//!
//! All commands are sent to the store before the first reply arrives, so that a remote store can
//! batch them. They start in order, so that commands on one key are decided in that order. Commands
//! that are not decisions (refund, peek) wait alone, because a store may execute them differently.
//!
//! Decisions about limits wait as one batch ([`PendingBatch`]), which costs neither a future nor a wake-up
//! for each.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use tollgate::{Limiter, PendingBatch, Store};

use crate::command::Command;
use crate::limit_commands::write_decision;
use crate::metrics::{CommandResult, Tally};
use crate::reply::Protocol;
use crate::session::{NO_STORE, decision_result, wrong};

/// The maximum number of pending commands.
pub(crate) const MAX_PENDING: usize = 128;

/// The bytes and the result of a command that was pending.
pub(crate) type Reply = (Vec<u8>, CommandResult);
type PendingAnswer = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The pending commands.
pub(crate) struct PendingReplies<'l, S> {
    limiter: &'l Limiter<S>,
    all: Vec<PendingReply>,
    /// The number of reply bytes after all pending commands except the last.
    answered: usize,
    /// The decisions of the commands that are [`State::Batched`], in their order.
    batch: PendingBatch<'l, S>,
    /// The number of commands with a future of their own.
    futures: usize,
}

struct PendingReply {
    command: Command,
    answer: State,
    /// The replies to commands after this one that were answered immediately.
    after: Vec<u8>,
}

/// How a command waits.
pub(crate) enum State {
    /// As the next decision of the batch.
    Batched,
    /// On its own.
    Pending(PendingAnswer),
    Answered(Reply),
}

impl<'l, S: Store> PendingReplies<'l, S> {
    pub(crate) const fn new(limiter: &'l Limiter<S>) -> Self {
        let batch = PendingBatch::new(limiter);
        Self { limiter, all: Vec::new(), answered: 0, batch, futures: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.all.len() >= MAX_PENDING
    }

    /// Adds a pending command.
    pub(crate) fn push(&mut self, command: Command, answer: State) {
        self.answered = self.bytes();
        self.futures += usize::from(matches!(answer, State::Pending(_)));
        self.all.push(PendingReply { command, answer, after: Vec::new() });
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

    /// The batch for the next decision, and the buffer for its reply if it does not wait.
    #[inline]
    pub(crate) fn batch_and_end<'o>(
        &'o mut self,
        out: &'o mut Vec<u8>,
    ) -> (&'o mut PendingBatch<'l, S>, &'o mut Vec<u8>) {
        (&mut self.batch, self.all.last_mut().map_or(out, |last| &mut last.after))
    }

    /// Waits for all pending commands.
    pub(crate) async fn all(self, tally: &mut Tally, out: &mut Vec<u8>) {
        let Self { limiter, mut all, batch, futures, .. } = self;
        // The replies to the decisions of the batch, and the place of each with its result.
        let (mut bytes, mut places) = (Vec::new(), vec![None; batch.len()]);
        let decisions = batch.finish(|number, decision| {
            let start = bytes.len();
            // A slot never waits in a batch, and only its reply depends on the protocol.
            write_decision(limiter, decision, false, Protocol::default(), &mut bytes);
            places[number] = Some((start, bytes.len(), decision_result(decision.is_allowed())));
        });
        if futures == 0 {
            decisions.await;
        } else {
            let (mut decisions, mut are_decided) = (pin!(decisions), false);
            poll_fn(|cx| {
                are_decided = are_decided || decisions.as_mut().poll(cx).is_ready();
                let mut pending = !are_decided;
                for one in &mut all {
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
        }
        let mut places = places.into_iter().flatten();
        for one in all {
            match one.answer {
                State::Answered((reply, result)) => {
                    tally.count(one.command, result);
                    out.extend_from_slice(&reply);
                }
                State::Batched => {
                    let result = match places.next() {
                        Some((start, end, result)) => {
                            out.extend_from_slice(&bytes[start..end]);
                            result
                        }
                        None => wrong(out, NO_STORE),
                    };
                    tally.count(one.command, result);
                }
                State::Pending(_) => {}
            }
            out.extend_from_slice(&one.after);
        }
    }
}
