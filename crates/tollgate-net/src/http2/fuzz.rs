//! Entry points for the fuzz targets in `fuzz/`. Not part of the API.

use std::sync::Arc;
use std::task::Context;

use super::GrpcSurface;
use super::header_list::HeaderList;
use super::hpack::Decoder;
use super::session::{Scratch, Session};
use crate::caps::Caps;

/// A header: its name and its value.
pub type HeaderField = (Vec<u8>, Vec<u8>);

/// The decoder of the header blocks of a connection.
#[derive(Debug, Default)]
pub struct HpackDecoder {
    decoder: Decoder,
    list: HeaderList,
}

impl HpackDecoder {
    /// Decodes a block: the headers within the bounds, and whether there are more; `None` if the block is invalid or
    /// expands without bound.
    pub fn decode(
        &mut self,
        block: &[u8],
        max_bytes: usize,
        max_fields: usize,
    ) -> Option<(Vec<HeaderField>, bool)> {
        self.list.reset(max_bytes, max_fields);
        self.decoder.decode(block, &mut self.list).ok()?;
        let fields = self.list.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        Some((fields, self.list.is_too_large()))
    }

    /// The size of the dynamic table.
    pub const fn table_bytes(&self) -> usize {
        self.decoder.table_bytes()
    }
}

/// The protocol state of a connection, driven without a socket.
pub struct SessionDriver<G> {
    session: Session<G>,
    scratch: Scratch,
    caps: Caps,
}

impl<G: GrpcSurface> SessionDriver<G> {
    /// Creates the state of a new connection, and writes the first frames.
    pub fn new(surface: Arc<G>, caps: Caps, out: &mut Vec<u8>) -> Self {
        Self { session: Session::new(surface, &caps, out), scratch: Scratch::default(), caps }
    }

    /// Handles all complete frames, and returns the number of used bytes. `Err`: the error code of the connection, whose
    /// last frame is written.
    pub fn receive(&mut self, input: &[u8], cx: &mut Context<'_>, out: &mut Vec<u8>) -> Result<usize, u32> {
        self.session.receive(input, &mut self.scratch, cx, out).map_err(|error| {
            self.session.write_error(error, out);
            error.0 as u32
        })
    }

    /// Handles the events of the tasks. Returns whether there were any.
    pub fn handle_events(&mut self, now: u64, cx: &Context<'_>, out: &mut Vec<u8>) -> bool {
        self.session.handle_events(|| now, cx, out).is_some()
    }

    /// Sets the time of the connection in milliseconds, and checks all timeouts. `false`: the client does not read a
    /// response.
    pub fn check_times(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        self.session.set_now(now);
        self.session.check_times(&self.caps, out).is_ok()
    }

    /// Removes the requests that have not arrived completely.
    pub fn end_input(&mut self, out: &mut Vec<u8>) {
        self.session.end_input(out);
    }

    /// Announces that the connection is closed after the requests in progress.
    pub fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        self.session.begin_shutdown(out);
    }

    /// Whether the connection can be closed.
    pub fn is_finished(&self) -> bool {
        self.session.is_finished()
    }

    /// Whether a stream is not closed.
    pub const fn has_streams(&self) -> bool {
        self.session.has_streams()
    }

    /// The number of received bytes that are kept.
    pub fn received_bytes(&self) -> usize {
        self.session.received_bytes()
    }

    /// The maximum number of received bytes that a connection keeps.
    pub fn max_received_bytes(&self) -> usize {
        self.session.max_received_bytes()
    }

    /// Whether all bytes of requests have been reported as used.
    pub const fn is_window_restored(&self) -> bool {
        self.session.is_window_restored()
    }
}
