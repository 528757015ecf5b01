//! Parses query parameters.
//!
//! The parser is strict, because ignoring a misspelled parameter would return a different result than
//! requested.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tollgate::Timestamp;
use tollgate_document::{nearest, parse_span};

use crate::body::{listed, quoted};
use crate::problem::Problem;

/// The parameters of a query, all with known names.
pub(crate) struct Query<'q>(Vec<(&'static str, Cow<'q, str>)>);

impl<'q> Query<'q> {
    /// Parses a query with these parameters.
    pub(crate) fn of(query: Option<&'q str>, known: &[&'static str]) -> Result<Self, Problem> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &'q str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name);
            match known.iter().find(|known| **known == name) {
                Some(known) => Ok((*known, decoded(value))),
                None => Err(unknown(&name, known)),
            }
        };
        pairs.map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Fails if the query has parameters.
    pub(crate) fn none(query: Option<&'q str>) -> Result<(), Problem> {
        Self::of(query, &[]).map(drop)
    }

    /// Returns a parameter that may be given once.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.all(name);
        let first = values.next();
        match values.next() {
            Some(_) => Err(Problem::bad_request(format!("`{name}` is given twice; give it once"))),
            None => Ok(first),
        }
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Returns an integer from `least` to `most`.
    pub(crate) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        let Some(value) = self.one(name)? else { return Ok(None) };
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { value.parse().ok() } else { None };
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(Problem::bad_request(format!(
                "`{name}` must be a whole number from {least} to {most}, such as `{name}={}`, not `{}`",
                most.min(20),
                quoted(value)
            ))),
        }
    }

    /// Returns `true` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Problem::bad_request(format!(
                "`{name}` must be `true` or `false`, not `{}`",
                quoted(other)
            ))),
        }
    }
}

/// Returns a point in time: a date, or how long ago, such as `2h`.
pub(crate) fn point_in_time(
    query: &Query<'_>,
    name: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = query.one(name)? else { return Ok(None) };
    if let Ok(span) = parse_span(text) {
        return Ok(Some(now.before(span)));
    }
    let date = text.parse::<jiff::Timestamp>().ok().and_then(|it| u64::try_from(it.as_microsecond()).ok());
    date.map(|micros| Some(Timestamp::from_micros(micros))).ok_or_else(|| {
        Problem::bad_request(format!(
            "`{name}` must say how long ago, such as `{name}=2h`, or be a date such as \
             `{name}=2026-11-17T09:00:00Z`, not `{}`",
            quoted(text)
        ))
    })
}

fn unknown(name: &str, known: &[&'static str]) -> Problem {
    let meant = nearest(name, known.iter().copied());
    let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    let there = match known {
        [] => "there are none here".to_owned(),
        [only] => format!("there is `{only}`"),
        several => format!("there are {}", listed(several)),
    };
    Problem::bad_request(format!("unknown parameter `{}`; {meant}{there}", quoted(name)))
}

/// Decodes percent escapes, and `+` as a space. Invalid UTF-8 is left encoded.
fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains('+') { unescaped(&text.replace('+', " ")).into_owned().into() } else { unescaped(text) }
}

/// Decodes percent escapes. Invalid UTF-8 is left encoded.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text))
}
