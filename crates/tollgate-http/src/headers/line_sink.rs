//! Header lines of HTTP/1.1, at the end of a buffer.

use http::HeaderValue;

use super::header_sink::{FieldName, HeaderSink};

/// Appends headers as lines. As in a map, the last value of a name counts.
pub(crate) struct LineSink<'o> {
    out: &'o mut Vec<u8>,
    /// The offset of the first line.
    first: usize,
    /// The offsets of the current line and of its value.
    line: usize,
    value: usize,
    lengths: NameLengths,
    /// The marks of the names so far.
    marks: u64,
}

/// The lengths of names, as a set: most names differ from all others by their length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameLengths(u64);

impl NameLengths {
    fn insert(&mut self, length: usize) {
        self.0 |= 1 << (length % 64);
    }

    /// Whether a name of this length may be among the names.
    pub(crate) const fn may_contain(self, length: usize) -> bool {
        self.0 & 1 << (length % 64) != 0
    }
}

impl<'o> LineSink<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        let end = out.len();
        Self { out, first: end, line: end, value: end, lengths: NameLengths::default(), marks: 0 }
    }

    /// Returns the lengths of the names that were written.
    pub(crate) const fn lengths(&self) -> NameLengths {
        self.lengths
    }

    /// Removes the line of a name, if there is one.
    #[cold]
    fn remove(&mut self, name: &str) {
        if let Some(place) = find_line(&self.out[self.first..], name) {
            self.out.drain(self.first + place.start..self.first + place.end);
        }
    }
}

/// Returns the place of the line of a name, in any case, among complete lines.
pub(crate) fn find_line(lines: &[u8], name: &str) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let end = start + line.len();
        if line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name.as_bytes()) {
            return Some(start..end);
        }
        start = end;
    }
    None
}

impl HeaderSink for LineSink<'_> {
    #[inline]
    fn start(&mut self, name: &'static FieldName) {
        if self.marks & name.mark() != 0 {
            self.remove(name.name.as_str());
        }
        self.marks |= name.mark();
        self.line = self.out.len();
        name.write(self.out);
        self.value = self.out.len();
    }

    #[inline]
    fn end(&mut self) {
        if self.is_blank() {
            self.out.truncate(self.line);
        } else {
            self.lengths.insert(self.value - self.line - 2);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    #[inline]
    fn add(&mut self, name: &'static FieldName, value: &HeaderValue) {
        self.bytes_for(name, value.as_bytes());
    }

    #[inline]
    fn text(&mut self) -> &mut Vec<u8> {
        self.out
    }

    #[inline]
    fn is_blank(&self) -> bool {
        self.out.len() == self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static A: FieldName = FieldName::new("x-a: ");
    static B: FieldName = FieldName::new("x-b: ");

    #[test]
    fn the_last_value_of_a_name_counts_and_an_empty_one_is_no_header() {
        let mut out = b"x-a: of another response\r\n".to_vec();
        let mut sink = LineSink::new(&mut out);
        sink.number_for(&A, 1);
        sink.text_for(&B, "");
        sink.number_for(&B, 2);
        sink.number_for(&A, 3);
        assert!(sink.lengths().may_contain("x-c".len()) && !sink.lengths().may_contain("date".len()));
        assert_eq!(out, b"x-a: of another response\r\nx-b: 2\r\nx-a: 3\r\n");
    }

    #[test]
    fn a_line_is_found_by_its_name_in_any_case() {
        let lines = b"x-a: x-b: 1\r\nx-b: 2\r\n";
        assert_eq!(find_line(lines, "X-B"), Some(13..21));
        assert_eq!(find_line(lines, "x"), None);
        assert_eq!(find_line(b"", "x-a"), None);
    }
}
