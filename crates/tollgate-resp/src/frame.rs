//! Parses commands: arrays of bulk strings, and inline commands.
//!
//! Arguments are not copied: an argument is a range of the buffer. The parser keeps its position,
//! so that a frame in a thousand pieces is not parsed a thousand times.
//!
//! Not here: the buffer itself. Announced lengths allocate nothing; only received bytes use memory.
//!
//! Invariant: the result does not depend on how the bytes are split. `frame::fuzz` checks this.

#[cfg(test)]
mod fuzz;

use std::fmt;
use std::ops::Range;

use crate::inline;

/// The maximum number of arguments of a command.
const MAX_ARGUMENTS: usize = 128;
/// The maximum number of bytes of an argument.
pub(crate) const MAX_BULK_BYTES: usize = 64 * 1024;
/// The maximum number of bytes of an inline command.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The maximum number of bytes of a command.
const MAX_FRAME_BYTES: usize = 128 * 1024;
/// The maximum number of characters of an integer, including its sign.
const MAX_DIGITS: usize = 21;
/// The number of digits that fit into an `i64` whatever they are.
const MAX_SAFE_DIGITS: usize = 18;
/// The bounds before authentication.
const MAX_UNAUTHENTICATED_ARGUMENTS: usize = 10;
const MAX_UNAUTHENTICATED_BULK_BYTES: usize = 4 * 1024;
const MAX_UNAUTHENTICATED_FRAME_BYTES: usize = 8 * 1024;

/// A protocol error. The connection is closed after it, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// An inline command is too long.
    InlineTooBig,
    /// An inline command has an unclosed quote.
    UnbalancedQuotes,
    /// The line with the number of arguments is too long.
    CountTooBig,
    /// The number of arguments is invalid or too large.
    Count,
    /// There are more arguments than permitted before authentication.
    UnauthenticatedCount,
    /// The line with the length of an argument is too long.
    LengthTooBig,
    /// The length of an argument is invalid, too large, or wrong.
    Length,
    /// An argument is longer than permitted before authentication.
    UnauthenticatedLength,
    /// An array element is not a bulk string.
    NotABulk(u8),
    /// All arguments together are too large.
    FrameTooBig,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InlineTooBig => "too big inline request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::CountTooBig => "too big mbulk count string",
            Self::Count => "invalid multibulk length",
            Self::UnauthenticatedCount => "unauthenticated multibulk length",
            Self::LengthTooBig => "too big bulk count string",
            Self::Length => "invalid bulk length",
            Self::UnauthenticatedLength => "unauthenticated bulk length",
            Self::NotABulk(byte) => return write!(f, "expected '$', got '{}'", shown(*byte)),
            Self::FrameTooBig => "too big request",
        })
    }
}

/// Returns a printable character for a byte.
const fn shown(byte: u8) -> char {
    if byte.is_ascii_graphic() { byte as char } else { ' ' }
}

/// The result of parsing the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More bytes are needed.
    Incomplete,
    /// A command, and its number of bytes.
    Command(usize),
    /// An empty line or an empty array with this number of bytes.
    Nothing(usize),
}

/// A parser for commands.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// How many bytes of the frame have been parsed.
    at: usize,
    /// The number of remaining arguments of the array, once known.
    left: Option<usize>,
    /// The length of the next argument, once known.
    bulk: Option<usize>,
    /// The start and length of each argument.
    words: Vec<(u32, u32)>,
    /// The unquoted arguments of an inline command, concatenated.
    line: Vec<u8>,
    is_line: bool,
    /// Whether the last frame was complete: the next call starts another one.
    is_done: bool,
}

impl Frames {
    /// Continues parsing the frame that starts at the first byte. The caller passes the same bytes
    /// and more until the frame is complete.
    pub(crate) fn next(&mut self, bytes: &[u8], is_unauthenticated: bool) -> Result<Step, FrameError> {
        if std::mem::take(&mut self.is_done) {
            self.begin();
        }
        let step = match (self.left, bytes.first()) {
            (_, None) => Step::Incomplete,
            (None, Some(b'*')) => match self.count(bytes, is_unauthenticated)? {
                Step::Command(_) => self.arguments(bytes, is_unauthenticated)?,
                other => other,
            },
            (None, Some(_)) => self.line(bytes, is_unauthenticated)?,
            (Some(_), Some(_)) => self.arguments(bytes, is_unauthenticated)?,
        };
        self.is_done = step != Step::Incomplete;
        Ok(step)
    }

    fn begin(&mut self) {
        (self.at, self.left, self.bulk, self.is_line) = (0, None, None, false);
        self.words.clear();
        self.line.clear();
    }

    /// Whether a frame has started and is not complete.
    pub(crate) fn is_midway(&self) -> bool {
        !self.is_done && self.at > 0
    }

    /// Releases the memory of a large command.
    pub(crate) fn rest(&mut self) {
        if !self.is_midway() {
            (self.words, self.line) = (Vec::new(), Vec::new());
        }
    }

    /// Returns the arguments of the last command, starting with its name.
    pub(crate) fn words<'b>(&'b self, bytes: &'b [u8]) -> Words<'b> {
        Words::new(&self.words, if self.is_line { &self.line } else { bytes })
    }

    fn count(&mut self, bytes: &[u8], is_unauthenticated: bool) -> Result<Step, FrameError> {
        let Some((count, end)) = number(bytes, 1, FrameError::CountTooBig, FrameError::Count)? else {
            return Ok(Step::Incomplete);
        };
        let Ok(count) = usize::try_from(count) else { return Ok(Step::Nothing(end)) };
        match count {
            0 => return Ok(Step::Nothing(end)),
            _ if is_unauthenticated && count > MAX_UNAUTHENTICATED_ARGUMENTS => {
                return Err(FrameError::UnauthenticatedCount);
            }
            _ if count > MAX_ARGUMENTS => return Err(FrameError::Count),
            _ => {}
        }
        (self.left, self.at) = (Some(count), end);
        Ok(Step::Command(end))
    }

    fn arguments(&mut self, bytes: &[u8], is_unauthenticated: bool) -> Result<Step, FrameError> {
        let mut left = self.left.unwrap_or(0);
        while left > 0 {
            let length = match self.bulk {
                Some(length) => length,
                None => match bytes.get(self.at) {
                    None => break,
                    Some(b'$') => {
                        let read = number(bytes, self.at + 1, FrameError::LengthTooBig, FrameError::Length)?;
                        let Some((length, end)) = read else { break };
                        let length = usize::try_from(length).map_err(|_| FrameError::Length)?;
                        if is_unauthenticated && length > MAX_UNAUTHENTICATED_BULK_BYTES {
                            return Err(FrameError::UnauthenticatedLength);
                        }
                        if length > MAX_BULK_BYTES {
                            return Err(FrameError::Length);
                        }
                        if end + length
                            > if is_unauthenticated {
                                MAX_UNAUTHENTICATED_FRAME_BYTES
                            } else {
                                MAX_FRAME_BYTES
                            }
                        {
                            return Err(FrameError::FrameTooBig);
                        }
                        (self.at, self.bulk) = (end, Some(length));
                        length
                    }
                    Some(other) => return Err(FrameError::NotABulk(*other)),
                },
            };
            let end = self.at + length;
            match bytes.get(end..) {
                Some([b'\r', b'\n', ..]) => {}
                None | Some([] | [b'\r']) => break,
                // The bytes after the argument are not CRLF, so the length was wrong.
                Some(_) => return Err(FrameError::Length),
            }
            self.push(self.at, length);
            (self.at, self.bulk) = (end + 2, None);
            left -= 1;
        }
        self.left = Some(left);
        Ok(if left == 0 { Step::Command(self.at) } else { Step::Incomplete })
    }

    fn line(&mut self, bytes: &[u8], is_unauthenticated: bool) -> Result<Step, FrameError> {
        let most = if is_unauthenticated { MAX_UNAUTHENTICATED_FRAME_BYTES } else { MAX_LINE_BYTES };
        let end = bytes.iter().skip(self.at).position(|byte| *byte == b'\n').map(|at| at + self.at);
        let Some(end) = end.filter(|end| *end <= most) else {
            self.at = bytes.len();
            return if bytes.len() > most { Err(FrameError::InlineTooBig) } else { Ok(Step::Incomplete) };
        };
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        self.is_line = true;
        let (words, text) = (&mut self.words, &mut self.line);
        inline::split(line, MAX_ARGUMENTS, text, |start, length| words.push(Words::place(start, length)))?;
        Ok(if self.words.is_empty() { Step::Nothing(end + 1) } else { Step::Command(end + 1) })
    }

    fn push(&mut self, start: usize, length: usize) {
        self.words.push(Words::place(start, length));
    }
}

/// Parses the integer up to the end of its line, and returns it with the start of the next line.
/// `None`: more bytes are needed.
fn number(
    bytes: &[u8],
    from: usize,
    endless: FrameError,
    wrong: FrameError,
) -> Result<Option<(i64, usize)>, FrameError> {
    let rest = bytes.get(from..).unwrap_or_default();
    // Most integers have one digit.
    if let [digit @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return Ok(Some((i64::from(digit - b'0'), from + 3)));
    }
    let Some(end) = rest.iter().take(MAX_DIGITS).position(|byte| *byte == b'\r') else {
        return if rest.len() >= MAX_DIGITS { Err(endless) } else { Ok(None) };
    };
    match rest.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => match integer(&rest[..end]) {
            Some(number) => Ok(Some((number, from + end + 2))),
            None => Err(wrong),
        },
        Some(_) => Err(wrong),
    }
}

/// Parses the length of an argument, which is at the start of the bytes without its `$`. Returns it with the start of the
/// argument; `None` if it is incomplete or invalid.
#[inline]
pub(crate) fn length_line(bytes: &[u8]) -> Option<(usize, usize)> {
    let (length, start) = number(bytes, 0, FrameError::LengthTooBig, FrameError::Length).ok()??;
    Some((usize::try_from(length).ok()?, start))
}

/// Parses an integer as Redis does: digits with an optional minus.
pub(crate) fn integer(digits: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        all => (false, all),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [] | [b'0', ..] => return None,
        _ => {}
    }
    let mut number = 0i64;
    if digits.len() <= MAX_SAFE_DIGITS {
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + i64::from(digit);
        }
        return Some(if is_negative { -number } else { number });
    }
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        // Accumulates negative numbers, whose range is larger by one.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if is_negative { Some(number) } else { number.checked_neg() }
}

/// The arguments of a command, starting with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'b> {
    places: &'b [(u32, u32)],
    bytes: &'b [u8],
}

impl<'b> Words<'b> {
    /// Creates the arguments at these ranges of the bytes.
    pub(crate) const fn new(places: &'b [(u32, u32)], bytes: &'b [u8]) -> Self {
        Self { places, bytes }
    }

    /// Returns the range of an argument. Both numbers are far below `u32::MAX`.
    #[inline]
    pub(crate) fn place(start: usize, length: usize) -> (u32, u32) {
        (u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(length).unwrap_or(0))
    }

    /// The number of arguments, including the name.
    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns an argument; empty if there are fewer.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &'b [u8] {
        let Some(&(start, length)) = self.places.get(index) else { return &[] };
        let start = start as usize;
        self.bytes.get(start..start + length as usize).unwrap_or_default()
    }

    /// Returns the range of an argument in the bytes.
    #[inline]
    pub(crate) fn place_of(&self, index: usize) -> Option<Range<usize>> {
        let &(start, length) = self.places.get(index)?;
        Some(start as usize..start as usize + length as usize)
    }

    /// Returns the first argument of the command that follows this one in the buffer, if it has arrived and begins
    /// as this one does: `length` is the number of bytes of this one. Commands of a pipeline usually do.
    #[inline]
    pub(crate) fn key_of_next(&self, length: usize) -> Option<&'b [u8]> {
        let &(name_start, name_length) = self.places.first()?;
        // The header, the name and its line break, and the `$` of the next argument.
        let prefix = (name_start + name_length) as usize + 3;
        let next = self.bytes.get(length..)?;
        if next.get(..prefix)? != self.bytes.get(..prefix)? {
            return None;
        }
        let (length, start) = number(next, prefix, FrameError::LengthTooBig, FrameError::Length).ok()??;
        next.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }

    /// Iterates over the arguments from this index on.
    pub(crate) fn from(self, index: usize) -> impl Iterator<Item = &'b [u8]> {
        (index..self.len()).map(move |index| self.get(index))
    }

    /// Whether an argument equals this word, ignoring case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}
