//! Searches for records by time, limit and key, the latest first, in pages.
//!
//! A page is bounded in records and in the bytes that are searched for it, so a search for a rare key
//! returns short pages, each with the position at which the next one continues.

use std::fmt;
use std::str::FromStr;

use tollgate::Timestamp;
use tollgate_telemetry::Record;

/// The conditions of a search. All that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery {
    /// The earliest time.
    pub since: Option<Timestamp>,
    /// The latest time.
    pub until: Option<Timestamp>,
    /// The name of the limiting limit.
    pub limit: Option<String>,
    /// The key of any limit as it is shown, its tag, or the address of the client.
    pub key: Option<String>,
    /// Whether only refusals are returned.
    pub refused: bool,
    /// The position at which an earlier page ended.
    pub before: Option<Cursor>,
    /// The maximum number of records in the page.
    pub most: usize,
}

/// A page of records, the latest first.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// The records.
    pub records: Vec<Record>,
    /// The position at which the next page continues; `None` if there are no more records.
    pub next: Option<Cursor>,
}

/// A position in a decision log. Its text is stable as long as the segment exists.
///
/// ```
/// # use tollgate_records::Cursor;
/// let cursor: Cursor = "7-1024".parse()?;
/// assert_eq!(cursor.to_string(), "7-1024");
/// assert!("7".parse::<Cursor>().is_err());
/// # Ok::<(), tollgate_records::ParseCursorError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// Error returned when a text is not the position of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position is two numbers such as 7-1024, from the `next` of a page")]
pub struct ParseCursorError;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.segment, self.offset)
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let (segment, offset) = text
            .split_once('-')
            .filter(|(left, right)| digits(left) && digits(right))
            .ok_or(ParseCursorError)?;
        let number = |part: &str| part.parse().map_err(|_| ParseCursorError);
        Ok(Self { segment: number(segment)?, offset: number(offset)? })
    }
}

impl RecordQuery {
    /// Whether a segment with records of these times may have matches.
    pub(crate) fn may_match(&self, oldest: Timestamp, newest: Timestamp) -> bool {
        self.since.is_none_or(|since| newest >= since) && self.until.is_none_or(|until| oldest <= until)
    }

    /// Whether a record of this time may match.
    pub(crate) fn covers(&self, at: Timestamp) -> bool {
        self.may_match(at, at)
    }

    /// Whether a record matches.
    pub fn matches(&self, record: &Record) -> bool {
        self.covers(record.at)
            && !(self.refused && record.allowed)
            && self.limit.as_deref().is_none_or(|name| record.limit.as_deref() == Some(name))
            && self.key.as_deref().is_none_or(|key| has_key(record, key))
    }
}

/// Whether a record has a key, as it is shown or by its tag, or comes from this client.
fn has_key(record: &Record, key: &str) -> bool {
    let tag = (key.len() == 16).then(|| u64::from_str_radix(key, 16).ok()).flatten();
    record.client.as_deref() == Some(key)
        || (tag.is_some() && record.tag == tag)
        || record.limits.iter().any(|it| *it.key == *key || tag == Some(it.tag))
}
