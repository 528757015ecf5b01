//! The load generator: each request is sent at its time, whether or not earlier ones were answered.
//!
//! A caller that has waited for [`CALLER_TIMEOUT`] gives up and closes its connection. Connections are kept alive; a request
//! that finds none idle opens a new one. Latency counts from the time at which a request was due, so a generator that
//! is late makes its numbers worse and not better.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet, LocalSet, spawn_local};
use tokio::time::timeout_at;

use super::CALLER_TIMEOUT;
use super::arrivals::{Arrival, Class};
use super::upstream::runtime;
use crate::stopwatch;

/// The end of a request, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Answered with 200.
    Answered,
    /// Refused with 429 or 503.
    Refused,
    /// Neither answered nor refused in time: the caller or the proxy gave up.
    TimedOut,
    /// The connection failed, or the response has another status.
    Failed,
}

/// A request and its end.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The class.
    pub class: Class,
    /// The time at which it was due, since the start of the load.
    pub due_at: Duration,
    /// The time from then until it was sent.
    pub late: Duration,
    /// The time from then until its end.
    pub latency: Duration,
    /// The end.
    pub ending: Ending,
}

impl Observation {
    /// Whether the answer arrived in time.
    pub fn is_good(&self) -> bool {
        self.ending == Ending::Answered && self.latency <= CALLER_TIMEOUT
    }

    /// Whether the request was not refused at once.
    pub fn is_admitted(&self) -> bool {
        matches!(self.ending, Ending::Answered | Ending::TimedOut)
    }
}

/// A running load generator.
pub struct Load {
    due: mpsc::UnboundedSender<(Instant, Class)>,
    origin: Instant,
    thread: JoinHandle<Vec<Observation>>,
}

impl Load {
    /// Starts a generator without any load, on a thread of its own.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let runtime = runtime()?;
        let (due, arrivals) = mpsc::unbounded_channel();
        let origin = stopwatch::mark();
        let thread =
            thread::spawn(move || LocalSet::new().block_on(&runtime, send_all(address, origin, arrivals)));
        Ok(Self { due, origin, thread })
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Sends requests at their times from now on, and returns at the end of the phase.
    pub fn run(&self, arrivals: &[Arrival], phase: Duration) -> io::Result<()> {
        let start = stopwatch::mark();
        for (at, class) in arrivals {
            pause_until(start + *at);
            let sent = self.due.send((start + *at, *class));
            sent.map_err(|_| io::Error::other("the load generator has ended"))?;
        }
        pause_until(start + phase);
        Ok(())
    }

    /// Waits for the end of all requests, and returns them.
    pub fn finish(self) -> io::Result<Vec<Observation>> {
        drop(self.due);
        self.thread.join().map_err(|_| io::Error::other("the load generator has panicked"))
    }
}

fn pause_until(then: Instant) {
    let left = then.saturating_duration_since(stopwatch::mark());
    if left > Duration::ZERO {
        stopwatch::pause(left);
    }
}

async fn send_all(
    address: SocketAddr,
    origin: Instant,
    mut arrivals: mpsc::UnboundedReceiver<(Instant, Class)>,
) -> Vec<Observation> {
    let callers = Rc::new(Callers { address, idle: RefCell::default() });
    let observed = Rc::new(RefCell::new(Vec::new()));
    let mut requests = JoinSet::new();
    while let Some((due, class)) = arrivals.recv().await {
        let (callers, observed) = (Rc::clone(&callers), Rc::clone(&observed));
        requests.spawn_local(async move {
            let late = due.elapsed();
            let ending = timeout_at((due + CALLER_TIMEOUT).into(), callers.ask(class)).await;
            let ending = ending.unwrap_or(Ok(Ending::TimedOut)).unwrap_or(Ending::Failed);
            let (due_at, latency) = (due - origin, due.elapsed());
            observed.borrow_mut().push(Observation { class, due_at, late, latency, ending });
        });
        while requests.try_join_next().is_some() {}
    }
    while requests.join_next().await.is_some() {}
    observed.take()
}

/// The idle connections of all callers.
struct Callers {
    address: SocketAddr,
    idle: RefCell<Vec<Connection>>,
}

/// A connection. It is closed on drop.
struct Connection {
    requests: SendRequest<Empty<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A failed connection.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Callers {
    async fn ask(&self, class: Class) -> Result<Ending, BoxError> {
        let mut connection = match self.idle() {
            Some(idle) => idle,
            None => self.connect().await?,
        };
        let request = Request::get(class.path()).header("host", "bench.test").body(Empty::new())?;
        let response = connection.requests.send_request(request).await?;
        let ending = match response.status() {
            StatusCode::OK => Ending::Answered,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Ending::Refused,
            StatusCode::GATEWAY_TIMEOUT => Ending::TimedOut,
            _ => Ending::Failed,
        };
        response.into_body().collect().await?;
        if connection.requests.ready().await.is_ok() {
            self.idle.borrow_mut().push(connection);
        }
        Ok(ending)
    }

    /// Returns the connection that was used last, if it is still open.
    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(connection) = idle.pop() {
            if connection.requests.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Connection, BoxError> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The end of a connection is seen by the request that uses it.
        let task = spawn_local(async move { drop(connection.await) }).abort_handle();
        Ok(Connection { requests, task })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::upstream::{ServiceTime, Upstream};

    #[test]
    fn requests_are_answered_and_counted() {
        let upstream = Upstream::start(ServiceTime::Fixed).unwrap();
        let load = Load::start(upstream.address()).unwrap();
        let arrivals: Vec<Arrival> = (0..20).map(|at| (Duration::from_millis(at), Class::Normal)).collect();
        load.run(&arrivals, Duration::from_millis(20)).unwrap();
        let observed = load.finish().unwrap();
        assert_eq!(observed.len(), 20);
        assert!(observed.iter().all(Observation::is_admitted), "{observed:?}");
    }
}
