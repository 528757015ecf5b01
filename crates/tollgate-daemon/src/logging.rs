//! The log, on standard error, as text or JSON.
//!
//! A separate thread writes it, so that logging never blocks: a pipe that is not read must not keep the
//! process from stopping.
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
use crate::io_error::Attempt;

/// The maximum time to wait for the log at the start and at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of this process.
///
/// The default writes nothing, for programs that install their own `tracing` subscriber.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Queue>);

impl Log {
    /// Starts the log. Only the first call in a process has an effect.
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
        spawned.map_err(|error| Failure::io("cannot start the log", &error, Attempt::Other))?;
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

    /// Writes text in order with the log lines.
    pub fn say(&self, text: &str) {
        self.0.add(text.as_bytes());
    }

    /// Waits until all lines are written, up to a second.
    pub fn settle(&self) {
        self.0.settle(FLUSH_TIMEOUT);
    }

    /// Returns the number of dropped lines.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

/// Writes lines until the process ends.
fn write_all(queue: &Queue) {
    let (mut lines, mut reported) = (Vec::new(), 0);
    loop {
        queue.take(&mut lines);
        // A closed standard error is not a failure.
        let _closed = io::stderr().lock().write_all(&lines);
        let dropped = queue.dropped();
        if dropped > reported {
            let count = dropped - reported;
            tracing::warn!(count, "{count} lines of the log were dropped: they were not read as fast");
            reported = dropped;
        }
        queue.written();
    }
}

/// A writer that adds each line to the queue.
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
