//! The thread that reads one input: from bytes to lines, requests and batches.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};

use super::batch::Batch;
use super::detect::Parser;
use super::lines::{Line, Lines};
use super::options::{Input, ReadOptions};
use super::source::Source;
use super::time::Times;
use super::{SkippedLine, text};

/// A batch, and the counts of the input since the batch before.
#[derive(Debug, Default)]
pub(super) struct Parcel {
    pub(super) batch: Batch,
    pub(super) lines: u64,
    pub(super) skipped: u64,
    pub(super) bytes: u64,
    pub(super) first_skipped: Option<SkippedLine>,
}

/// The channels of a reading thread: parcels out, empty batches back.
pub(super) struct Belt {
    pub(super) parcels: SyncSender<io::Result<Parcel>>,
    pub(super) spare: Receiver<Batch>,
}

/// Reads an input to its end, or until the receiver is dropped.
pub(super) fn run(input: Input, reading: &ReadOptions, belt: &Belt) {
    let Input { name, reader } = input;
    let mut number = 0;
    if let Err(error) = read(&name, reader, reading, belt, &mut number) {
        let text = match number {
            0 => format!("{name} {error}"),
            number => format!("{name} {error} (after line {number})"),
        };
        let _ = belt.parcels.send(Err(io::Error::new(error.kind(), text)));
    }
}

fn read(
    name: &str,
    reader: Box<dyn io::Read + Send>,
    reading: &ReadOptions,
    belt: &Belt,
    number: &mut u64,
) -> io::Result<()> {
    let mut lines = Lines::new(Source::open(reader)?)?;
    let mut times = Times::new(reading.zone.clone());
    let mut parcel = Parcel::default();
    let Some(mut parser) = Parser::find(&lines, reading, &mut times)? else {
        parcel.bytes = lines.taken();
        let _ = belt.parcels.send(Ok(parcel));
        return Ok(());
    };
    if let Parser::Csv(csv) = &parser {
        lines.are_rows(csv.delimiter());
        if csv.has_header() {
            lines.next()?;
        }
    }
    let (mut taken, mut has_skipped) = (0, false);
    while let Some(line) = lines.next()? {
        parcel.lines += 1;
        let is_request = match line {
            Line::Whole(line) => parser.read(line, &mut times, &mut parcel.batch),
            Line::TooLong => false,
        };
        if !is_request {
            parcel.skipped += 1;
            if !has_skipped {
                has_skipped = true;
                let text = match line {
                    Line::Whole(line) => text::sample(line),
                    Line::TooLong => "(longer than 1 MiB)".to_owned(),
                };
                parcel.first_skipped = Some(SkippedLine { input: name.to_owned(), line: 0, text });
            }
        }
        *number = lines.number();
        if let Some(skipped) = parcel.first_skipped.as_mut().filter(|it| it.line == 0) {
            skipped.line = *number;
        }
        // A log without any request must report its progress too.
        if parcel.batch.is_full() || parcel.skipped >= 65_536 {
            parcel.bytes = lines.taken() - taken;
            taken = lines.taken();
            if belt.parcels.send(Ok(std::mem::take(&mut parcel))).is_err() {
                return Ok(());
            }
            if let Ok(batch) = belt.spare.try_recv() {
                parcel.batch = batch;
            }
        }
    }
    parcel.bytes = lines.taken() - taken;
    let _ = belt.parcels.send(Ok(parcel));
    Ok(())
}
