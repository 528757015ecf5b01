//! Commands out of bytes: arrays of bulk strings, and lines as people type them.
//!
//! Nothing is copied out of an array: an argument is a place in the buffer. What was read of a frame is
//! remembered, so that a frame in a thousand pieces is not read a thousand times.
//!
//! Not here: the buffer itself. What a client announces costs nothing: only what arrives does.
//!
//! Invariant: however the bytes are cut, the same commands come out. Held by `frame::fuzz`.

#[cfg(test)]
mod fuzz;

use std::fmt;

use crate::inline;

/// The most arguments of a command.
const MAX_ARGUMENTS: usize = 128;
/// The most bytes of an argument.
const MAX_BULK_BYTES: usize = 64 * 1024;
/// The most bytes of a command that comes as a line.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The most bytes of a command.
const MAX_FRAME_BYTES: usize = 128 * 1024;
/// The most digits of a number, with its sign.
const MAX_DIGITS: usize = 21;
/// What those may send who have yet to say who they are.
const MAX_UNAUTHENTICATED_ARGUMENTS: usize = 10;
const MAX_UNAUTHENTICATED_BULK_BYTES: usize = 4 * 1024;
const MAX_UNAUTHENTICATED_FRAME_BYTES: usize = 8 * 1024;

/// What is not this protocol. The connection is closed after it, as Redis does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// A line without an end.
    InlineTooBig,
    /// Quotes that nobody closes.
    UnbalancedQuotes,
    /// A number of arguments without an end.
    CountTooBig,
    /// A number of arguments that is none, or too large.
    Count,
    /// More arguments than are taken from those who have not given the password.
    CountOfStranger,
    /// A length without an end.
    LengthTooBig,
    /// A length that is none, too large, or not true.
    Length,
    /// A longer argument than is taken from those who have not given the password.
    LengthOfStranger,
    /// Something else than a bulk string in an array.
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
            Self::CountOfStranger => "unauthenticated multibulk length",
            Self::LengthTooBig => "too big bulk count string",
            Self::Length => "invalid bulk length",
            Self::LengthOfStranger => "unauthenticated bulk length",
            Self::NotABulk(byte) => return write!(f, "expected '$', got '{}'", shown(*byte)),
            Self::FrameTooBig => "too big request",
        })
    }
}

/// What can be shown of a byte.
const fn shown(byte: u8) -> char {
    if byte.is_ascii_graphic() { byte as char } else { ' ' }
}

/// What the next bytes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More is needed.
    Incomplete,
    /// A command, and how many bytes it took.
    Command(usize),
    /// Nothing at all, in so many bytes: an empty line, an empty array.
    Nothing(usize),
}

/// Reads commands, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// How much of the frame was read.
    at: usize,
    /// How many arguments the array still has, once that is known.
    left: Option<usize>,
    /// The length of the next argument, once that is known.
    bulk: Option<usize>,
    /// Where arguments begin, and their lengths.
    words: Vec<(u32, u32)>,
    /// The arguments of a line, one after the other.
    line: Vec<u8>,
    is_line: bool,
    /// The last frame was complete: the next call begins another one.
    is_done: bool,
}

impl Frames {
    /// Reads on in the frame that begins at the first of these bytes. The same bytes, and more,
    /// are to be given until it is complete.
    pub(crate) fn next(&mut self, bytes: &[u8], is_stranger: bool) -> Result<Step, FrameError> {
        if std::mem::take(&mut self.is_done) {
            self.begin();
        }
        let step = match (self.left, bytes.first()) {
            (_, None) => Step::Incomplete,
            (None, Some(b'*')) => match self.count(bytes, is_stranger)? {
                Step::Command(_) => self.arguments(bytes, is_stranger)?,
                other => other,
            },
            (None, Some(_)) => self.line(bytes, is_stranger)?,
            (Some(_), Some(_)) => self.arguments(bytes, is_stranger)?,
        };
        self.is_done = step != Step::Incomplete;
        Ok(step)
    }

    fn begin(&mut self) {
        (self.at, self.left, self.bulk, self.is_line) = (0, None, None, false);
        self.words.clear();
        self.line.clear();
    }

    /// Whether a frame has begun and is not complete.
    pub(crate) fn is_midway(&self) -> bool {
        !self.is_done && self.at > 0
    }

    /// Gives memory back that a large command needed.
    pub(crate) fn rest(&mut self) {
        if !self.is_midway() {
            (self.words, self.line) = (Vec::new(), Vec::new());
        }
    }

    /// The arguments of the command that was just read, its name first.
    pub(crate) fn words<'b>(&'b self, bytes: &'b [u8]) -> Words<'b> {
        Words::new(&self.words, if self.is_line { &self.line } else { bytes })
    }

    fn count(&mut self, bytes: &[u8], is_stranger: bool) -> Result<Step, FrameError> {
        let Some((count, end)) = number(bytes, 1, FrameError::CountTooBig, FrameError::Count)? else {
            return Ok(Step::Incomplete);
        };
        let Ok(count) = usize::try_from(count) else { return Ok(Step::Nothing(end)) };
        match count {
            0 => return Ok(Step::Nothing(end)),
            _ if is_stranger && count > MAX_UNAUTHENTICATED_ARGUMENTS => {
                return Err(FrameError::CountOfStranger);
            }
            _ if count > MAX_ARGUMENTS => return Err(FrameError::Count),
            _ => {}
        }
        (self.left, self.at) = (Some(count), end);
        Ok(Step::Command(end))
    }

    fn arguments(&mut self, bytes: &[u8], is_stranger: bool) -> Result<Step, FrameError> {
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
                        if is_stranger && length > MAX_UNAUTHENTICATED_BULK_BYTES {
                            return Err(FrameError::LengthOfStranger);
                        }
                        if length > MAX_BULK_BYTES {
                            return Err(FrameError::Length);
                        }
                        if end + length
                            > if is_stranger { MAX_UNAUTHENTICATED_FRAME_BYTES } else { MAX_FRAME_BYTES }
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
                // The length was not true.
                Some(_) => return Err(FrameError::Length),
            }
            self.push(self.at, length);
            (self.at, self.bulk) = (end + 2, None);
            left -= 1;
        }
        self.left = Some(left);
        Ok(if left == 0 { Step::Command(self.at) } else { Step::Incomplete })
    }

    fn line(&mut self, bytes: &[u8], is_stranger: bool) -> Result<Step, FrameError> {
        let most = if is_stranger { MAX_UNAUTHENTICATED_FRAME_BYTES } else { MAX_LINE_BYTES };
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

/// The number that stands here, up to the end of its line, and where the next line begins.
/// `None`: more is needed.
fn number(
    bytes: &[u8],
    from: usize,
    endless: FrameError,
    wrong: FrameError,
) -> Result<Option<(i64, usize)>, FrameError> {
    let rest = bytes.get(from..).unwrap_or_default();
    // Nearly all are short.
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

/// A whole number as Redis reads them: digits and perhaps a minus, nothing else.
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
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        // Downwards, where there is one more.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if is_negative { Some(number) } else { number.checked_neg() }
}

/// The arguments of a command, its name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'b> {
    places: &'b [(u32, u32)],
    bytes: &'b [u8],
}

impl<'b> Words<'b> {
    /// Words at these places in these bytes.
    pub(crate) const fn new(places: &'b [(u32, u32)], bytes: &'b [u8]) -> Self {
        Self { places, bytes }
    }

    /// Where a word begins, and its length. Both are far below what fits.
    #[inline]
    pub(crate) fn place(start: usize, length: usize) -> (u32, u32) {
        (u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(length).unwrap_or(0))
    }

    /// How many there are, the name included.
    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    /// One of them; empty if there are not as many.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &'b [u8] {
        let Some(&(start, length)) = self.places.get(index) else { return &[] };
        let start = start as usize;
        self.bytes.get(start..start + length as usize).unwrap_or_default()
    }

    /// All from this one on.
    pub(crate) fn from(self, index: usize) -> impl Iterator<Item = &'b [u8]> {
        (index..self.len()).map(move |index| self.get(index))
    }

    /// Whether one of them is this word, in whatever case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}
