//! Whole logs, from bytes to requests. The parts have unit tests of their own.

mod formats;
mod hostile;
mod order;
mod packed;

use std::fmt::Write as _;
use std::io;

use tollgate::Request as _;

use super::{Input, Log, ReadOptions, Requests, SkippedLine, Tally};
use crate::Entry;

/// The result of reading a log.
#[derive(Debug)]
struct Read {
    entries: Vec<Entry>,
    tally: Tally,
    skipped: Option<SkippedLine>,
}

fn read(inputs: Vec<Input>, reading: &ReadOptions) -> io::Result<Read> {
    let mut log = Log::open(inputs, reading)?;
    let (mut entries, mut entry) = (Vec::new(), Entry::default());
    while log.next(&mut entry)? {
        entries.push(entry.clone());
    }
    assert!(!log.next(&mut entry)?, "there are no more after the last");
    Ok(Read { entries, tally: log.tally(), skipped: log.first_skipped().cloned() })
}

/// Returns one input with these bytes.
fn one(bytes: impl Into<Vec<u8>>) -> Vec<Input> {
    vec![Input::new("a.log", io::Cursor::new(bytes.into()))]
}

/// Formats all properties of a request in one line.
fn summary(entry: &Entry) -> String {
    let mut text = format!("{} {} {}", entry.at, entry.method(), entry.path());
    if let Some(query) = entry.query() {
        let _ = write!(text, "?{query}");
    }
    let mut say = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(text, " {what}={value}");
        }
    };
    let owned = |value: Option<&str>| value.map(str::to_owned);
    let header = |name: &str| entry.header(name).map(|it| String::from_utf8_lossy(it).into_owned());
    say("ip", entry.client().map(|it| it.to_string()));
    say("host", owned(entry.host()));
    say("user", owned(entry.user()));
    say("key", owned(entry.api_key()));
    say("tenant", owned(entry.tenant()));
    say("plan", owned(entry.plan()));
    say("cost", entry.cost().map(|it| it.to_string()));
    say("status", entry.status.map(|it| it.to_string()));
    say("referer", header("referer"));
    say("agent", header("user-agent"));
    text
}

/// Returns a line of a combined log.
fn line(second: u64, path: &str) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "203.0.113.9 - - [17/May/2015:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
    )
}

/// Start of the day that [`line`] counts from, in microseconds.
const DAY: u64 = 1_431_820_800_000_000;
