//! The limiter that decides the commands of one read, and the buffers of their replies.

use std::future::Future;
use std::sync::Arc;

use tollgate::{Limiter, Store};

use crate::command::Command;
use crate::metrics::CommandResult;
use crate::pending::{PendingReplies, Reply, State};
use crate::session::{Flow, wrong};

/// The commands of one read: one policy decides all of them.
pub(crate) struct Exchange<'a, 'l, S> {
    pub(crate) limiter: &'l Arc<Limiter<S>>,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) waiting: &'a mut PendingReplies<'l, S>,
}

impl<S: Store> Exchange<'_, '_, S> {
    /// Returns the buffer for the next reply.
    #[inline]
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        self.waiting.end(self.out)
    }

    /// Replies with an error.
    pub(crate) fn error(&mut self, text: &[u8]) -> CommandResult {
        wrong(self.end(), text)
    }

    /// Adds a pending command. Later commands are sent to the store with it.
    pub(crate) fn defer(
        &mut self,
        command: Command,
        reply: impl Future<Output = Reply> + Send + 'static,
    ) -> Flow {
        self.waiting.push(command, State::Pending(Box::pin(reply)));
        Flow::On
    }

    /// Adds a command that waits alone, unless others are pending: it comes after them.
    pub(crate) fn defer_alone(
        &mut self,
        command: Command,
        reply: impl Future<Output = Reply> + Send + 'static,
    ) -> Flow {
        if !self.waiting.is_empty() {
            return Flow::NotYet;
        }
        self.defer(command, reply);
        Flow::Alone
    }
}
