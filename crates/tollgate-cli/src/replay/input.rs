//! Opens the logs of a command, and shows the progress of reading them.
//!
//! For `replay` and `simulate`: `input::open(&arguments.logs, &arguments.reading)?` implements
//! `Requests`.
//!
//! Compression, formats and sorting are in `tollgate_sim::log`.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tollgate::{Clock as _, Span, SystemClock, Timestamp};
use tollgate_daemon::Failure;
use tollgate_daemon::configuration::shown;
use tollgate_daemon::io_error::Attempt;
use tollgate_document::sanitize::printable;
use tollgate_sim::Entry;
use tollgate_sim::log::{FieldUsage, Fields, Format, Input, Log, ReadOptions, Requests, SkippedLine, Tally};

use crate::arguments::LogReading;
use crate::output;
use crate::top::number;

/// Parses the flags for reading logs.
fn meant(typed: &LogReading) -> Result<ReadOptions, Failure> {
    let mut reading = ReadOptions::default().fields(Fields::parse(&typed.fields).map_err(Failure::new)?);
    if let Some(format) = &typed.format {
        reading = reading.format(format.parse().map_err(Failure::new)?);
    }
    if let Some(lines) = typed.reorder {
        reading = reading.reorder(lines);
    }
    if let Some(zone) = &typed.timezone {
        reading = reading.timezone(zone).map_err(Failure::new)?;
    }
    Ok(reading)
}

/// Opens all logs before reading any, so that a wrong name fails at once.
pub(crate) fn open(logs: &[PathBuf], typed: &LogReading) -> Result<OpenLogs, Failure> {
    let reading = meant(typed)?;
    let (mut inputs, mut size) = (Vec::with_capacity(logs.len()), Some(0));
    // Compared by inode, because `./a.log` and a link to it are the same log.
    let mut opened: Vec<(u64, u64)> = Vec::new();
    for (index, path) in logs.iter().enumerate() {
        let twice = || {
            Err(Failure::with_help(
                format_args!("{} is given twice", shown(path)),
                "each of its requests would count twice; name it once",
            ))
        };
        if logs[..index].contains(path) {
            return twice();
        }
        let (input, file) = one(path)?;
        let bytes = file.as_ref().map(Metadata::len);
        if let Some(same) = file.map(|file| (file.dev(), file.ino())) {
            if opened.contains(&same) {
                return twice();
            }
            opened.push(same);
        }
        inputs.push(input);
        size = size.zip(bytes).map(|(sum, bytes): (u64, u64)| sum.saturating_add(bytes));
    }
    let log = Log::open(inputs, &reading)
        .map_err(|error| Failure::io("cannot start to read the logs", &error, Attempt::Other))?;
    let is_shown = !typed.quiet && io::stderr().is_terminal();
    Ok(OpenLogs { log, met: FieldUsage::of(&reading), progress: is_shown.then(|| Progress::new(size)) })
}

/// Returns an error if a log has lines but no requests. Otherwise a wrong file would look like a log
/// without refusals.
pub(crate) fn nothing_read(requests: &impl Requests) -> Option<Failure> {
    let Tally { lines, skipped, .. } = requests.tally();
    if lines == 0 || lines > skipped {
        return None;
    }
    let formats = Format::NAMES.join(", ");
    let first = requests.first_skipped().map_or_else(String::new, |skipped| {
        format!("; line {} of {} begins: {}", skipped.line, skipped.input, printable(&skipped.text))
    });
    Some(Failure::with_help(
        format_args!("none of {lines} lines is a request{first}"),
        format_args!(
            "formats are {formats}: name one with `--format`; of JSON and CSV, name the fields too: `--field \
             time=NAME --field ip=NAME`"
        ),
    ))
}

/// Opens an input, with its metadata if it is a file.
fn one(path: &Path) -> Result<(Input, Option<Metadata>), Failure> {
    if path.as_os_str() == "-" {
        return Ok((Input::new("standard input", io::stdin()), None));
    }
    let name = shown(path);
    let cannot = |error| Failure::io(format_args!("cannot read {name}"), &error, Attempt::Read);
    let file = File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if metadata.is_dir() {
        return Err(Failure::with_help(
            format_args!("{name} is a folder"),
            format_args!("name the logs in it, as in {}/access.log*", name.trim_end_matches('/')),
        ));
    }
    Ok((Input::new(name, file), metadata.is_file().then_some(metadata)))
}

/// Open logs, with a progress line on a terminal.
pub(crate) struct OpenLogs {
    log: Log,
    met: FieldUsage,
    progress: Option<Progress>,
}

impl OpenLogs {
    /// Returns notes about the fields that flags name.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.met.notes()
    }
}

impl Requests for OpenLogs {
    fn next(&mut self, entry: &mut Entry) -> io::Result<bool> {
        let next = self.log.next(entry);
        if matches!(next, Ok(true)) {
            self.met.request(entry);
        }
        if let Some(progress) = &mut self.progress {
            if matches!(next, Ok(true)) {
                progress.tick(|| self.log.tally());
            } else {
                // Clears the line before other output.
                self.progress = None;
            }
        }
        next
    }

    fn tally(&self) -> Tally {
        self.log.tally()
    }

    fn first_skipped(&self) -> Option<&SkippedLine> {
        self.log.first_skipped()
    }
}

/// The number of requests between two checks of the clock.
const REQUESTS_PER_REDRAW_CHECK: u32 = 4_096;

/// The interval between two redraws of the line.
const REDRAW_INTERVAL: Span = Span::from_micros(100_000);

/// A line on standard error that is redrawn, and cleared at the end.
struct Progress {
    clock: SystemClock,
    start: Timestamp,
    drawn: Timestamp,
    size: Option<u64>,
    ticks: u32,
    /// The width of the current line.
    width: usize,
}

impl Progress {
    fn new(size: Option<u64>) -> Self {
        let clock = SystemClock::new();
        let start = clock.now();
        Self { clock, start, drawn: start, size, ticks: 0, width: 0 }
    }

    fn tick(&mut self, tally: impl FnOnce() -> Tally) {
        self.ticks += 1;
        if self.ticks < REQUESTS_PER_REDRAW_CHECK {
            return;
        }
        self.ticks = 0;
        let now = self.clock.now();
        if now.since(self.drawn) >= REDRAW_INTERVAL {
            self.drawn = now;
            let line = line(&tally(), self.size, now.since(self.start));
            self.draw(&line);
        }
    }

    /// Pads with spaces over a longer previous line, which works on every terminal.
    fn draw(&mut self, line: &str) {
        let width = line.chars().count();
        output::complain(&format!("\r{line:<was$}", was = self.width));
        self.width = width;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.width > 0 {
            output::complain(&format!("\r{:<was$}\r", "", was = self.width));
        }
    }
}

/// Formats `[========>           ]  42 %  1,234,567 lines  2,345,678 lines/s  0:12 left`.
fn line(tally: &Tally, size: Option<u64>, elapsed: Span) -> String {
    const BAR_WIDTH: u64 = 20;
    let micros = elapsed.as_micros().max(1);
    let over = |part: u64, whole: u64, of: u64| {
        u64::try_from(u128::from(part) * u128::from(of) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
    };
    let rate = over(tally.lines, micros, 1_000_000);
    let counts = format!("{} lines  {} lines/s", number(tally.lines), number(rate));
    let Some(size) = size.filter(|size| *size > 0) else { return counts };
    // A file may grow while it is read.
    let bytes = tally.bytes.min(size);
    let filled = usize::try_from(over(bytes, size, BAR_WIDTH)).unwrap_or(0);
    let bar = format!("{:=<filled$}>", "");
    let left = over(size - bytes, bytes, micros) / 1_000_000;
    format!(
        "[{bar:<width$}] {:>3} %  {counts}  {} left",
        over(bytes, size, 100),
        clock_like(left),
        width = usize::try_from(BAR_WIDTH).unwrap_or(0) + 1
    )
}

/// Formats `0:12` or `1:02:03`.
fn clock_like(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_percentage_rate_and_remaining_time() {
        let tally = Tally { lines: 1_234_567, bytes: 250, ..Tally::default() };
        let cases = [
            (Some(1_000), 4, "[=====>               ]  25 %  1,234,567 lines  308,641 lines/s  0:12 left"),
            (Some(250), 4, "[====================>] 100 %  1,234,567 lines  308,641 lines/s  0:00 left"),
            (Some(100), 4, "[====================>] 100 %  1,234,567 lines  308,641 lines/s  0:00 left"),
            (
                Some(250_000_000),
                4,
                "[>                    ]   0 %  1,234,567 lines  308,641 lines/s  1111:06:36 left",
            ),
            (None, 4, "1,234,567 lines  308,641 lines/s"),
            (Some(0), 4, "1,234,567 lines  308,641 lines/s"),
        ];
        for (size, seconds, expected) in cases {
            assert_eq!(line(&tally, size, Span::from_secs(seconds)), expected);
        }
        assert!(line(&Tally::default(), Some(1), Span::ZERO).contains("0 %"));
    }
}
