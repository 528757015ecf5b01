//! Splits bytes into lines, in a buffer of bounded size.
//!
//! A line that is too long is reported and dropped. Lines may end in CRLF, the last line end may be missing, and the
//! first line may start with a byte order mark. NULs around a line are ignored: a file that was truncated while a
//! server wrote to it starts with a hole.

use std::io::{self, Read};

use super::csv;
use super::source::Source;

/// The most bytes of a line.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// The most bytes of a CSV row that spans several lines. A quote without a closing quote within this length is
/// literal.
const MAX_ROW_BYTES: usize = 64 << 10;

/// Bytes that are read at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// A line without its line end.
    Whole(&'l [u8]),
    TooLong,
}

/// The lines of a source.
pub(super) struct Lines {
    source: Source,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_over: bool,
    number: u64,
    /// The CSV delimiter, if lines are CSV rows.
    delimiter: Option<u8>,
}

impl Lines {
    /// Reads the first block.
    pub(super) fn new(source: Source) -> io::Result<Self> {
        let buffer = vec![0; BLOCK_BYTES];
        let (start, end) = (0, 0);
        let mut lines = Self { source, buffer, start, end, is_over: false, number: 0, delimiter: None };
        while !lines.is_over && lines.end - lines.start < BLOCK_BYTES {
            lines.fill()?;
            lines.skip_nuls();
        }
        if lines.buffer[lines.start..lines.end].starts_with(b"\xef\xbb\xbf") {
            lines.start += 3;
        }
        Ok(lines)
    }

    /// Treats lines as CSV rows, in which a quoted line end does not end the row.
    pub(super) fn are_rows(&mut self, delimiter: u8) {
        self.delimiter = Some(delimiter);
    }

    /// Returns the number of the last line, starting at 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the bytes that were read of the input so far.
    pub(super) fn taken(&self) -> u64 {
        self.source.taken()
    }

    /// Returns the lines in the buffer without consuming them.
    pub(super) fn ahead(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = &self.buffer[self.start..self.end];
        let whole = match memchr::memrchr(b'\n', bytes) {
            Some(last) if !self.is_over => &bytes[..last],
            _ => bytes,
        };
        whole.split(|byte| *byte == b'\n').map(trimmed).filter(|line| !line.is_empty())
    }

    /// Returns the next line that is not empty.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let Some((start, end)) = self.cut()? else { return Ok(None) };
            if end - start > MAX_LINE_BYTES {
                return Ok(Some(Line::TooLong));
            }
            if !trimmed(&self.buffer[start..end]).is_empty() {
                return Ok(Some(Line::Whole(trimmed(&self.buffer[start..end]))));
            }
        }
    }

    /// Returns the bounds of the next line. A line that is too long is skipped, and its bounds are further apart than
    /// the maximum.
    fn cut(&mut self) -> io::Result<Option<(usize, usize)>> {
        // Bytes that were searched already and contain no line end.
        let mut seen = 0;
        loop {
            if seen == 0 {
                self.skip_nuls();
            }
            let bytes = &self.buffer[self.start..self.end];
            if let Some(end) = memchr::memchr(b'\n', &bytes[seen..]).map(|at| at + seen) {
                let end = match self.row(end) {
                    Row::Ends(end) => end,
                    Row::NeedsMore => {
                        self.fill()?;
                        continue;
                    }
                };
                let newlines = memchr::memchr_iter(b'\n', &self.buffer[self.start..self.start + end]).count();
                let start = self.start;
                self.start += end + 1;
                self.number += newlines as u64 + 1;
                return Ok(Some((start, start + end)));
            }
            seen = bytes.len();
            if seen > MAX_LINE_BYTES {
                self.drop_line()?;
                return Ok(Some((0, usize::MAX)));
            }
            if self.is_over {
                if seen == 0 {
                    return Ok(None);
                }
                let bounds = (self.start, self.end);
                self.start = self.end;
                self.number += 1;
                return Ok(Some(bounds));
            }
            self.fill()?;
        }
    }

    /// Returns the end of the row whose first line ends at `newline`.
    fn row(&self, newline: usize) -> Row {
        let Some(delimiter) = self.delimiter else { return Row::Ends(newline) };
        let bytes = &self.buffer[self.start..self.end];
        let bytes = &bytes[..bytes.len().min(MAX_ROW_BYTES)];
        match csv::row_end(bytes, delimiter) {
            Some(end) => Row::Ends(end),
            None if bytes.len() < MAX_ROW_BYTES && !self.is_over => Row::NeedsMore,
            None => Row::Ends(newline),
        }
    }

    /// Skips NULs at the start of a line.
    fn skip_nuls(&mut self) {
        let bytes = &self.buffer[self.start..self.end];
        if bytes.first() == Some(&0) {
            self.start += bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        }
    }

    /// Skips the rest of the line.
    fn drop_line(&mut self) -> io::Result<()> {
        self.number += 1;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += end + 1;
                return Ok(());
            }
            self.start = self.end;
            if self.is_over {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Reads a block after the buffered bytes, after moving them to the front.
    fn fill(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        let count = self.source.read(&mut self.buffer[self.end..])?;
        self.end += count;
        self.is_over = count == 0;
        Ok(())
    }
}

enum Row {
    Ends(usize),
    NeedsMore,
}

/// Removes the line end.
fn trimmed(line: &[u8]) -> &[u8] {
    let is_part = |byte: &u8| !matches!(byte, b'\r' | 0);
    let Some(last) = line.iter().rposition(is_part) else { return b"" };
    let first = line.iter().position(|byte| *byte != 0).unwrap_or(0);
    &line[first..=last]
}
