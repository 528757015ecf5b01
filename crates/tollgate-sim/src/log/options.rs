//! Inputs and options of reading logs: formats, fields, order.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use jiff::tz::TimeZone;

use super::fields::Fields;

/// A file or pipe to read.
pub struct Input {
    pub(super) name: String,
    pub(super) reader: Box<dyn Read + Send>,
}

impl Input {
    /// Creates an input with the name that error messages use. Compression with gzip or zstd is detected from the
    /// content.
    pub fn new(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self { name: name.into(), reader: Box::new(reader) }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Format of the lines of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The format of nginx and Apache, with or without referer and user agent, and with or without a leading host.
    Combined,
    /// One JSON object per line.
    Json,
    /// Columns, by the names of the header or by their numbers.
    Csv,
}

impl Format {
    /// Names that [`Format::from_str`] accepts.
    pub const NAMES: [&'static str; 4] = ["combined", "common", "json", "csv"];
}

/// Error for an unknown format name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no format of a log: there are combined, common, json and csv")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "combined" | "common" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            _ => Err(UnknownFormat(name.to_owned())),
        }
    }
}

/// Error for an unknown time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no time zone: write one as Europe/Berlin, UTC or +02:00")]
pub struct UnknownTimezone(String);

/// Default number of lines that each input may hold back for sorting.
const DEFAULT_REORDER_LINES: usize = 100_000;

/// Default number of lines that all inputs together hold back: a hundred rotated files take no more memory than four.
const DEFAULT_TOTAL_REORDER_LINES: usize = 4 * DEFAULT_REORDER_LINES;

/// Options of reading logs. By default the format is detected.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    pub(super) format: Option<Format>,
    pub(super) fields: Fields,
    pub(super) zone: TimeZone,
    reorder: Option<usize>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { format: None, fields: Fields::default(), zone: TimeZone::UTC, reorder: None }
    }
}

impl ReadOptions {
    /// Sets the format and disables detection.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Sets field names of JSON and CSV, in addition to the well-known ones.
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Sets the number of lines that each input holds back to sort late lines. The default is 100,000 per input, and
    /// 400,000 in total with more than four inputs.
    #[must_use]
    pub fn reorder(mut self, lines: usize) -> Self {
        self.reorder = Some(lines);
        self
    }

    /// Sets the zone of times that do not state one: `Europe/Berlin`, `UTC`, `+02:00`. The default is UTC.
    pub fn timezone(mut self, name: &str) -> Result<Self, UnknownTimezone> {
        self.zone = zone(name).ok_or_else(|| UnknownTimezone(name.to_owned()))?;
        Ok(self)
    }

    /// Returns the number of lines that each of so many inputs may hold back.
    pub(super) fn held_back(&self, inputs: usize) -> usize {
        self.reorder.unwrap_or_else(|| {
            DEFAULT_REORDER_LINES.min(DEFAULT_TOTAL_REORDER_LINES / inputs.max(1)).max(1_000)
        })
    }
}

fn zone(name: &str) -> Option<TimeZone> {
    if let Some(seconds) = super::time::offset(name.as_bytes()) {
        return jiff::tz::Offset::from_seconds(seconds).ok().map(TimeZone::fixed);
    }
    TimeZone::get(name).ok()
}
