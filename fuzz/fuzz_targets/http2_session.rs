//! Drives an HTTP/2 session with arbitrary frames, and checks everything that it writes.
//!
//! The first byte of the input selects the mode: arbitrary bytes instead of a connection, arbitrary bytes after the
//! preface, or a script of frames that are mostly valid. The clock is virtual. Checked are:
//!
//! - Nothing panics, and the received bytes that are kept stay within the bound of the session.
//! - Every frame that the session writes is valid, decodes with the decoder of loona, respects the windows and the
//!   settings of the client, and belongs to an open stream (`model`).
//! - Every request that has arrived completely gets exactly one response or reset, unless the client resets it or the
//!   connection ends with an error.
//! - Afterwards the window of the connection is complete again, a shutdown ends the session, and no call is left.
#![no_main]

#[path = "http2_session/model.rs"]
mod model;
#[path = "http2_session/script.rs"]
mod script;
#[path = "http2_session/surface.rs"]
mod surface;

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tollgate_net::Caps;
use tollgate_net::http2::fuzz::SessionDriver;

use crate::model::{Client, frame};
use crate::script::{Action, Script};
use crate::surface::{FuzzSurface, MAX_TIME};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The window that is opened at the end for each response.
const LAST_WINDOW: i64 = 1 << 20;

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"),
    );
}

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    RUNTIME.with_borrow(|runtime| runtime.block_on(run(*mode, rest)));
});

async fn run(mode: u8, input: &[u8]) {
    let surface = Arc::new(FuzzSurface::default());
    let mut connection = Connection::new(&surface, mode);
    // `Err`: the session has ended the connection.
    let _end = match mode & 3 {
        0 => connection.feed_raw(input),
        1 => connection.feed_preface().and_then(|()| connection.feed_raw(input)),
        _ => connection.run_script(Script::new(input)).await,
    };
    let calls = Arc::clone(&surface.calls);
    drop(connection);
    for _ in 0..8 {
        yield_now().await;
    }
    assert_eq!(Arc::strong_count(&calls), 2, "calls of a connection that has ended");
}

/// The session has ended the connection.
struct Ended;

struct Connection {
    driver: SessionDriver<FuzzSurface>,
    surface: Arc<FuzzSurface>,
    client: Client,
    now: u64,
    /// Whether the client closes its sending side at the end.
    ends_input: bool,
}

impl Connection {
    fn new(surface: &Arc<FuzzSurface>, mode: u8) -> Self {
        let streams = if mode & 4 == 0 { 128 } else { 3 };
        let header_bytes = if mode & 8 == 0 { 32 * 1024 } else { 500 };
        let mut out = Vec::new();
        let caps = Caps { streams, header_bytes, ..Caps::default() };
        let driver = SessionDriver::new(Arc::clone(surface), caps, &mut out);
        let mut client = Client::new();
        client.check(&out);
        Self { driver, surface: Arc::clone(surface), client, now: 0, ends_input: mode & 16 != 0 }
    }

    /// Passes bytes that may be anything. Their effect is not predicted.
    fn feed_raw(&mut self, input: &[u8]) -> Result<(), Ended> {
        let mut rest = input;
        while let Some(length) = model::frame_length(rest).filter(|_| self.client.has_preface) {
            let (frame, more) = rest.split_at(length.min(rest.len()));
            self.feed(frame)?;
            rest = more;
            if frame.len() < length {
                return Ok(());
            }
        }
        let (mut out, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        let used = self.driver.receive(rest, &mut cx, &mut out).map_err(|_| Ended)?;
        assert!(used <= rest.len());
        Ok(())
    }

    fn feed_preface(&mut self) -> Result<(), Ended> {
        let (mut out, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        assert_eq!(self.driver.receive(PREFACE, &mut cx, &mut out), Ok(PREFACE.len()));
        self.client.has_preface = true;
        self.feed(&frame(model::SETTINGS, 0, 0, &[]))
    }

    /// Passes one frame, and checks the response to it.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let (mut out, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        let received = self.driver.receive(bytes, &mut cx, &mut out);
        assert!(self.driver.received_bytes() <= self.driver.max_received_bytes());
        match received {
            Ok(used) => {
                assert!(used == bytes.len() || used == 0 && out.is_empty());
                if used > 0 {
                    self.client.sent(bytes);
                }
                self.client.check(&out);
                Ok(())
            }
            Err(code) => {
                self.client.check_last(&out, code);
                Err(Ended)
            }
        }
    }

    async fn run_script(&mut self, script: Script<'_>) -> Result<(), Ended> {
        self.feed_preface()?;
        let mut script = script;
        while let Some(action) = script.next(&self.client) {
            match action {
                Action::Frames(frames) => {
                    for frame in frames {
                        self.feed(&frame)?;
                    }
                }
                Action::Piece(frame, length) => {
                    // An incomplete frame changes nothing.
                    let (mut out, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
                    let piece = &frame[..length.min(frame.len() - 1)];
                    if let Ok(used) = self.driver.receive(piece, &mut cx, &mut out) {
                        assert!(used == 0 && out.is_empty());
                        self.feed(&frame)?;
                    } else {
                        return Err(Ended);
                    }
                }
                Action::Turn => self.turn().await,
                Action::Release => {
                    self.surface.release.notify_waiters();
                    self.turn().await;
                }
                Action::Wait(time) => self.wait(time).await?,
                Action::Shutdown => {
                    let mut out = Vec::new();
                    self.driver.begin_shutdown(&mut out);
                    self.client.check(&out);
                }
            }
            if self.driver.is_finished() {
                break;
            }
        }
        self.finish().await
    }

    /// Lets the tasks run, and handles their events.
    async fn turn(&mut self) {
        loop {
            for _ in 0..4 {
                yield_now().await;
            }
            let mut out = Vec::new();
            let has_events =
                self.driver.handle_events(self.now, &Context::from_waker(Waker::noop()), &mut out);
            self.client.check(&out);
            if !has_events {
                return;
            }
        }
    }

    async fn wait(&mut self, time: Duration) -> Result<(), Ended> {
        tokio::time::advance(time).await;
        self.now += u64::try_from(time.as_millis()).expect("a short time");
        self.turn().await;
        let mut out = Vec::new();
        let is_read = self.driver.check_times(self.now, &mut out);
        self.client.check(&out);
        if is_read { Ok(()) } else { Err(Ended) }
    }

    /// Completes all responses, and closes the connection.
    async fn finish(&mut self) -> Result<(), Ended> {
        if let Some(frame) = self.client.rest_of_block() {
            self.feed(&frame)?;
        }
        // The budget for frames without effect is refilled.
        self.wait(Caps::default().head).await?;
        self.surface.is_open.store(true, std::sync::atomic::Ordering::Relaxed);
        self.surface.release.notify_waiters();
        self.turn().await;
        for (stream, window) in self.client.open_windows() {
            let missing = LAST_WINDOW - window;
            if missing > 0 {
                let missing = u32::try_from(missing).expect("a window");
                self.feed(&frame(model::WINDOW_UPDATE, 0, stream, &missing.to_be_bytes()))?;
            }
        }
        self.turn().await;
        if self.ends_input {
            let mut out = Vec::new();
            self.driver.end_input(&mut out);
            self.client.end_input();
            self.client.check(&out);
        }
        self.wait(MAX_TIME).await?;
        self.client.check_answered();
        for stream in self.client.open_requests() {
            self.feed(&frame(model::RST_STREAM, 0, stream, &[0, 0, 0, 8]))?;
        }
        self.turn().await;
        assert!(!self.driver.has_streams(), "a stream is left");
        assert!(self.driver.is_window_restored(), "a part of the window is lost");
        if self.ends_input {
            assert!(self.driver.is_finished());
            return Ok(());
        }
        let mut out = Vec::new();
        self.driver.begin_shutdown(&mut out);
        self.client.check(&out);
        self.feed(&frame(model::PING, 1, 0, b"tollgate"))?;
        assert!(self.driver.is_finished());
        Ok(())
    }
}
