//! What is read, and how: inputs, formats, order.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use jiff::tz::TimeZone;

use super::fields::Fields;

/// One file or pipe.
pub struct Input {
    pub(super) name: String,
    pub(super) reader: Box<dyn Read + Send>,
}

impl Input {
    /// What is read, with the name that errors call it by. It may be compressed with gzip or zstd: that is found by
    /// looking.
    pub fn new(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self { name: name.into(), reader: Box::new(reader) }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How the lines of a log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// As nginx and Apache write them, with referer and user agent or without, with or without a host before.
    Combined,
    /// An object a line.
    Json,
    /// Columns, by the names of the first line or by their numbers.
    Csv,
}

impl Format {
    /// What [`Format::from_str`] takes.
    pub const NAMES: [&'static str; 4] = ["combined", "common", "json", "csv"];
}

/// There is no such format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no format of a log: there are combined, common, json and csv", self.0)
    }
}

impl std::error::Error for UnknownFormat {}

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

/// There is no such time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTimezone(String);

impl fmt::Display for UnknownTimezone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no time zone: write one as Europe/Berlin, UTC or +02:00", self.0)
    }
}

impl std::error::Error for UnknownTimezone {}

/// Lines that each input may hold back to put them in order, if nothing else is said.
const DEFAULT_REORDER_LINES: usize = 100_000;

/// Lines that all inputs together hold back, if nothing else is said: a hundred rotated files take no more than four.
const DEFAULT_TOTAL_REORDER_LINES: usize = 4 * DEFAULT_REORDER_LINES;

/// How logs are read. The default finds out by looking.
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
    /// In this format, whatever it looks like.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// With these fields of JSON and CSV, besides those that are known.
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Holds back this many lines of each input, to put in order what came late. Without it: 100,000 of each, and
    /// with more than four inputs 400,000 of all together.
    #[must_use]
    pub fn reorder(mut self, lines: usize) -> Self {
        self.reorder = Some(lines);
        self
    }

    /// Times that do not say their zone are of this one: `Europe/Berlin`, `UTC`, `+02:00`. Without it: UTC.
    pub fn timezone(mut self, name: &str) -> Result<Self, UnknownTimezone> {
        self.zone = zone(name).ok_or_else(|| UnknownTimezone(name.to_owned()))?;
        Ok(self)
    }

    /// Lines that each of so many inputs may hold back.
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
