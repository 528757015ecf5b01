//! Bytes cut into lines, in a buffer of bounded size.
//!
//! A line that is too long is told of, but not held. The ends of lines may be those of Windows, the last one may be
//! missing, the first may have a byte order mark before it. NULs around a line are no part of it: a file that was cut
//! while a server wrote to it begins with a hole.

use std::io::{self, Read};

use super::csv;
use super::source::Source;

/// No server writes longer ones.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// Rows of CSV that go on in the next line may be this long. What opens a quote and does not close it within, means it
/// as it stands.
const MAX_ROW_BYTES: usize = 64 << 10;

/// How much is read before anybody looks.
const BLOCK_BYTES: usize = 256 << 10;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// Without what ends it.
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
    /// What stands between columns, if lines are rows of CSV.
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

    /// Lines may go on behind an end of a line that stands in quotes.
    pub(super) fn are_rows(&mut self, delimiter: u8) {
        self.delimiter = Some(delimiter);
    }

    /// The number of the line that was handed out last, from one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read of the input so far.
    pub(super) fn taken(&self) -> u64 {
        self.source.taken()
    }

    /// The lines that are in the buffer, without taking them.
    pub(super) fn ahead(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = &self.buffer[self.start..self.end];
        let whole = match memchr::memrchr(b'\n', bytes) {
            Some(last) if !self.is_over => &bytes[..last],
            _ => bytes,
        };
        whole.split(|byte| *byte == b'\n').map(trimmed).filter(|line| !line.is_empty())
    }

    /// The next line that is not empty.
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

    /// Where the next line is. One that is too long has gone when this returns, and its bounds are too far apart.
    fn cut(&mut self) -> io::Result<Option<(usize, usize)>> {
        // What was looked at already and has no end in it.
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

    /// Where the row ends whose first line ends here.
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

    /// Moves past NULs at the start of a line, however many there are.
    fn skip_nuls(&mut self) {
        let bytes = &self.buffer[self.start..self.end];
        if bytes.first() == Some(&0) {
            self.start += bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        }
    }

    /// Reads on to the end of the line without keeping it.
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

    /// Reads more behind what is there, and makes room first.
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

/// A line without what ends it.
fn trimmed(line: &[u8]) -> &[u8] {
    let is_part = |byte: &u8| !matches!(byte, b'\r' | 0);
    let Some(last) = line.iter().rposition(is_part) else { return b"" };
    let first = line.iter().position(|byte| *byte != 0).unwrap_or(0);
    &line[first..=last]
}
