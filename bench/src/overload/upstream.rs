//! The upstream: an HTTP service with a number of workers and a queue without bounds.
//!
//! A request that finds all workers busy waits for its turn, so latency rises as soon as requests queue. A worker does
//! not notice that its caller has left: the work is done nevertheless, as in most application servers.

mod workers;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep_until;

pub use self::workers::ServiceTime;
use self::workers::Workers;
use super::WORKERS;
use crate::gateway::upstream::BODY;
use crate::stopwatch;

/// A running upstream. It stops on drop.
pub struct Upstream {
    address: SocketAddr,
    service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The workers, and the origin of their times.
struct Service {
    workers: Mutex<Workers>,
    origin: Instant,
}

impl Service {
    fn lock(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// Starts the upstream with all of its workers, on a thread of its own.
    pub fn start(service_time: ServiceTime) -> io::Result<Self> {
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let workers = Mutex::new(Workers::new(WORKERS, service_time));
        let service = Arc::new(Service { workers, origin: stopwatch::mark() });
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&service);
        let thread = thread::spawn(move || {
            let local = LocalSet::new();
            local.spawn_local(accept(listener, served));
            // An error means that the sender is gone.
            let _ = local.block_on(&runtime, stopped);
        });
        Ok(Self { address, service, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the number of workers.
    pub fn set_workers(&self, count: usize) {
        self.service.lock().set_count(count, self.service.origin.elapsed());
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns a runtime of the calling thread.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    loop {
        // An error is that of one connection, or a lack of file descriptors, which passes.
        if let Ok((stream, _)) = listener.accept().await {
            spawn_local(serve(stream, Arc::clone(&service)));
        }
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>) {
    // Without it, responses are later, and nothing else changes.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|_: Request<Incoming>| {
        let end = service.lock().assign(service.origin.elapsed());
        let end = service.origin + end;
        async move {
            sleep_until(end.into()).await;
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from_static(BODY.as_bytes()))))
        }
    });
    // A caller that leaves is no error.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::probe;

    #[test]
    fn the_upstream_answers() {
        let upstream = Upstream::start(ServiceTime::Fixed).unwrap();
        let answer = probe::ask(upstream.address()).unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.text.contains(BODY), "{}", answer.text);
    }
}
