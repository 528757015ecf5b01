//! The log: on standard error, for people or for machines.
//!
//! A thread of its own writes it, so that whoever logs never waits for whoever reads: a
//! pipe that nobody empties must not keep the process from being stopped.
//!
//! - `queue`: the lines that wait for that thread.

mod queue;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use self::queue::Queue;
use crate::configuration::{Level, LogFormat};
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

/// How long the start and the end wait for lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of this process.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Queue>);

impl Log {
    /// Starts it. The first call in a process counts.
    pub(crate) fn start(level: Level, format: LogFormat) -> Result<Self, Failure> {
        let level = match level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        };
        let queue = Arc::new(Queue::default());
        let writing = Arc::clone(&queue);
        let spawned = std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&writing));
        spawned.map_err(|error| {
            Failure::new(format_args!("cannot start the log: {}", reason(&error, Attempt::Other)))
        })?;
        let log = tracing_subscriber::fmt().with_writer(Writer(Arc::clone(&queue)));
        let log = log.with_max_level(level).with_target(false);
        let _ = match format {
            LogFormat::Human => {
                let log = log.with_ansi(io::stderr().is_terminal());
                tracing::subscriber::set_global_default(log.finish())
            }
            LogFormat::Json => {
                tracing::subscriber::set_global_default(log.json().flatten_event(true).finish())
            }
        };
        Ok(Self(queue))
    }

    /// Text for people, in turn with the lines.
    pub(crate) fn say(&self, text: &str) {
        self.0.add(text.as_bytes());
    }

    /// Waits until all is written, for a moment.
    pub(crate) fn settle(&self) {
        self.0.settle(FLUSH_TIMEOUT);
    }

    /// Lines that nobody took.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

/// Until the process ends.
fn write_all(queue: &Queue) {
    let (mut lines, mut told) = (Vec::new(), 0);
    loop {
        queue.take(&mut lines);
        // Whoever closed the other end wants no log.
        let _closed = io::stderr().lock().write_all(&lines);
        let dropped = queue.dropped();
        if dropped > told {
            let count = dropped - told;
            tracing::warn!(count, "{count} lines of the log were dropped: they were not read as fast");
            told = dropped;
        }
        queue.written();
    }
}

/// Puts each line in the queue.
#[derive(Clone)]
struct Writer(Arc<Queue>);

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
