//! An open load: requests are sent at a constant rate for each tenant, regardless of the responses.
//!
//! A caller leaves after [`CALLER_TIMEOUT`]. Connections are reused.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{self, MissedTickBehavior};

use crate::stopwatch;

/// The time after which a caller leaves.
pub const CALLER_TIMEOUT: Duration = Duration::from_secs(2);

/// A tenant and its requests in a second.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// Its name, sent as `X-Tenant-Id`.
    pub name: &'static str,
    /// Requests in a second.
    pub rate: u32,
}

impl Tenant {
    /// Returns the number of its requests in this time.
    fn requests(&self, time: Duration) -> usize {
        usize::try_from(u128::from(self.rate) * time.as_millis() / 1_000).unwrap_or(usize::MAX)
    }
}

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The place of the tenant in the list.
    pub tenant: usize,
    /// Status code; `None` if the caller has left or the connection has failed.
    pub status: Option<u16>,
    /// The time from the request to the end of the response.
    pub latency: Duration,
}

/// Idle connections.
type Idle = Rc<RefCell<Vec<SendRequest<Empty<Bytes>>>>>;

/// Sends the requests of all tenants for this time, and returns the answers to all of them.
pub fn run(address: SocketAddr, tenants: &[Tenant], length: Duration) -> io::Result<Vec<Answer>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (idle, answers) = (Idle::default(), Rc::new(RefCell::new(Vec::new())));
    let tasks = LocalSet::new();
    for (nth, &tenant) in tenants.iter().enumerate() {
        let (idle, answers) = (Rc::clone(&idle), Rc::clone(&answers));
        tasks.spawn_local(async move {
            let mut timer = time::interval(Duration::from_secs(1) / tenant.rate);
            timer.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for _ in 0..tenant.requests(length) {
                timer.tick().await;
                let (idle, answers) = (Rc::clone(&idle), Rc::clone(&answers));
                tokio::task::spawn_local(async move {
                    let start = stopwatch::mark();
                    let sent = time::timeout(CALLER_TIMEOUT, send(address, tenant.name, &idle)).await;
                    let status = sent.ok().and_then(Result::ok);
                    answers.borrow_mut().push(Answer { tenant: nth, status, latency: start.elapsed() });
                });
            }
        });
    }
    let expected = tenants.iter().map(|it| it.requests(length)).sum();
    // Every request is answered or abandoned. Connections that are still open are dropped.
    runtime.block_on(tasks.run_until(async {
        while answers.borrow().len() < expected {
            time::sleep(Duration::from_millis(50)).await;
        }
    }));
    drop(tasks);
    Ok(answers.take())
}

async fn send(address: SocketAddr, tenant: &str, idle: &Idle) -> Result<u16, Box<dyn std::error::Error>> {
    let known = idle.borrow_mut().pop().filter(SendRequest::is_ready);
    let mut sender = if let Some(sender) = known {
        sender
    } else {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(connection);
        sender
    };
    let request = Request::post("/orders").header("host", "shop").header("x-tenant-id", tenant);
    let response = sender.send_request(request.body(Empty::new())?).await?;
    let status = response.status().as_u16();
    response.into_body().collect().await?;
    idle.borrow_mut().push(sender);
    Ok(status)
}
