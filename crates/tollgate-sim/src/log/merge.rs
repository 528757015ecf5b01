//! Merges several inputs into one log, by time.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use super::options::{Input, ReadOptions};
use super::reader::{self, Belt, Parcel};
use super::sorter::Sorter;
use super::{Requests, SkippedLine, Tally};
use crate::Entry;

/// The most batches that a reading thread may be ahead of the consumer.
const MAX_BATCHES_AHEAD: usize = 4;

/// One input: the batches of its thread, sorted by time.
#[derive(Debug)]
struct InputQueue {
    parcels: Receiver<io::Result<Parcel>>,
    spare: Sender<super::batch::Batch>,
    sorter: Sorter,
    is_over: bool,
}

/// A log of one or several inputs: rotated files in any order, or the files of several servers.
///
/// ```
/// use tollgate::Request;
/// use tollgate_sim::Entry;
/// use tollgate_sim::log::{Input, Log, ReadOptions, Requests};
///
/// let one = r#"203.0.113.9 - - [17/May/2015:10:05:03 +0000] "GET /late HTTP/1.1" 200 5"#;
/// let two = r#"{"ts": 1431857102.5, "ip": "2001:db8::1", "method": "GET", "path": "/early"}"#;
/// let inputs = vec![Input::new("one.log", one.as_bytes()), Input::new("two.log", two.as_bytes())];
///
/// let mut log = Log::open(inputs, &ReadOptions::default())?;
/// let mut entry = Entry::default();
/// assert!(log.next(&mut entry)?);
/// assert_eq!((entry.path(), entry.at), ("/early", 1_431_857_102_500_000));
/// assert!(log.next(&mut entry)?);
/// assert_eq!((entry.path(), entry.status), ("/late", Some(200)));
/// assert!(!log.next(&mut entry)?);
/// assert_eq!((log.tally().lines, log.tally().skipped), (2, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Log {
    /// Inputs that are not finished, in the order of the arguments.
    inputs: Vec<InputQueue>,
    tally: Tally,
    first_skipped: Option<SkippedLine>,
}

impl Log {
    /// Starts to read. Errors of an input are returned by [`Requests::next`].
    pub fn open(inputs: Vec<Input>, reading: &ReadOptions) -> io::Result<Self> {
        let most = reading.held_back(inputs.len());
        let inputs = inputs
            .into_iter()
            .map(|input| InputQueue::start(input, reading.clone(), most))
            .collect::<io::Result<_>>()?;
        Ok(Self { inputs, tally: Tally::default(), first_skipped: None })
    }

    /// Ensures that the head of every input is its earliest request.
    fn fill(&mut self) -> io::Result<()> {
        let mut has_ended = false;
        for input in &mut self.inputs {
            while !input.is_over && !input.sorter.is_full() {
                // The thread has ended, so all batches were received.
                let Ok(parcel) = input.parcels.recv() else {
                    input.is_over = true;
                    continue;
                };
                let parcel = parcel?;
                self.tally.lines += parcel.lines;
                self.tally.skipped += parcel.skipped;
                self.tally.bytes += parcel.bytes;
                self.tally.named += parcel.batch.named();
                if self.first_skipped.is_none() {
                    self.first_skipped = parcel.first_skipped;
                }
                if parcel.batch.len() > 0 {
                    let late = input.sorter.late();
                    input.sorter.push(parcel.batch);
                    self.tally.late += input.sorter.late() - late;
                }
            }
            has_ended |= input.sorter.head().is_none();
        }
        if has_ended {
            self.inputs.retain(|input| input.sorter.head().is_some());
        }
        Ok(())
    }
}

impl Requests for Log {
    fn next(&mut self, entry: &mut Entry) -> io::Result<bool> {
        if let Err(error) = self.fill() {
            self.inputs.clear();
            return Err(error);
        }
        // `min_by_key` returns the first of several inputs with the earliest time.
        let Some(input) = self.inputs.iter_mut().min_by_key(|input| input.sorter.head()) else {
            return Ok(false);
        };
        let is_there = input.sorter.pop(entry);
        while let Some(mut batch) = input.sorter.done() {
            batch.clear();
            // If the thread has ended, the batch is dropped.
            let _ = input.spare.send(batch);
        }
        Ok(is_there)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn first_skipped(&self) -> Option<&SkippedLine> {
        self.first_skipped.as_ref()
    }
}

impl InputQueue {
    fn start(input: Input, reading: ReadOptions, most: usize) -> io::Result<Self> {
        let (sender, parcels) = mpsc::sync_channel(MAX_BATCHES_AHEAD);
        let (spare, returned) = mpsc::channel();
        let belt = Belt { parcels: sender, spare: returned };
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || reader::run(input, &reading, &belt))?;
        Ok(Self { parcels, spare, sorter: Sorter::new(most), is_over: false })
    }
}
