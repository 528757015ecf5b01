//! Moves the bytes of one exchange between a client and an upstream, in both directions at once, until the response is
//! complete.
//!
//! At most one buffer is held in each direction: nothing is read from the upstream before the client has taken the bytes
//! before, and the same for the body of the request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tollgate_http::{RawAdmission, ServiceTimer};
use tollgate_net::http1::{Buffer, ClientBody, Http1Client, OutputBuffer, ResponseHead};

use super::ForwardedRequest;
use super::abandoned::AbandonedResponse;
use super::download::{self, Download, Nominated};
use super::metering::Recipient;
use super::pool::{RawConnection, RawPool};
use crate::forward::Worker;
use crate::problem::Problem;
use crate::upstream::Load;

/// The reason why an exchange failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The upstream has seen nothing of the request.
    Unsent,
    /// The connection to the upstream broke. `is_silent`: before the first byte of a response.
    Broken { why: String, is_silent: bool },
    /// The request is answered with this problem.
    Problem(Problem),
    /// The response ended early after its start: the upstream closed the connection, or sent something invalid.
    Cut,
    /// The response is not passed on: the client has left, or a timeout has passed after the start of the response.
    Abandoned,
}

impl Failure {
    /// Whether the upstream may continue to work on the request.
    const fn may_continue(&self) -> bool {
        matches!(self, Self::Problem(_) | Self::Abandoned)
    }
}

/// A piece of the body of the request that is to be written.
enum UploadPiece {
    Bytes(Buffer),
    /// Chunks, and the number of their bytes that were written.
    Chunks(OutputBuffer, usize),
}

impl UploadPiece {
    fn unsent(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.unread(),
            Self::Chunks(chunks, written) => &chunks[*written..],
        }
    }

    /// Marks the first bytes as written. Returns whether all are.
    fn consume(&mut self, count: usize) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.consume(count),
            Self::Chunks(_, written) => *written += count,
        }
        self.unsent().is_empty()
    }
}

/// The end of a complete exchange.
pub(super) struct ExchangeReport {
    /// Whether the connection to the upstream can be used again.
    pub(super) is_reusable: bool,
    /// Whether the connection to the client can be used again.
    pub(super) keeps_client: bool,
    /// A time shortly before the end.
    pub(super) at: Instant,
}

/// One exchange.
pub(super) struct Pump<'p, 'c> {
    worker: &'p Worker,
    client: &'p mut Http1Client<'c>,
    connection: RawConnection,
    /// The index of the upstream.
    upstream: usize,
    request: &'p mut ForwardedRequest,
    /// Measures the upstream. It stands still while the gateway waits for the body of the client.
    timer: Option<ServiceTimer>,
    /// The number of bytes of the head that were written.
    written: usize,
    /// Bytes of the request body that are to be written.
    body: Option<UploadPiece>,
    /// Whether the upstream accepts no more bytes.
    is_upload_over: bool,
    input: Option<Buffer>,
    has_input: bool,
    download: Download,
    response: ResponseState,
    /// Bytes for the client, and the number of them that were written.
    out: OutputBuffer,
    sent: usize,
    needs_flush: bool,
    deadline: Option<Instant>,
    progress: Progress,
}

/// The state of a response after its head.
#[derive(Default)]
struct ResponseState {
    /// Whether the connection to the upstream can be used again.
    is_reusable: bool,
    /// Whether the client was told that its connection ends.
    is_last: bool,
    /// Whether the response is aborted when its valid part has been sent.
    is_cut: bool,
}

/// The times of the last bytes of the body in each direction.
struct Progress {
    upload_at: Instant,
    download_at: Instant,
    /// Whether bytes have moved since the clock was read.
    has_uploaded: bool,
    has_downloaded: bool,
}

impl Progress {
    fn update(&mut self) {
        if self.has_uploaded || self.has_downloaded {
            let now = Instant::now();
            if std::mem::take(&mut self.has_uploaded) {
                self.upload_at = now;
            }
            if std::mem::take(&mut self.has_downloaded) {
                self.download_at = now;
            }
        }
    }
}

impl<'p, 'c> Pump<'p, 'c> {
    pub(super) fn new(
        (worker, upstream): (&'p Worker, usize),
        (client, connection): (&'p mut Http1Client<'c>, RawConnection),
        request: &'p mut ForwardedRequest,
    ) -> Self {
        let started_at = request.started_at;
        let timer = if client.has_body_left() { request.admission.service_timer() } else { None };
        Self {
            worker,
            client,
            connection,
            upstream,
            request,
            timer,
            written: 0,
            body: None,
            is_upload_over: false,
            input: None,
            has_input: false,
            download: Download::Head,
            response: ResponseState::default(),
            out: OutputBuffer::default(),
            sent: 0,
            needs_flush: false,
            deadline: worker.total.map(|total| started_at + total),
            progress: Progress {
                upload_at: started_at,
                download_at: started_at,
                has_uploaded: false,
                has_downloaded: false,
            },
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ExchangeReport, Failure>> {
        loop {
            let has_moved = self.poll_upload(cx)? | self.poll_download(cx)?;
            if self.is_complete() {
                return Poll::Ready(if self.response.is_cut { Err(Failure::Cut) } else { Ok(self.report()) });
            }
            if has_moved {
                continue;
            }
            if self.client.poll_left(cx).is_ready() {
                return Poll::Ready(Err(Failure::Abandoned));
            }
            return self.poll_timeout(cx).map(Err);
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self.download, Download::Done) && self.out.is_empty() && !self.needs_flush
    }

    /// Whether the request was sent completely.
    fn is_uploaded(&self) -> bool {
        let has_body_left = self.client.has_body_left() || self.body.is_some();
        self.written == self.request.head.len() && !has_body_left && !self.is_upload_over
    }

    fn report(&self) -> ExchangeReport {
        let is_uploaded = self.is_uploaded();
        ExchangeReport {
            is_reusable: self.response.is_reusable && is_uploaded && self.input.is_none(),
            keeps_client: is_uploaded && !self.response.is_last,
            at: self.progress.download_at,
        }
    }

    /// Returns the connection after a complete exchange.
    pub(super) fn into_connection(self) -> RawConnection {
        self.connection
    }

    /// Leaves a failed exchange. If the upstream may continue to work on a request that holds slots, they are held until
    /// it has finished.
    pub(super) fn leave(mut self, failure: &Failure, load: Load, pool: &Arc<RawPool>) {
        // An upstream does not start to work on a part of a head.
        if !failure.may_continue() || self.written < self.request.head.len() {
            return;
        }
        let Some(slots) = self.request.slots.take() else { return };
        let is_head_pending = matches!(self.download, Download::Head);
        self.progress.update();
        let rest = AbandonedResponse {
            // A problem was recorded already, or was caused by the client.
            head_due: (is_head_pending && matches!(failure, Failure::Abandoned)).then(|| self.due().0),
            is_reusable: self.is_uploaded() && (is_head_pending || self.response.is_reusable),
            is_cut: !self.is_uploaded(),
            connection: self.connection,
            upstreams: Arc::clone(&self.worker.upstreams),
            upstream: self.upstream,
            load,
            input: self.input.unwrap_or_else(Buffer::take),
            download: self.download,
            is_head: self.request.is_head,
            meter: self.request.meter.take(),
        };
        let pool = Arc::clone(pool);
        slots.detach(|slots| rest.discard(slots, pool));
    }

    /// Sends the request. Returns whether bytes have moved.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.is_upload_over {
            return Ok(false);
        }
        let stream = Pin::new(&mut self.connection.stream);
        if self.written < self.request.head.len() {
            return match stream.poll_write(cx, &self.request.head[self.written..]) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(count @ 1..)) => {
                    self.written += count;
                    Ok(true)
                }
                Poll::Ready(_) if self.written == 0 => Err(Failure::Unsent),
                Poll::Ready(_) => Ok(self.end_upload()),
            };
        }
        if let Some(body) = &mut self.body {
            return match stream.poll_write(cx, body.unsent()) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(count @ 1..)) => {
                    if body.consume(count) {
                        self.body = None;
                    }
                    self.progress.has_uploaded = true;
                    Ok(true)
                }
                Poll::Ready(_) => Ok(self.end_upload()),
            };
        }
        if !self.client.has_body_left() {
            return Ok(false);
        }
        let problem = match self.client.poll_body(self.worker.body, cx) {
            Poll::Pending => {
                if let Some(timer) = &self.timer {
                    timer.stop();
                }
                return Ok(false);
            }
            Poll::Ready(ClientBody::Bytes(bytes)) => return Ok(self.start_piece(UploadPiece::Bytes(bytes))),
            Poll::Ready(ClientBody::Chunks(chunks)) => {
                return Ok(self.start_piece(UploadPiece::Chunks(chunks, 0)));
            }
            Poll::Ready(ClientBody::TooLarge) => Problem::BodyTooLarge,
            Poll::Ready(ClientBody::Malformed(error)) => {
                tracing::debug!(%error, "the body of a request is malformed");
                Problem::BodyBroken
            }
            Poll::Ready(ClientBody::Left) => Problem::BodyBroken,
        };
        Err(match self.download {
            Download::Head => Failure::Problem(problem),
            _ => Failure::Abandoned,
        })
    }

    fn start_piece(&mut self, piece: UploadPiece) -> bool {
        if let Some(timer) = &self.timer {
            timer.restart();
        }
        self.body = Some(piece);
        self.progress.has_uploaded = true;
        true
    }

    /// Stops sending: the upstream has closed its side. Its response may tell why.
    const fn end_upload(&mut self) -> bool {
        self.is_upload_over = true;
        true
    }

    /// Passes the response on. Returns whether bytes have moved.
    fn poll_download(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.sent < self.out.len() {
            return match self.client.poll_write(cx, &self.out[self.sent..]) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(count @ 1..)) => {
                    self.sent += count;
                    if self.sent == self.out.len() {
                        (self.out, self.sent, self.needs_flush) = (OutputBuffer::default(), 0, true);
                    }
                    self.progress.has_downloaded = true;
                    Ok(true)
                }
                Poll::Ready(_) => Err(Failure::Abandoned),
            };
        }
        if self.needs_flush {
            return match self.client.poll_flush(cx) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(())) => {
                    self.needs_flush = false;
                    Ok(true)
                }
                Poll::Ready(Err(_)) => Err(Failure::Abandoned),
            };
        }
        if matches!(self.download, Download::Done) {
            return Ok(false);
        }
        let mut input = self.input.take().unwrap_or_else(Buffer::take);
        let read = input.poll_fill(Pin::new(&mut self.connection.stream), u64::MAX, cx);
        let moved = match read {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(count @ 1..)) => {
                self.progress.has_downloaded = true;
                self.take_input(&mut input, count)
            }
            Poll::Ready(Ok(0)) => self.end_download(),
            Poll::Ready(Err(error)) => Err(self.broken(error.to_string())),
        };
        if !input.is_empty() {
            self.input = Some(input);
        }
        moved
    }

    fn take_input(&mut self, input: &mut Buffer, count: usize) -> Result<bool, Failure> {
        self.has_input |= count > 0;
        if self.out.capacity() == 0 {
            self.out = OutputBuffer::take();
        }
        let (is_last, is_head) = (self.client.is_last(), self.request.is_head);
        let recipient = Recipient {
            meters: &mut self.request.admission,
            meter: self.request.meter.as_deref_mut(),
            write_head: |out: &mut Vec<u8>,
                         head: &ResponseHead<'_, '_>,
                         nominated: &Nominated,
                         admission: &RawAdmission| {
                download::write_head(out, (head, nominated), admission, is_last);
            },
        };
        let moved = match self.download.take(input, is_head, &mut self.out, recipient) {
            Ok(Some(head)) => {
                (self.response.is_reusable, self.response.is_last) = (head.is_reusable, is_last);
                self.worker.upstreams.succeeded(self.upstream);
                self.request.admission.answered(StatusCode::from_u16(head.status).ok());
                Ok(true)
            }
            Ok(None) => Ok(true),
            Err(error) if matches!(self.download, Download::Head) => {
                Err(Failure::Broken { why: error.to_string(), is_silent: false })
            }
            Err(error) => {
                tracing::debug!(%error, "a response was aborted");
                self.worker.upstreams.succeeded(self.upstream);
                (self.download, self.response.is_cut) = (Download::Done, true);
                Ok(true)
            }
        };
        self.end_request();
        moved
    }

    /// Ends the request when the upstream has sent the last byte of its response: a client that has read it can use the
    /// slot again.
    fn end_request(&mut self) {
        if matches!(self.download, Download::Done) {
            self.request.end();
        }
    }

    /// Ends the response: the upstream has closed the connection.
    fn end_download(&mut self) -> Result<bool, Failure> {
        if self.download.end(&mut self.out) {
            self.end_request();
            Ok(true)
        } else {
            Err(self.broken("the connection was closed".to_owned()))
        }
    }

    /// Returns the failure of a broken connection. A response that ends with its connection is incomplete as well: a
    /// reset is not an end.
    fn broken(&self, why: String) -> Failure {
        match self.download {
            Download::Head => Failure::Broken { why, is_silent: !self.has_input },
            _ => Failure::Cut,
        }
    }

    /// Waits for the timeout that is in force.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        self.progress.update();
        let (due, failure) = self.due();
        loop {
            let mut timer = self.connection.timer.as_mut();
            // A timer that fires too early is checked again; an exact one would be reset for every request.
            if timer.is_elapsed() || timer.deadline() > due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= due {
                return Poll::Ready(failure);
            }
            timer.reset(due);
        }
    }

    /// Returns the time at which the exchange fails if nothing moves, and how it fails.
    fn due(&self) -> (Instant, Failure) {
        let Worker { answer, still, .. } = *self.worker;
        let awaits_client = self.client.has_body_left() && self.body.is_none() && !self.is_upload_over;
        let (due, failure) = if !matches!(self.download, Download::Head) {
            (self.progress.download_at + still, Failure::Abandoned)
        } else if awaits_client {
            (self.progress.upload_at + still, Failure::Problem(Problem::BodyLate))
        } else {
            (self.progress.upload_at + answer, Failure::Problem(Problem::Slow))
        };
        match self.deadline {
            Some(deadline) if deadline < due => (deadline, failure),
            _ => (due, failure),
        }
    }
}
