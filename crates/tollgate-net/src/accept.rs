//! Accepts connections from a listener, up to a maximum, until draining has ended.
//!
//! Not here: the protocols on a connection (`http`, `stream`).

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::drain::Drain;

/// How long accepting pauses when the process is out of file descriptors.
const FD_EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// The minimum time between two warnings about that.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Starts every accepted connection with a permit that it holds until its end, at most `most` at
/// once. Returns when draining has started and the last connection has ended.
pub(crate) async fn accept_all(
    listener: StdListener,
    connections: usize,
    mut drain: Drain,
    mut start: impl FnMut(TcpStream, SocketAddr, Option<OwnedSemaphorePermit>),
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut most = u32::try_from(connections).unwrap_or(u32::MAX);
    let room = Arc::new(Semaphore::new(most as usize));
    loop {
        tokio::select! {
            biased;
            () = drain.started() => break,
            ((stream, peer), slot) = accept(&listener, &room) => start(stream, peer, slot),
        }
    }
    // Connections that the kernel accepted before are served.
    let listener = listener.into_std()?;
    while let Some((stream, peer)) = accept_waiting(&listener) {
        if room.available_permits() == 0 {
            room.add_permits(1);
            most = most.saturating_add(1);
        }
        start(stream, peer, Arc::clone(&room).try_acquire_owned().ok());
    }
    drop(listener);
    // All permits are free again when the last connection has ended.
    drop(room.acquire_many(most).await);
    Ok(())
}

/// Accepts the next connection when a permit is free.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> ((TcpStream, SocketAddr), Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed, so acquiring succeeds.
    let slot = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok(accepted) => return (accepted, slot),
            // The client disconnected before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if is_warning_due() {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                }
                tokio::time::sleep(FD_EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Whether no warning was logged in the last second, by any listener: when one cannot accept, no
/// listener can.
fn is_warning_due() -> bool {
    static LAST_WARNING: Mutex<Option<Instant>> = Mutex::new(None);
    let (now, mut last) = (Instant::now(), LAST_WARNING.lock().unwrap_or_else(PoisonError::into_inner));
    let is_warning_due = last.is_none_or(|last| now.duration_since(last) >= WARNING_INTERVAL);
    if is_warning_due {
        *last = Some(now);
    }
    is_warning_due
}

/// Accepts a waiting connection, if there is one. It asks the kernel directly, because the runtime
/// may not have noticed the connection yet.
fn accept_waiting(listener: &StdListener) -> Option<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                return ready.ok().map(|stream| (stream, peer));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_none) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_warning_due;

    #[test]
    fn warnings_are_limited_to_one_a_second() {
        assert!((0..100).filter(|_| is_warning_due()).count() <= 1);
    }
}
