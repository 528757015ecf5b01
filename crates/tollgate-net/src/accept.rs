//! From a listener to connections: no more than there is room for, until draining has ended.
//!
//! Not here: what is said on a connection (`http`, `stream`).

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
/// Between two warnings of that.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Starts every connection that arrives, with the place that it holds until its end, and at
/// most so many at once. Ends when draining has begun and the last connection has ended.
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
            () = drain.begun() => break,
            ((stream, peer), slot) = accept(&listener, &room) => start(stream, peer, slot),
        }
    }
    // Whom the kernel has let in before we stopped, we have let in.
    let listener = listener.into_std()?;
    while let Some((stream, peer)) = accept_waiting(&listener) {
        if room.available_permits() == 0 {
            room.add_permits(1);
            most = most.saturating_add(1);
        }
        start(stream, peer, Arc::clone(&room).try_acquire_owned().ok());
    }
    drop(listener);
    // All of the room is free again when the last connection has ended.
    drop(room.acquire_many(most).await);
    Ok(())
}

/// The next connection, when there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> ((TcpStream, SocketAddr), Option<OwnedSemaphorePermit>) {
    // It is never closed, so there always is a permit in the end.
    let slot = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok(accepted) => return (accepted, slot),
            // Gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if is_news() {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                }
                tokio::time::sleep(FD_EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Whether nobody was warned in the last second, of any listener of this process: when one
/// cannot accept, none can.
fn is_news() -> bool {
    static LAST_WARNING: Mutex<Option<Instant>> = Mutex::new(None);
    let (now, mut last) = (Instant::now(), LAST_WARNING.lock().unwrap_or_else(PoisonError::into_inner));
    let is_news = last.is_none_or(|last| now.duration_since(last) >= WARNING_INTERVAL);
    if is_news {
        *last = Some(now);
    }
    is_news
}

/// A connection that waits to be accepted, if any does. The kernel is asked: the
/// runtime may not have heard of it yet.
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
    use super::is_news;

    #[test]
    fn nobody_is_warned_twice_in_a_second() {
        assert!((0..100).filter(|_| is_news()).count() <= 1);
    }
}
