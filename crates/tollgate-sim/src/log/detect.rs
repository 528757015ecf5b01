//! Detects the format of a log by its first lines.

use std::io;

use super::batch::Batch;
use super::csv::{Csv, HeaderError};
use super::fields::{Field, Fields};
use super::json::Json;
use super::lines::Lines;
use super::options::{Format, ReadOptions};
use super::time::Times;
use super::{combined, text};

/// The most lines that are probed before a log is rejected.
const MAX_PROBED_LINES: usize = 1_000;

/// A parser of one format.
#[derive(Debug)]
pub(super) enum Parser {
    Combined,
    Json(Box<Json>),
    Csv(Box<Csv>),
}

impl Parser {
    /// Creates a parser for the format of the first lines. `None` if there are no lines.
    pub(super) fn find(lines: &Lines, reading: &ReadOptions, times: &mut Times) -> io::Result<Option<Self>> {
        let Some(first) = lines.ahead().next() else { return Ok(None) };
        let fields = &reading.fields;
        let parser = match reading.format {
            Some(Format::Combined) => Self::Combined,
            Some(Format::Json) => Self::json(fields),
            Some(Format::Csv) => {
                Self::csv(first, fields, times).map_err(|error| wrong(&header_text(&error)))?
            }
            None => Self::look(lines, first, fields, times)?,
        };
        match parser {
            Self::Combined if !fields.is_empty() => Err(wrong(
                "is a log of nginx or Apache, whose fields have their places: leave out `--field`, which is for JSON and CSV",
            )),
            parser => Ok(Some(parser)),
        }
    }

    fn look(lines: &Lines, first: &[u8], fields: &Fields, times: &mut Times) -> io::Result<Self> {
        let mut json = Json::new(fields);
        let (mut batch, mut object) = (Batch::default(), None);
        for line in lines.ahead().take(MAX_PROBED_LINES) {
            batch.clear();
            if combined::read(line, times, &mut batch) {
                return Ok(Self::Combined);
            }
            batch.abandon();
            if line.trim_ascii_start().first() == Some(&b'{') {
                if json.read(line, times, &mut batch) {
                    return Ok(Self::json(fields));
                }
                if object.is_none() && Json::is_object(line) {
                    object = Some(line);
                }
            }
        }
        if let Some(object) = object {
            let what =
                if fields.names(&Field::Time) { "the field that was named for it" } else { "any known name" };
            return Err(wrong(&format!(
                "is JSON, but has no readable time under {what}: say which field it is, as in `--field time=@timestamp`; \
                 one of its lines is: {}",
                text::sample(object)
            )));
        }
        let unknown = || {
            wrong(&format!(
                "is no log that can be read. Its first line is: {}\n  \
                 = help: there are combined and common (nginx, Apache), json (an object a line) and csv (with names in the \
                 first line, or `--field time=1 --field ip=2`); `--format` says which, `--field` which field is what",
                text::sample(first)
            ))
        };
        match Self::csv(first, fields, times) {
            Ok(csv) => Ok(csv),
            // `--field` was given and the log is not JSON, so it must be a CSV file without that column.
            Err(error @ HeaderError::NoColumn(..)) => Err(wrong(&header_text(&error))),
            Err(HeaderError::NoTime(_)) => Err(unknown()),
        }
    }

    fn json(fields: &Fields) -> Self {
        Self::Json(Box::new(Json::new(fields)))
    }

    fn csv(first: &[u8], fields: &Fields, times: &mut Times) -> Result<Self, HeaderError> {
        Csv::new(first, fields, times).map(|csv| Self::Csv(Box::new(csv)))
    }

    /// Reads a line into a batch. Returns `false` and leaves the batch unchanged if the line is not a request.
    pub(super) fn read(&mut self, line: &[u8], times: &mut Times, batch: &mut Batch) -> bool {
        let is_request = match self {
            Self::Combined => combined::read(line, times, batch),
            Self::Json(json) => json.read(line, times, batch),
            Self::Csv(csv) => csv.read(line, times, batch),
        };
        if !is_request {
            batch.abandon();
        }
        is_request
    }
}

fn header_text(error: &HeaderError) -> String {
    let shown = |columns: &String| text::sample(columns.as_bytes());
    match error {
        HeaderError::NoTime(columns) => format!(
            "has no column that is known to be the time: say which one is, by name or by number, as in \
             `--field time=1`; the first line is: {}",
            shown(columns)
        ),
        HeaderError::NoColumn(name, columns) => {
            format!("has no column `{name}`; the first line is: {}", shown(columns))
        }
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}
