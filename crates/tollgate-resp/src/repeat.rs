//! Commands of a pipeline that repeat the throttle command before them with other keys.
//!
//! Such commands differ only in the length and the bytes of their key, so they are recognized by comparing bytes: their
//! frames and numbers are not parsed again.
//!
//! Invariant: a command that is recognized here is the same to the parser. Tested by
//! `repeated_commands_are_the_same_to_the_parser`.

use std::sync::Arc;

use tollgate::Store;

use crate::command::Command;
use crate::exchange::Exchange;
use crate::frame::{MAX_BULK_BYTES, Words, length_line};
use crate::session::{MAX_REPLY_BYTES, Session, key_in, spend};
use crate::throttle::{Dialect, ThrottleAction, ThrottleRequest};

/// The maximum number of bytes after the key. With a key of the maximum length, a command stays below the maximum of a
/// frame.
const MAX_TAIL_BYTES: usize = 256;

/// The bytes of a command around its key.
#[derive(Clone, Copy, Debug)]
struct Template<'b> {
    /// The header, the name, and the `$` before the length of the key.
    head: &'b [u8],
    /// The line break after the key, and all other arguments.
    tail: &'b [u8],
}

impl<'b> Template<'b> {
    /// Returns the bytes around the first argument of a command, which `bytes` start with. `None` if it is an inline
    /// command, or has a long tail.
    fn of(words: Words<'b>, bytes: &'b [u8], length: usize) -> Option<Self> {
        if bytes.first() != Some(&b'*') {
            return None;
        }
        let (name, key) = (words.place_of(0)?, words.place_of(1)?);
        let (head, tail) = (bytes.get(..name.end + 3)?, bytes.get(key.end..length)?);
        (tail.len() <= MAX_TAIL_BYTES).then_some(Self { head, tail })
    }

    /// Returns the key and the length of the command that the bytes start with, if it is the same command.
    #[inline]
    fn key_of<'n>(&self, bytes: &'n [u8]) -> Option<(&'n [u8], usize)> {
        let rest = bytes.strip_prefix(self.head)?;
        let (length, start) = length_line(rest)?;
        let end = start + length;
        let key = rest.get(start..end).filter(|_| length <= MAX_BULK_BYTES)?;
        rest[end..].starts_with(self.tail).then_some((key, self.head.len() + end + self.tail.len()))
    }
}

impl<S: Store> Session<S> {
    /// Answers the commands in `rest` that repeat the command before them, which was answered immediately. Returns
    /// their length.
    #[inline]
    pub(crate) fn repeat(
        &mut self,
        words: Words<'_>,
        (bytes, length): (&[u8], usize),
        exchange: &mut Exchange<'_, '_, S>,
    ) -> usize {
        let rest = &bytes[length..];
        if rest.is_empty()
            || self.transaction.is_some()
            || self.is_unauthenticated
            || !exchange.waiting.is_empty()
        {
            return 0;
        }
        let Some(template) = Template::of(words, bytes, length) else { return 0 };
        match template.key_of(rest) {
            Some(first) => self.repeat_template(words, template, (rest, first), exchange),
            None => 0,
        }
    }

    fn repeat_template(
        &mut self,
        words: Words<'_>,
        template: Template<'_>,
        (rest, first): (&[u8], (&[u8], usize)),
        exchange: &mut Exchange<'_, '_, S>,
    ) -> usize {
        let command = Command::named(words.get(0));
        let Some(dialect) = Dialect::of(command) else { return 0 };
        let Ok(ThrottleRequest { throttle, wanted: ThrottleAction::Units(units) }) = dialect.read(words)
        else {
            return 0;
        };
        let Some(rule) = self.throttles.rule(throttle).ok().map(Arc::clone) else { return 0 };
        let (mut at, mut next) = (0, Some(first));
        while let Some((name, length)) = next {
            at += length;
            next = template.key_of(&rest[at..]);
            if let Some((name, _)) = next {
                self.prefetch(exchange.limiter, name);
            }
            match spend((command, dialect), &rule, (key_in(self.database, name), units), exchange) {
                Ok(result) => self.tally.count(command, result),
                // It waits for the store, and the next ones are to wait with it.
                Err(_on) => break,
            }
            if exchange.out.len() >= MAX_REPLY_BYTES {
                break;
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frames, Step};

    /// Returns the command as an array of bulk strings.
    fn command(words: &[&str]) -> Vec<u8> {
        let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), bulks.collect::<String>()).into_bytes()
    }

    #[test]
    fn repeated_commands_are_the_same_to_the_parser() {
        let first = command(&["CL.THROTTLE", "key", "9", "10", "60"]);
        let mut frames = Frames::default();
        assert_eq!(frames.next(&first, false), Ok(Step::Command(first.len())));
        let words = frames.words(&first);
        let template = Template::of(words, &first, first.len()).unwrap();
        for key in ["", "a", "key", "0123456789", "k\r\n$1\r\n", &"x".repeat(MAX_BULK_BYTES)] {
            let mut bytes = command(&["CL.THROTTLE", key, "9", "10", "60"]);
            let length = bytes.len();
            bytes.extend_from_slice(b"*1\r\n");
            assert_eq!(template.key_of(&bytes), Some((key.as_bytes(), length)), "{key}");
            let mut frames = Frames::default();
            assert_eq!(frames.next(&bytes, false), Ok(Step::Command(length)));
            assert_eq!(frames.words(&bytes).get(1), key.as_bytes());
            for end in 0..length.min(100) {
                assert_eq!(template.key_of(&bytes[..end]), None, "{end} bytes of {key}");
            }
        }
    }

    #[test]
    fn other_commands_are_left_to_the_parser() {
        let first = command(&["CL.THROTTLE", "key", "9", "10", "60"]);
        let mut frames = Frames::default();
        assert_eq!(frames.next(&first, false), Ok(Step::Command(first.len())));
        let template = Template::of(frames.words(&first), &first, first.len()).unwrap();
        for other in [
            command(&["CL.THROTTLE", "key", "9", "10", "61"]),
            command(&["CL.THROTTLE", "key", "9", "10", "60", "2"]),
            command(&["CL.THROTTLE", "key", "9", "10"]),
            command(&["cl.throttle", "key", "9", "10", "60"]),
            command(&["CL.THROTTLE", &"x".repeat(MAX_BULK_BYTES + 1), "9", "10", "60"]),
            first.iter().copied().map(|byte| if byte == b'3' { b'2' } else { byte }).collect(),
            b"*5\r\n$11\r\nCL.THROTTLE\r\n$03\r\nkey\r\n$1\r\n9\r\n$2\r\n10\r\n$2\r\n60\r\n".to_vec(),
            b"*5\r\n$11\r\nCL.THROTTLE\r\n$-1\r\nkey\r\n$1\r\n9\r\n$2\r\n10\r\n$2\r\n60\r\n".to_vec(),
            b"CL.THROTTLE key 9 10 60\r\n".to_vec(),
        ] {
            assert_eq!(template.key_of(&other), None, "{}", other.escape_ascii());
        }
    }
}
