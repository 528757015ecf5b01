//! Forwards one request: chooses an upstream and a connection, and retries under the rules of `forward`.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout};
use tollgate_net::http1::{ExchangeEnd, Http1Client, OutputBuffer};

use super::pool::{RawConnection, RawPool};
use super::pump::{Failure, Pump};
use super::{ForwardedRequest, write_connection_lines};
use crate::forward::{MAX_RETRIES, Worker};
use crate::problem::Problem;

/// Forwards a request and sends its response.
pub(super) async fn forward(
    worker: &Worker,
    pool: &Arc<RawPool>,
    mut request: Box<ForwardedRequest>,
    client: &mut Http1Client<'_>,
) -> ExchangeEnd {
    request.admission.start();
    match exchange(worker, pool, &mut request, client).await {
        Ok(true) => ExchangeEnd::Complete,
        Ok(false) => ExchangeEnd::Close,
        Err(Failure::Problem(problem)) => Box::pin(answer(problem, worker, request, client)).await,
        Err(_) => {
            request.end();
            client.abort();
            ExchangeEnd::Abort
        }
    }
}

/// Returns whether the connection of the client can be used again.
async fn exchange(
    worker: &Worker,
    pool: &Arc<RawPool>,
    request: &mut ForwardedRequest,
    client: &mut Http1Client<'_>,
) -> Result<bool, Failure> {
    let has_body = client.has_body_left();
    let (mut retries, mut tried) = (0, SmallVec::<[usize; 4]>::new());
    loop {
        let chosen = worker.upstreams.choose(&tried);
        // The load is counted until the last byte.
        let (at, load) = chosen.ok_or(Failure::Problem(Problem::Unreachable))?;
        let connection = match pool.take(at, request.started_at) {
            Some(connection) => connection,
            None => match Box::pin(connect(worker, at, client)).await.ok_or(Failure::Abandoned)? {
                Ok(connection) => connection,
                Err(problem) if problem == Problem::Busy || tried.len() + 1 >= worker.upstreams.len() => {
                    return Err(Failure::Problem(problem));
                }
                Err(_) => {
                    tried.push(at);
                    continue;
                }
            },
        };
        let is_repeatable = connection.is_reused && !has_body && request.is_idempotent;
        request.set_sent(true);
        let mut pump = Pump::new((worker, at), (client, connection), request);
        let failure = match poll_fn(|cx| pump.poll(cx)).await {
            Ok(report) => {
                if report.is_reusable {
                    pool.put(at, pump.into_connection(), report.at);
                }
                return Ok(report.keeps_client);
            }
            Err(failure) => failure,
        };
        match &failure {
            Failure::Unsent if retries < MAX_RETRIES => {}
            Failure::Broken { is_silent: true, .. } if is_repeatable && retries < MAX_RETRIES => {}
            _ => {
                pump.leave(&failure, load, pool);
                return Err(give_up(worker, at, failure));
            }
        }
        request.set_sent(false);
        retries += 1;
        pool.forget(at, Instant::now());
    }
}

/// Opens a connection to an upstream. `None`: the client has left meanwhile.
async fn connect(
    worker: &Worker,
    at: usize,
    client: &mut Http1Client<'_>,
) -> Option<Result<RawConnection, Problem>> {
    let mut connecting = pin!(worker.connector.connect_plain(worker.upstreams.origin(at)));
    let connected = poll_fn(|cx| match connecting.as_mut().poll(cx) {
        Poll::Ready(connected) => Poll::Ready(Some(connected)),
        Poll::Pending => client.poll_left(cx).map(|()| None),
    })
    .await?;
    Some(match connected {
        Ok(stream) => Ok(RawConnection { stream, timer: Box::pin(sleep(worker.answer)), is_reused: false }),
        Err(error) => Err(worker.connecting_failed(at, error)),
    })
}

/// Records the failure of an upstream, and returns the problem that the client gets.
fn give_up(worker: &Worker, at: usize, failure: Failure) -> Failure {
    let (problem, why) = match failure {
        Failure::Problem(Problem::Slow) => (Problem::Slow, "no response in time".to_owned()),
        Failure::Unsent => (Problem::Unreachable, "connections are closed immediately".to_owned()),
        Failure::Broken { why, .. } => (Problem::BrokenOff, why),
        // Caused by the client, or the response has started.
        failure @ (Failure::Problem(_) | Failure::Cut | Failure::Abandoned) => return failure,
    };
    worker.upstreams.failed(at, &why);
    Failure::Problem(problem)
}

/// Answers a request that could not be forwarded.
async fn answer(
    problem: Problem,
    worker: &Worker,
    mut request: Box<ForwardedRequest>,
    client: &mut Http1Client<'_>,
) -> ExchangeEnd {
    request.admission.answered(problem.is_measured().then(|| problem.status()));
    if problem.is_before_the_upstream() {
        request.admission.was_not_forwarded();
    }
    let is_last = client.is_last() || client.has_body_left();
    let mut out = OutputBuffer::take();
    problem.write(&mut out, request.is_head, |out| {
        request.admission.write_headers(out);
        write_connection_lines(out, is_last);
    });
    request.end();
    send(worker, client, &out, is_last).await
}

/// Sends a whole response of the gateway itself.
pub(super) async fn send(
    worker: &Worker,
    client: &mut Http1Client<'_>,
    response: &[u8],
    is_last: bool,
) -> ExchangeEnd {
    let mut written = 0;
    let writing = poll_fn(|cx| client.poll_write_all(cx, response, &mut written));
    match timeout(worker.still, writing).await {
        Ok(Ok(())) if is_last => ExchangeEnd::Close,
        Ok(Ok(())) => ExchangeEnd::Complete,
        Ok(Err(_)) | Err(_) => ExchangeEnd::Abort,
    }
}
