//! Messages for errors of the operating system.
//!
//! `No such file or directory (os error 2)` says neither which operation failed nor what to do. All
//! messages about such errors are made here.
//!
//! Invariant: no message contains an error number of the operating system. [`without_numbers`]
//! removes them from errors that other crates have worded; `Failure` and `store::in_full` apply it.
//! Tested by `tests/commands.rs` of `tollgate-cli`.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Reading a file.
    Read,
    /// Reading a directory.
    List,
    /// Writing a file, or into a directory.
    Write,
    /// Connecting to another program.
    Connect,
    /// Any other operation.
    Other,
}

/// Returns the reason of a failure, to follow a colon.
pub fn reason(error: &io::Error, attempt: Attempt) -> String {
    let known = match (error.kind(), attempt) {
        // A custom message, of this or another crate.
        _ if error.raw_os_error().is_none() && error.get_ref().is_some() => None,
        (ErrorKind::NotFound, Attempt::Read) => Some("there is no such file"),
        (ErrorKind::NotFound, Attempt::List | Attempt::Write) => Some("there is no such directory"),
        (ErrorKind::PermissionDenied, Attempt::Read | Attempt::List) => Some("this user may not read it"),
        (ErrorKind::PermissionDenied, Attempt::Write) => Some("this user may not write there"),
        (ErrorKind::NotADirectory, Attempt::List) => Some("it is not a directory"),
        (ErrorKind::NotADirectory, _) => Some("a part of its path is not a directory"),
        (ErrorKind::IsADirectory, _) => Some("it is a directory"),
        (ErrorKind::StorageFull, _) => Some("there is no room left on the disk"),
        (ErrorKind::ReadOnlyFilesystem, _) => Some("the disk is read-only"),
        (ErrorKind::ConnectionRefused, _) => Some("nothing listens there"),
        (ErrorKind::TimedOut | ErrorKind::WouldBlock, Attempt::Connect) => Some("it does not answer"),
        _ => None,
    };
    known.map_or_else(|| in_lower_case(&without_numbers(&error.to_string())), str::to_owned)
}

/// Removes `(os error N)` from a text.
pub fn without_numbers(text: &str) -> Cow<'_, str> {
    const BEFORE: &str = " (os error ";
    let mut left = Cow::Borrowed(text);
    while let Some(start) = left.find(BEFORE) {
        let after = &left[start + BEFORE.len()..];
        let digits =
            after.len() - after.trim_start_matches(|it: char| it == '-' || it.is_ascii_digit()).len();
        let Some(rest) = after[digits..].strip_prefix(')') else { break };
        left = Cow::Owned(format!("{}{rest}", &left[..start]));
    }
    left
}

/// Lowers the first letter, for use in the middle of a sentence.
fn in_lower_case(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        // Keeps an abbreviation.
        (Some(first), Some(second)) if !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_have_messages_without_numbers() {
        for number in 1..=133 {
            for attempt in [Attempt::Read, Attempt::List, Attempt::Write, Attempt::Connect, Attempt::Other] {
                let words = reason(&io::Error::from_raw_os_error(number), attempt);
                assert!(!words.contains("os error") && !words.is_empty(), "{number}: {words}");
            }
        }
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(reason(&missing, Attempt::Read), "there is no such file");
        assert_eq!(reason(&missing, Attempt::Other), "no such file or directory");
        let own = io::Error::new(ErrorKind::NotFound, "the name has no address");
        assert_eq!(reason(&own, Attempt::Read), "the name has no address");
    }

    #[test]
    fn only_error_numbers_are_removed() {
        for (text, left) in [
            ("a (os error 2), b (os error 111)", "a, b"),
            ("a (os error -2)", "a"),
            ("a (os error two)", "a (os error two)"),
            ("a (os error 2", "a (os error 2"),
            ("os error 2", "os error 2"),
        ] {
            assert_eq!(without_numbers(text), left);
        }
    }
}
