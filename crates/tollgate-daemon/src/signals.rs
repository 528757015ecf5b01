//! The signals of a service: SIGHUP reloads, SIGTERM and SIGINT stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::io_error::Attempt;

/// A signal to the process.
pub(crate) enum ProcessSignal {
    Reload,
    Stop(&'static str),
}

/// Receives SIGHUP, SIGTERM and SIGINT for [`Daemon::run`](crate::Daemon::run).
///
/// Create it before the service is reported as ready: a stop signal may follow immediately.
#[derive(Debug)]
pub struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers. Needs a Tokio runtime.
    pub fn listen() -> Result<Self, Failure> {
        let failed = |error| Failure::io("cannot listen for signals", &error, Attempt::Other);
        let listen = |kind| signal(kind).map_err(failed);
        Ok(Self {
            reload: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.reload.recv() => ProcessSignal::Reload,
            _ = self.terminate.recv() => ProcessSignal::Stop("SIGTERM"),
            _ = self.interrupt.recv() => ProcessSignal::Stop("SIGINT"),
        }
    }

    /// Waits for the next stop signal. Ignores reloads, because the service is stopping.
    pub(crate) async fn next_stop(&mut self) -> &'static str {
        loop {
            if let ProcessSignal::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}
