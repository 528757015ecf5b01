//! Measures the load of this node for its shedder, on a timer of the main thread.
//!
//! ```text
//! every 100 ms: CPU, delay of the event loops ──► NodeShedder ──► level
//! ```
//!
//! Requests in flight are counted where they are served. If the policy has no `shed.node`, nothing is
//! measured, and the timer looks once a second whether that has changed.
//!
//! - `cgroup`, `cpu`: the CPU utilization.
//! - `event_loop`: the delay of the worker threads.

mod cgroup;
mod cpu;
mod event_loop;

use std::thread;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Clock, Level, Measurement, Mode, NodeShedder, SharedLimiter, SignalReading, SystemClock};

use self::cpu::CpuReader;
pub(crate) use self::event_loop::EventLoops;
use crate::store::AnyStore;

/// The interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which the policy is looked at, if it has no shedder of the node.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Measures until the future is dropped.
pub(crate) async fn measure(limiter: SharedLimiter<AnyStore>, event_loops: EventLoops) {
    let clock = SystemClock::new();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut cpu = CpuReader::new("/", cores);
    let mut was_shedding = false;
    loop {
        let current = limiter.load();
        let Some(settings) = current.policy().node_shed().filter(|it| it.mode != Mode::Off) else {
            drop(current);
            event_loops.rest();
            sleep(IDLE_INTERVAL).await;
            continue;
        };
        let shedder = current.node_shedder();
        if settings.cpu.is_some()
            && let Some(used) = cpu.read(clock.now())
        {
            shedder.report(Measurement::Cpu(used));
        }
        if settings.delay.is_none() {
            event_loops.rest();
        } else if let Some(delay) = event_loops.sample() {
            shedder.report(Measurement::Delay(delay));
        }
        current.sample_load();
        let is_shedding = shedder.level() > Level::ZERO;
        if is_shedding != std::mem::replace(&mut was_shedding, is_shedding) {
            report(is_shedding, shedder);
        }
        drop(current);
        sleep(SAMPLE_INTERVAL).await;
    }
}

/// Logs the start or the end of shedding.
fn report(is_shedding: bool, shedder: &NodeShedder) {
    if is_shedding {
        let largest = shedder.signals().largest();
        let (signal, reading) = largest.unwrap_or(("none", SignalReading { value: 0, target: 0 }));
        let SignalReading { value, target } = reading;
        tracing::warn!(
            signal,
            value,
            target,
            "this node is overloaded and sheds its least important requests"
        );
    } else {
        tracing::info!("this node sheds no requests any more");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use tollgate_testkit::Scratch;

    /// Writes a file with the directories above it.
    pub(crate) fn write(files: &Scratch, name: &str, text: &str) {
        let path = files.path().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).unwrap();
        }
        files.write(name, text);
    }
}
