//! Calls as the bytes of a connection: one, or several that are sent together.
//!
//! A group has one waiter, one timer and one message on its way to the connection. On the wire its calls are
//! separate commands, so the other node needs to know nothing about groups.

use std::ops::Range;

use smallvec::SmallVec;
use tollgate_core::Timestamp;

use crate::failure::Failure;
use crate::resp;
use crate::wire::{self, Reply};

/// The results of the calls of a group, in their order.
pub(crate) type Replies = SmallVec<[Result<Reply, Failure>; 1]>;

/// Encoded calls.
#[derive(Debug, Default)]
pub(crate) struct CallGroup {
    /// The commands, one after the other.
    bytes: Vec<u8>,
    /// The places of the payloads in `bytes`.
    payloads: SmallVec<[Range<usize>; 1]>,
    /// The last payload, kept for its memory.
    payload: Vec<u8>,
}

impl CallGroup {
    /// Creates a group of one call.
    pub(crate) fn one(payload: &[u8]) -> Self {
        let mut group = Self::default();
        group.append(payload);
        group
    }

    /// Adds a call that `encode` writes, unless it has more than `max_bytes`. Returns whether it was added.
    pub(crate) fn push(&mut self, max_bytes: usize, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        encode(&mut payload);
        let fits = payload.len() <= max_bytes;
        if fits {
            self.append(&payload);
        }
        self.payload = payload;
        fits
    }

    fn append(&mut self, payload: &[u8]) {
        resp::call(&mut self.bytes, payload);
        // A line end follows the payload.
        let end = self.bytes.len() - 2;
        self.payloads.push(end - payload.len()..end);
    }

    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.payloads.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Makes all calls void after `at`, by the clock of the other node.
    pub(crate) fn void_after(&mut self, at: Timestamp) {
        for place in &self.payloads {
            wire::void_after(&mut self.bytes[place.clone()], at);
        }
    }

    /// Returns the commands.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the payload of a call.
    pub(crate) fn payload(&self, index: usize) -> &[u8] {
        self.payloads.get(index).map_or(&[], |place| &self.bytes[place.clone()])
    }

    /// Returns the failure of all calls.
    pub(crate) fn failed(&self, failure: &Failure) -> Replies {
        (0..self.len()).map(|_| Err(failure.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Call, encode_ping};

    #[test]
    fn calls_of_a_group_are_separate_commands() {
        let (mut group, ping) = (CallGroup::default(), encode_ping());
        for _ in 0..3 {
            assert!(group.push(ping.len(), |out| out.extend_from_slice(&ping)));
        }
        assert!(!group.push(ping.len() - 1, |out| out.extend_from_slice(&ping)));
        let mut expected = Vec::new();
        (0..3).for_each(|_| resp::call(&mut expected, &ping));
        assert_eq!((group.len(), group.bytes()), (3, &expected[..]));
        group.void_after(Timestamp::from_secs(7));
        for index in 0..3 {
            let (_, not_after) = Call::decode(group.payload(index)).unwrap();
            assert_eq!(not_after, Timestamp::from_secs(7));
        }
        assert!(group.payload(3).is_empty());
    }
}
