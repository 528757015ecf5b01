//! Reads the limit that a proxy has learned, while it is under load.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::gateway::probe;
use crate::stopwatch;

/// The time between two readings.
const INTERVAL: Duration = Duration::from_millis(100);

/// The place of a limit among the metrics of a proxy.
#[derive(Clone, Copy, Debug)]
pub struct LearnedLimit {
    /// The address of the metrics.
    pub address: SocketAddr,
    /// The path of the metrics.
    pub path: &'static str,
    /// The text before the number, in its line.
    pub metric: &'static str,
}

/// A reading: the time since the start, and the limit.
pub type Reading = (Duration, f64);

impl LearnedLimit {
    /// Reads the limit.
    pub fn read(&self) -> io::Result<f64> {
        let answer = probe::ask_for(self.address, self.path)?;
        let missing = || io::Error::other(format!("no `{}` in:\n{}", self.metric, answer.text));
        number_after(&answer.text, self.metric).ok_or_else(missing)
    }

    /// Starts to read the limit again and again. Times count from now.
    pub fn watch(self) -> Watch {
        let ended = Arc::new(AtomicBool::new(false));
        let (start, has_ended) = (stopwatch::mark(), Arc::clone(&ended));
        let thread = thread::spawn(move || self.read_until(start, &has_ended));
        Watch { ended, thread }
    }

    fn read_until(self, start: Instant, has_ended: &AtomicBool) -> io::Result<Vec<Reading>> {
        let mut readings = Vec::new();
        while !has_ended.load(Ordering::Relaxed) {
            readings.push((start.elapsed(), self.read()?));
            stopwatch::pause(INTERVAL);
        }
        Ok(readings)
    }
}

/// A thread that reads a limit.
pub struct Watch {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Reading>>>,
}

impl Watch {
    /// Stops, and returns all readings.
    pub fn finish(self) -> io::Result<Vec<Reading>> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| io::Error::other("the reader of metrics has panicked"))?
    }
}

/// Returns the number at the end of the line that contains a text.
fn number_after(text: &str, metric: &str) -> Option<f64> {
    let line = text.lines().find(|line| !line.starts_with('#') && line.contains(metric))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn the_metrics_of_both_programs_are_read() {
        let check = |text, metric, number: f64| {
            let read = number_after(text, metric);
            assert!(read.is_some_and(|it| (it - number).abs() < 1e-9), "{read:?}");
        };
        let ours = "HTTP/1.1 200 OK\r\n\r\n# HELP tollgate_adaptive_slots{ 7\ntollgate_adaptive_slots{limit=\"a\"} 36\n";
        check(ours, "tollgate_adaptive_slots{", 36.0);
        check(
            "http.x.gradient_controller.concurrency_limit: 9\n",
            "gradient_controller.concurrency_limit:",
            9.0,
        );
        assert!(number_after("", "x").is_none());
    }
}
