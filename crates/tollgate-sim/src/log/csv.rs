//! Reads CSV with commas, semicolons or tabs (RFC 4180). Columns are identified by the header or by number.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::batch::Batch;
use super::fields::Fields;
use super::row::{FieldName, Row};
use super::time::Times;

/// Supported delimiters.
const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// A parser of CSV rows.
#[derive(Debug)]
pub(super) struct Csv {
    delimiter: u8,
    /// For each column, the fields that it supplies.
    columns: Vec<Vec<FieldName>>,
    row: Row,
    has_header: bool,
}

/// Reason why a header is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// No column is known as the time. Holds the header.
    NoTime(String),
    /// `--field` names a column that the header does not have. Holds the column and the header.
    NoColumn(String, String),
}

impl Csv {
    /// Creates a parser for a file with this first line, which is the header unless columns are numbered.
    pub(super) fn new(first: &[u8], fields: &Fields, times: &mut Times) -> Result<Self, HeaderError> {
        if fields.are_numbers() {
            Ok(Self::numbered(first, fields, times))
        } else {
            Self::named(first, fields)
        }
    }

    fn named(first: &[u8], fields: &Fields) -> Result<Self, HeaderError> {
        let headers = DELIMITERS.map(|delimiter| (delimiter, names(first, delimiter)));
        let Some((delimiter, header)) = headers.into_iter().max_by_key(|(_, names)| names.len()) else {
            return Err(HeaderError::NoTime(String::new()));
        };
        let missing = fields.chosen().find(|it| !header.iter().any(|name| it.eq_ignore_ascii_case(name)));
        if let Some(missing) = missing {
            return Err(HeaderError::NoColumn(missing.to_owned(), header.join(", ")));
        }
        let (row, wanted) = Row::new(fields);
        let of = |name: &String| {
            wanted.iter().filter(|it| it.name.eq_ignore_ascii_case(name)).cloned().collect::<Vec<_>>()
        };
        let columns: Vec<_> = header.iter().map(of).collect();
        if !columns.iter().flatten().any(|it| row.is_time(it)) {
            return Err(HeaderError::NoTime(header.join(", ")));
        }
        Ok(Self { delimiter, columns, row, has_header: true })
    }

    fn numbered(first: &[u8], fields: &Fields, times: &mut Times) -> Self {
        let delimiter = DELIMITERS.into_iter().max_by_key(|delimiter| {
            // Prefer the comma if delimiters occur equally often.
            (names(first, *delimiter).len(), *delimiter == b',')
        });
        let delimiter = delimiter.unwrap_or(b',');
        let (row, wanted) = Row::new(fields);
        let mut columns = Vec::new();
        for wanted in wanted {
            let Some(index) = wanted.name.parse::<usize>().ok().and_then(|number| number.checked_sub(1))
            else {
                continue;
            };
            // A row cannot have more columns than a line has bytes.
            if index < super::lines::MAX_LINE_BYTES {
                columns.resize(columns.len().max(index + 1), Vec::new());
                columns[index].push(wanted);
            }
        }
        let mut csv = Self { delimiter, columns, row, has_header: false };
        csv.has_header = !csv.read(first, times, &mut Batch::default());
        csv
    }

    /// Whether the first line is a header.
    pub(super) fn has_header(&self) -> bool {
        self.has_header
    }

    pub(super) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Reads a row into a batch. Returns `false` and leaves the batch unchanged if the row is not a request.
    pub(super) fn read(&mut self, line: &[u8], times: &mut Times, batch: &mut Batch) -> bool {
        self.row.clear();
        let mut columns = self.columns.iter();
        each(line, self.delimiter, |value| {
            let Some(wanted) = columns.next() else { return ControlFlow::Break(()) };
            for wanted in wanted {
                self.row.offer(wanted, &value);
            }
            ControlFlow::Continue(())
        });
        self.row.finish(times, batch)
    }
}

/// Returns the end of the row that starts at the first byte: the first newline outside quotes. `None` if it is not
/// within these bytes.
pub(super) fn row_end(bytes: &[u8], delimiter: u8) -> Option<usize> {
    let newline = memchr::memchr(b'\n', bytes);
    let first_line = &bytes[..newline.unwrap_or(bytes.len())];
    if memchr::memchr(b'"', first_line).is_none() {
        return newline;
    }
    let (mut at, mut is_start, mut is_quoted) = (0, true, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' if is_quoted && bytes.get(at + 1) == Some(&b'"') => at += 1,
            b'"' if is_quoted => is_quoted = false,
            b'"' if is_start => is_quoted = true,
            b'\n' if !is_quoted => return Some(at),
            _ => {}
        }
        is_start = byte == delimiter && !is_quoted;
        at += 1;
    }
    None
}

/// Returns the columns of the first line as text.
fn names(line: &[u8], delimiter: u8) -> Vec<String> {
    let mut names = Vec::new();
    each(line, delimiter, |value| {
        names.push(String::from_utf8_lossy(value.trim_ascii()).into_owned());
        ControlFlow::Continue(())
    });
    names
}

/// Calls `take` with each column of a row, without quotes.
fn each(line: &[u8], delimiter: u8, mut take: impl FnMut(Cow<'_, [u8]>) -> ControlFlow<()>) {
    let mut rest = Some(line);
    while let Some(line) = rest {
        let (value, behind) = match line {
            [b'"', quoted @ ..] => unquoted(quoted),
            _ => (Cow::Borrowed(&b""[..]), line),
        };
        let end = memchr::memchr(delimiter, behind);
        // Text after a closing quote belongs to the same column.
        let tail = &behind[..end.unwrap_or(behind.len())];
        let value = match (value.is_empty(), tail.is_empty()) {
            (_, true) => value,
            (true, false) => Cow::Borrowed(tail),
            (false, false) => Cow::Owned([&*value, tail].concat()),
        };
        if take(value).is_break() {
            return;
        }
        rest = end.map(|end| &behind[end + 1..]);
    }
}

/// Returns the text before the closing quote, and the text after it. Two quotes are an escaped quote.
fn unquoted(text: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    let mut value = Cow::Borrowed(&text[..0]);
    let mut from = 0;
    while let Some(found) = memchr::memchr(b'"', &text[from..]) {
        let quote = from + found;
        let is_doubled = text.get(quote + 1) == Some(&b'"');
        let part = &text[from..quote + usize::from(is_doubled)];
        if value.is_empty() {
            value = Cow::Borrowed(part);
        } else {
            value.to_mut().extend_from_slice(part);
        }
        if !is_doubled {
            return (value, &text[quote + 1..]);
        }
        from = quote + 2;
    }
    // Without a closing quote, the value is the rest of the line.
    value.to_mut().extend_from_slice(&text[from..]);
    (value, b"")
}
