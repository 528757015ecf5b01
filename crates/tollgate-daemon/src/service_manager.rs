//! Reports the state of the service to systemd: ready, reloading, stopping, and alive.
//!
//! The protocol is `sd_notify(3)`. Without `NOTIFY_SOCKET` nothing is sent. The watchdog covers the thread
//! that reloads the policy and keeps the store; a worker that ends is noticed by that thread.

use std::future::pending;

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The number of heartbeats within the time that the service manager waits for one.
const HEARTBEATS_PER_TIMEOUT: u32 = 3;

/// The service manager of this process, if there is one.
pub(crate) struct ServiceManager {
    heartbeats: Option<Interval>,
}

impl ServiceManager {
    /// Reads the variables that the service manager sets. Needs a Tokio runtime.
    pub(crate) fn from_environment() -> Self {
        let timeout = sd_notify::watchdog_enabled().filter(|it| !it.is_zero());
        let heartbeats = timeout.map(|timeout| {
            let mut heartbeats = interval(timeout / HEARTBEATS_PER_TIMEOUT);
            heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            heartbeats
        });
        Self { heartbeats }
    }

    /// Reports that all listeners are open, with a status for `systemctl status`.
    pub(crate) fn ready(status: &str) {
        send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that a reload has begun; [`ready`](Self::ready) ends it.
    pub(crate) fn reloading() {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => send(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "no monotonic clock for the service manager"),
        }
    }

    /// Reports that the service ends.
    pub(crate) fn stopping() {
        send(&[NotifyState::Stopping]);
    }

    /// Sends heartbeats until dropped; waits forever if the service manager expects none.
    pub(crate) async fn keep_alive(&mut self) {
        let Some(heartbeats) = &mut self.heartbeats else { return pending().await };
        loop {
            heartbeats.tick().await;
            send(&[NotifyState::Watchdog]);
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot reach the service manager (NOTIFY_SOCKET)");
    }
}
