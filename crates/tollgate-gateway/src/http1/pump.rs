//! Moves the bytes of one exchange between a client and an upstream, in both directions at once, until the response is
//! complete.
//!
//! At most one buffer is held in each direction: nothing is read from the upstream before the client has taken the bytes
//! before, and the same for the body of the request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tollgate_net::http1::{Buffer, ClientBody, Http1Client, OutputBuffer};

use super::download::{Download, ResponseContext};
use super::pool::RawConnection;
use crate::forward::Worker;
use crate::problem::Problem;

/// The reason why an exchange failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The upstream has seen nothing of the request.
    Unsent,
    /// The connection to the upstream broke. `is_silent`: before the first byte of a response.
    Broken { why: String, is_silent: bool },
    /// The request is answered with this problem.
    Problem(Problem),
    /// The response was aborted after its start, or the client has left.
    Aborted,
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
    pub(super) worker: &'p Worker,
    pub(super) client: &'p mut Http1Client<'c>,
    pub(super) connection: &'p mut RawConnection,
    /// The index of the upstream.
    pub(super) upstream: usize,
    pub(super) context: ResponseContext<'p>,
    /// The head for the upstream, and the number of its bytes that were written.
    head: &'p [u8],
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
        (client, connection): (&'p mut Http1Client<'c>, &'p mut RawConnection),
        (head, context): (&'p [u8], ResponseContext<'p>),
        started_at: Instant,
    ) -> Self {
        Self {
            worker,
            client,
            connection,
            upstream,
            context,
            head,
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
                return Poll::Ready(if self.response.is_cut {
                    Err(Failure::Aborted)
                } else {
                    Ok(self.report())
                });
            }
            if has_moved {
                continue;
            }
            if self.client.poll_left(cx).is_ready() {
                return Poll::Ready(Err(Failure::Aborted));
            }
            return self.poll_timeout(cx).map(Err);
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self.download, Download::Done) && self.out.is_empty() && !self.needs_flush
    }

    fn report(&self) -> ExchangeReport {
        let has_body_left = self.client.has_body_left() || self.body.is_some();
        let is_uploaded = self.written == self.head.len() && !has_body_left && !self.is_upload_over;
        ExchangeReport {
            is_reusable: self.response.is_reusable && is_uploaded && self.input.is_none(),
            keeps_client: is_uploaded && !self.response.is_last,
            at: self.progress.download_at,
        }
    }

    /// Sends the request. Returns whether bytes have moved.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.is_upload_over {
            return Ok(false);
        }
        let stream = Pin::new(&mut self.connection.stream);
        if self.written < self.head.len() {
            return match stream.poll_write(cx, &self.head[self.written..]) {
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
            Poll::Pending => return Ok(false),
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
            _ => Failure::Aborted,
        })
    }

    fn start_piece(&mut self, piece: UploadPiece) -> bool {
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
                Poll::Ready(_) => Err(Failure::Aborted),
            };
        }
        if self.needs_flush {
            return match self.client.poll_flush(cx) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(())) => {
                    self.needs_flush = false;
                    Ok(true)
                }
                Poll::Ready(Err(_)) => Err(Failure::Aborted),
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
        let is_last = self.client.is_last();
        match self.download.take(input, &self.context, is_last, &mut self.out) {
            Ok(Some(is_reusable)) => {
                (self.response.is_reusable, self.response.is_last) = (is_reusable, is_last);
                self.worker.upstreams.succeeded(self.upstream);
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
        }
    }

    /// Ends the response: the upstream has closed the connection.
    fn end_download(&mut self) -> Result<bool, Failure> {
        if self.download.end(&mut self.out) {
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
            _ => Failure::Aborted,
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
            (self.progress.download_at + still, Failure::Aborted)
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
